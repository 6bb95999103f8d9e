//! Measures a profile: runs a step op by op.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tightrope_core::{Backend, Phase, Plan, Rule as _};
use tightrope_nn::{Planned, Rates, TrainerConfig};

use super::{FamilyFigures, OpFigures, PhaseFigures, Profile, ProgramFigures};
use crate::error::Result;
use crate::figures::median;
use crate::machine::resident;
use crate::timing;
use crate::view::names::name_of;

/// Shortest time that ops are measured for, and the fewest replays.
const LEAST: (Duration, usize) = (Duration::from_secs(1), 4);
/// Replays before those that count: they touch memory for the first time, and fill caches.
const COLD: usize = 1;

impl Profile {
    /// Runs the step of `planned` op by op, on made-up data. The device's plan is gone after that.
    ///
    /// # Errors
    /// Those of the device.
    pub fn measure(planned: &Planned, rates: &Rates, device: &mut dyn Backend) -> Result<Self> {
        let (plan, config) = (Arc::new(planned.plan.clone()), planned.config());
        let mut residents: BTreeMap<(usize, usize), Option<u64>> = BTreeMap::new();
        let ends = ends_of_phases(&plan);
        let mut watch = |program, step| {
            if ends.contains(&(program, step)) {
                residents.entry((program, step)).or_insert_with(resident);
            }
        };
        let times = timing::watched(&plan, &*config.model, device, LEAST, &mut watch)?;
        let replays = times.first().and_then(|(_, ops)| ops.first()).map_or(0, Vec::len);
        let programs = times
            .iter()
            .map(|(program, times)| program_figures(&plan, *program, times, config, rates))
            .collect::<Vec<_>>();
        let allocated_bytes = device.allocated_bytes();
        let mut phases: Vec<PhaseFigures> = vec![];
        for ((index, _), figures) in times.iter().zip(&programs) {
            let timeline = &plan.programs[*index].timeline;
            for (step, op) in figures.ops.iter().enumerate() {
                let known =
                    |it: &&mut PhaseFigures| it.program == figures.role && it.phase == op.phase;
                let live = timeline[step] + plan.fixed_bytes;
                let resident = residents.get(&(*index, step)).copied().flatten();
                let runs = figures.repeats as f64;
                match phases.iter_mut().find(known) {
                    Some(phase) => {
                        phase.predicted_s += runs * op.predicted_s;
                        phase.measured_s += runs * op.measured_s;
                        phase.live_bytes = phase.live_bytes.max(live);
                        phase.resident_bytes = resident.or(phase.resident_bytes);
                    }
                    None => phases.push(PhaseFigures {
                        program: figures.role,
                        phase: op.phase,
                        predicted_s: runs * op.predicted_s,
                        measured_s: runs * op.measured_s,
                        live_bytes: live,
                        allocated_bytes,
                        resident_bytes: resident,
                    }),
                }
            }
        }
        Ok(Self {
            device: device.name(),
            predicted_peak_bytes: plan.peak_bytes(),
            allocated_bytes,
            predicted_step_s: planned.estimate(rates).step_s,
            step_s: None,
            ranks: vec![],
            replays: replays.saturating_sub(COLD).max(1),
            phases,
            families: families(&programs),
            programs,
        })
    }
}

/// The last op of every phase of every program of a step.
fn ends_of_phases(plan: &Plan) -> Vec<(usize, usize)> {
    let mut ends: Vec<(usize, usize)> = vec![];
    for (index, program) in plan.graph.programs.iter().enumerate() {
        for phase in [Phase::Forward, Phase::Recompute, Phase::Backward, Phase::Update] {
            let last = program.nodes.iter().rposition(|node| node.phase == phase);
            ends.extend(last.map(|step| (index, step)));
        }
    }
    ends
}

fn program_figures(
    plan: &Plan,
    program: usize,
    times: &[Vec<f64>],
    config: &TrainerConfig,
    rates: &Rates,
) -> ProgramFigures {
    let (graph, known) = (&plan.graph, &plan.graph.programs[program]);
    let ops = known.nodes.iter().zip(times).map(|(node, times)| {
        let warm = times.get(COLD..).filter(|warm| !warm.is_empty()).unwrap_or(times);
        OpFigures {
            op: node.op.name().to_owned(),
            name: name_of(graph, node),
            phase: node.phase,
            predicted_s: rates.seconds(graph, node),
            measured_s: median(warm).unwrap_or_default(),
        }
    });
    ProgramFigures {
        role: known.role,
        repeats: known.role.runs_per_step(config.accumulation()),
        ops: ops.collect(),
    }
}

fn families(programs: &[ProgramFigures]) -> Vec<FamilyFigures> {
    let mut found: BTreeMap<&str, FamilyFigures> = BTreeMap::new();
    for program in programs {
        for op in &program.ops {
            let family = found.entry(&op.op).or_default();
            family.op.clone_from(&op.op);
            family.runs += program.repeats;
            family.predicted_s += program.repeats as f64 * op.predicted_s;
            family.measured_s += program.repeats as f64 * op.measured_s;
        }
    }
    let mut found: Vec<FamilyFigures> = found.into_values().collect();
    found.sort_by(|a, b| b.measured_s.total_cmp(&a.measured_s));
    found
}
