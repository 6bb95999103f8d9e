//! What the ops of a step took on a device, beside what was predicted: `profile.json` of a run.
//!
//! ```
//! use tightrope::devices::Devices;
//! use tightrope::profile::Profile;
//! use tightrope::recipe::Step;
//! use tightrope::settings::Settings;
//!
//! let mut said = Settings::default();
//! for words in ["model.preset=tiny", "run.device=cpu"] {
//!     said.read_argument(words)?;
//! }
//! let step = Step::of(&said)?;
//! let mut device = Devices::default().open(&step.device)?;
//! let planned = step.plan(&*device)?;
//!
//! let known = step.scope.rates.known(&*device, planned.config().precision, 1);
//! let profile = Profile::measure(&planned, &known.rates, &mut *device)?;
//! profile.check(&planned.plan)?;
//! println!("{}", profile.text());
//! # Ok::<(), tightrope::Error>(())
//! ```

#[cfg(not(target_family = "wasm"))]
mod measure;

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use serde::{Deserialize, Serialize};
use tightrope_core::{Phase, Plan, Role, Rule as _};
use tightrope_data::{files, limits};

use crate::error::{Error, Result};
use crate::figures::RankStep;
use crate::units::human_bytes;
use crate::view::names::{self, name_of};

/// Name of the file in a run's directory.
pub const FILE: &str = "profile.json";
/// One op.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpFigures {
    /// Family.
    pub op: String,
    /// Name of its first output.
    pub name: String,
    /// Part of the step.
    pub phase: Phase,
    /// Seconds of one run, as predicted.
    pub predicted_s: f64,
    /// Seconds of one run, the median.
    pub measured_s: f64,
}

/// One program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProgramFigures {
    /// What it's for.
    #[serde(rename = "name")]
    pub role: Role,
    /// Runs in a step.
    pub repeats: usize,
    /// Its ops, in order.
    pub ops: Vec<OpFigures>,
}

/// What all ops of one family take in a step.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FamilyFigures {
    /// Family.
    pub op: String,
    /// Runs in a step.
    pub runs: usize,
    /// Seconds in a step, as predicted.
    pub predicted_s: f64,
    /// Seconds in a step, the ops one by one.
    pub measured_s: f64,
}

/// One phase of a program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PhaseFigures {
    /// Program.
    pub program: Role,
    /// Part of the step.
    pub phase: Phase,
    /// Seconds in a step, as predicted.
    pub predicted_s: f64,
    /// Seconds in a step, the ops one by one.
    pub measured_s: f64,
    /// Most bytes of the arena in use at once.
    pub live_bytes: u64,
    /// Bytes that the device has allocated.
    pub allocated_bytes: u64,
    /// Memory of the process at its end, where the system tells it.
    pub resident_bytes: Option<u64>,
}

/// What was measured of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    /// Name of the device.
    pub device: String,
    /// Peak of the plan.
    pub predicted_peak_bytes: u64,
    /// What the device allocated for it.
    pub allocated_bytes: u64,
    /// Seconds of a step, as predicted.
    pub predicted_step_s: f64,
    /// Median seconds of the run's steps; none before the run has ended.
    pub step_s: Option<f64>,
    /// Replays that count.
    pub replays: usize,
    /// The last step of each of the ranks that trained together, once the run has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<RankStep>,
    /// By phase, in the order of the step.
    pub phases: Vec<PhaseFigures>,
    /// By family, those that take the most first.
    pub families: Vec<FamilyFigures>,
    /// By op.
    pub programs: Vec<ProgramFigures>,
}

impl Profile {
    /// Reads the profile of a run, by its directory or its file.
    ///
    /// # Errors
    /// A file that can't be read, or is no profile.
    pub fn read(path: &Path) -> Result<Self> {
        let file = if path.is_dir() { path.join(FILE) } else { path.to_owned() };
        let shown = file.display();
        const NEXT: &str = "give a run of `tightrope train --profile`, or its profile.json";
        let text = files::read(&file, limits::DESCRIPTION)
            .with_context(|| format!("can't read the profile `{shown}`"))
            .map_err(|error| Error::usage(error, NEXT))?;
        serde_json::from_slice(&text)
            .with_context(|| format!("`{shown}` is no profile"))
            .map_err(|error| Error::usage(error, NEXT))
    }

    /// Checks that it's of the ops of `plan`, in its order.
    ///
    /// # Errors
    /// Where it isn't, with the first op that differs.
    pub fn check(&self, plan: &Plan) -> Result<()> {
        let ours = plan.graph.programs.iter().filter(|program| program.role.runs_per_step(1) > 0);
        let ops = ours.flat_map(|program| {
            let graph = &plan.graph;
            program.nodes.iter().map(|node| (node.op.name(), name_of(graph, node)))
        });
        let mut theirs = self.programs.iter().flat_map(|program| &program.ops);
        let mut differs = None;
        for (op, name) in ops {
            match theirs.next() {
                Some(their) if their.op == op && their.name == name => {}
                their => {
                    let found = their.map_or_else(|| "nothing".to_owned(), |it| it.name.clone());
                    differs = Some(format!("`{found}` was measured where the plan has `{name}`"));
                    break;
                }
            }
        }
        let left = theirs.next().map(|op| format!("the plan has no `{}`", op.name));
        differs.or(left).map_or(Ok(()), |difference| {
            let message = format!("the profile is of another plan: {difference}");
            Err(Error::usage(
                anyhow!(message),
                "plan the run's own step: --config RUN/run.toml --plan RUN/plan.json",
            ))
        })
    }

