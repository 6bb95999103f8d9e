//! `--perfetto FILE`: a training step as trace events, which ui.perfetto.dev and chrome://tracing open.

use serde_json::{Value, json};

use super::names::phase_name;
use super::step::{ShownOp, ShownProgram};
use crate::figures::{RankStep, RankWait};
use crate::profile::Profile;

/// Most events of ops; above it, only the first of several micro-steps shows its ops.
const MOST: usize = 50_000;
const MICROSECONDS: f64 = 1e6;

/// The predicted step, then the measured one where there is one, and the last step of each of its ranks.
pub fn trace(programs: &[ShownProgram], profile: Option<&Profile>) -> Value {
    let mut events = Events::default();
    let predicted = |_: usize, _: usize, op: &ShownOp| op.seconds;
    events.step(1, "predicted", programs, &predicted);
    if let Some(profile) = profile {
        let measured = |program: usize, step: usize, _: &ShownOp| {
            let op = profile.programs.get(program).and_then(|program| program.ops.get(step));
            op.map_or(0.0, |op| op.measured_s)
        };
        let name = format!("measured on {}, op by op", profile.device);
        events.step(2, &name, programs, &measured);
        events.ranks(3, &profile.ranks);
    }
    json!({ "displayTimeUnit": "ms", "traceEvents": events.0 })
}

#[derive(Default)]
struct Events(Vec<Value>);

impl Events {
    /// One optimizer step as process `pid`, a track for each of its programs.
    fn step(
        &mut self,
        pid: usize,
        title: &str,
        programs: &[ShownProgram],
        seconds: &dyn Fn(usize, usize, &ShownOp) -> f64,
    ) {
        self.name("process_name", pid, 0, title);
        self.name("thread_name", pid, 0, "micro-steps");
        let ops: usize = programs.iter().map(|program| program.repeats * program.ops.len()).sum();
        let mut now = 0.0;
        for (index, program) in programs.iter().enumerate() {
            let track = index + 1;
            self.name("thread_name", pid, track, program.role.name());
            for turn in 0..program.repeats {
                let begin = now;
                let detailed = turn == 0 || ops <= MOST;
                for (step, op) in program.ops.iter().enumerate() {
                    let duration = MICROSECONDS * seconds(index, step, op);
                    if detailed {
                        self.op(pid, track, now, duration, op);
                    }
                    now += duration;
                }
                if program.repeats > 1 {
                    let name = format!("micro-step {} of {}", turn + 1, program.repeats);
                    self.0.push(json!({
                        "ph": "X", "pid": pid, "tid": 0, "name": name, "cat": "step",
                        "ts": begin, "dur": now - begin,
                    }));
                }
                if !detailed {
                    let live = program.ops.iter().map(|op| op.live).max().unwrap_or(0);
                    self.live(pid, begin, live);
                }
            }
        }
    }

    /// A step of each rank as process `pid`, a track for each: where it computes, and where it waits for others and for what they send.
    fn ranks(&mut self, pid: usize, ranks: &[RankStep]) {
        if !ranks.is_empty() {
            self.name("process_name", pid, 0, "the last step, by rank");
        }
        for (rank, step) in ranks.iter().enumerate() {
            let track = rank + 1;
            self.name("thread_name", pid, track, &format!("rank {rank}"));
            let mut now = 0.0;
            let end = RankWait { begin_s: step.step_s, ..RankWait::default() };
            for RankWait { what, begin_s, took_s } in step.waits.iter().chain([&end]) {
                let parts =
                    [("computes", now, begin_s - now, ""), ("waits", *begin_s, *took_s, what)];
                for (name, begin, took, what) in parts.into_iter().filter(|part| part.2 > 0.0) {
                    self.0.push(json!({
                        "ph": "X", "pid": pid, "tid": track, "name": name, "cat": "rank",
                        "ts": MICROSECONDS * begin, "dur": MICROSECONDS * took,
                        "args": { "for": what },
                    }));
                }
                now = begin_s + took_s;
            }
        }
    }

    fn name(&mut self, kind: &str, pid: usize, tid: usize, name: &str) {
        self.0.push(json!({
            "ph": "M", "pid": pid, "tid": tid, "name": kind, "args": { "name": name },
        }));
    }

    fn op(&mut self, pid: usize, tid: usize, now: f64, duration: f64, op: &ShownOp) {
        self.0.push(json!({
            "ph": "X", "pid": pid, "tid": tid, "name": op.op, "cat": phase_name(op.phase),
            "ts": now, "dur": duration,
            "args": {
                "tensor": op.name, "phase": phase_name(op.phase), "bytes": op.bytes,
                "flops": op.flops, "live_bytes": op.live,
            },
        }));
        self.live(pid, now, op.live);
    }

    fn live(&mut self, pid: usize, now: f64, live: u64) {
        self.0.push(json!({
            "ph": "C", "pid": pid, "name": "live bytes", "ts": now, "args": { "bytes": live },
        }));
    }
}