    /// Families and phases, measured beside predicted.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let ratio = |measured: f64, predicted: f64| measured / predicted.max(f64::MIN_POSITIVE);
        let sums = self.families.iter().fold((0.0, 0.0), |(measured, predicted), family| {
            (measured + family.measured_s, predicted + family.predicted_s)
        });
        // Writing to a String can't fail.
        let _ = writeln!(
            text,
            "{:<28}{:>6}{:>12}{:>12}{:>8}{:>8}",
            "op", "runs", "predicted", "measured", "ratio", "share"
        );
        let mut row = |name: &str, runs: &str, measured: f64, predicted: f64| {
            let _ = writeln!(
                text,
                "{name:<28}{runs:>6}{:>9.2} ms{:>9.2} ms{:>8.2}{:>7.1}%",
                1e3 * predicted,
                1e3 * measured,
                ratio(measured, predicted),
                100.0 * measured / sums.0.max(f64::MIN_POSITIVE)
            );
        };
        for FamilyFigures { op, runs, measured_s, predicted_s } in &self.families {
            row(op, &runs.to_string(), *measured_s, *predicted_s);
        }
        row("all, one by one", "", sums.0, sums.1);
        if let Some(step_s) = self.step_s {
            row("a step of the run", "", step_s, self.predicted_step_s);
        }
        let _ = writeln!(
            text,
            "\n{:<28}{:>12}{:>12}{:>12}{:>12}",
            "phase", "measured", "live", "allocated", "process"
        );
        for phase in &self.phases {
            let (program, phase_name) = (phase.program.name(), names::phase_name(phase.phase));
            let name = match program {
                known if known == phase_name => known.to_owned(),
                known => format!("{known} {phase_name}"),
            };
            let _ = writeln!(
                text,
                "{name:<28}{:>9.2} ms{:>12}{:>12}{:>12}",
                1e3 * phase.measured_s,
                human_bytes(phase.live_bytes),
                human_bytes(phase.allocated_bytes),
                phase.resident_bytes.map_or_else(|| "unknown".to_owned(), human_bytes)
            );
        }
        if !self.ranks.is_empty() {
            let _ =
                writeln!(text, "\n{:<28}{:>12}{:>12}{:>12}", "rank", "a step", "computes", "waits");
        }
        for (rank, RankStep { mean, .. }) in self.ranks.iter().enumerate() {
            let [step, computes, waits] =
                [mean.step_s, mean.computes_s(), mean.waited_s].map(|seconds| 1e3 * seconds);
            let _ = writeln!(text, "{rank:<28}{step:>9.2} ms{computes:>9.2} ms{waits:>9.2} ms");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use tightrope_backend_cpu::Cpu;
    use tightrope_core::Backend as _;
    use tightrope_nn::{Planned, Precision, Rates, TrainerConfig, preset};

    use super::*;

    fn planned(micro_batch: usize) -> Planned {
        let config = TrainerConfig {
            batch: 2,
            micro_batch,
            ..TrainerConfig::new(preset("tiny").unwrap().build(16).unwrap())
        };
        Planned::new(&config, &Cpu::new(1).unwrap()).unwrap()
    }

    #[test]
    fn every_op_of_the_step_is_timed_and_adds_up() {
        for micro_batch in [2, 1] {
            let (planned, mut device) = (planned(micro_batch), Cpu::new(1).unwrap());
            let rates = Rates::of(&device.name(), Precision::F32, 1);
            let profile = Profile::measure(&planned, &rates, &mut device).unwrap();
            profile.check(&planned.plan).unwrap();
            assert_eq!(profile.allocated_bytes, planned.plan.peak_bytes());
            assert_eq!(profile.predicted_peak_bytes, planned.plan.peak_bytes());
            let near = |a: f64, b: f64| (a - b).abs() < 1e-9 * b;
            let families: f64 = profile.families.iter().map(|family| family.predicted_s).sum();
            assert!(near(families, profile.predicted_step_s), "{families}");
            let phases: f64 = profile.phases.iter().map(|phase| phase.measured_s).sum();
            let measured: f64 = profile.families.iter().map(|family| family.measured_s).sum();
            assert!(near(phases, measured) && measured > 0.0, "{phases} {measured}");
            let live = profile.phases.iter().map(|phase| phase.live_bytes).max().unwrap();
            assert!(live <= profile.predicted_peak_bytes && live > 0);
            let text = profile.text();
            for words in ["matmul", "all, one by one", "forward", "backward", "update"] {
                assert!(text.contains(words), "{words}: {text}");
            }
        }
    }

    #[test]
    fn a_profile_of_another_plan_is_refused() {
        let mut device = Cpu::new(1).unwrap();
        let rates = Rates::of(&device.name(), Precision::F32, 1);
        let profile = Profile::measure(&planned(2), &rates, &mut device).unwrap();
        let failure = profile.check(&planned(1).plan).unwrap_err();
        assert_eq!(failure.kind(), crate::error::Kind::Usage);
        assert!(failure.message().contains("was measured where"));
    }
}
