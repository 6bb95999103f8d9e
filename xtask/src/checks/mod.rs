//! `cargo xtask test`: every stage of the checks, side by side, then a table of them and one line that counts all tests.
//!
//! Rust and Node.js are needed; a browser, a Vulkan driver and compilers are installed where they're missing. A stage that
//! fails doesn't keep the next from running, so that one run shows everything that is wrong. What a stage prints is kept in
//! `target/checks`, and shown where the stage fails. The table names each failure again, so that the last lines tell it all.

mod passed;
mod report;
mod schedule;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, ensure};
use passed::{About, Passed};
use report::Outcome;

use crate::counts::Counts;
use crate::packages::{self, PACKAGES, words};
use crate::shell::{Draw, Shell};
use crate::{
    gpu, highs, instructions, mesa, mpi, npm, nvidia, python, root, system, torture, web, widget,
};

/// A part of the checks.
pub struct Stage {
    name: &'static str,
    /// Stages that come before it, however they end.
    after: &'static [&'static str],
    work: Work,
    /// Whether it measures time, so that no other runs while it does.
    measures: bool,
    /// What it is about, where it takes long: it's left out most days while that is as it was when it passed.
    about: Option<About>,
}

/// What a stage does.
#[derive(Clone, Copy)]
enum Work {
    /// Must end well.
    Check(fn(&mut Shell) -> anyhow::Result<()>),
    /// Must end well, and report a test.
    Tests(fn(&mut Shell) -> anyhow::Result<()>),
}
use Work::{Check, Tests};

impl Stage {
    const fn new(name: &'static str, after: &'static [&'static str], work: Work) -> Self {
        Self { name, after, work, measures: false, about: None }
    }

    /// The same, left out but for one day of `days` while these files haven't changed since it passed.
    const fn known_by(self, files: &'static [&'static str], days: u64) -> Self {
        Self { about: Some(About { files, days }), ..self }
    }
}

const SYSTEM: &str = "system packages";
const BUILD: &str = "build";
const TESTS: &str = "tests";
/// Tests that take minutes: each target is a stage of its own.
const TRAINING: &str = "training";
const WGPU: &str = "training on WebGPU";
const COMMAND: &str = "the command from end to end";
const TIMED: &str = "planning and estimates in time";
const PAGE: &str = "page and modules";
const BROWSER: &str = "engine in a browser";
const END_TO_END: &str = "page in a browser";
const TIMES: &str = "page in time";
/// By cooperative matrices, on a driver of its own.
pub const COOPERATIVE: &str = "matmuls by cooperative matrices";
/// The kernels and their driver on a GPU that is emulated.
pub const EMULATED: &str = "CUDA, emulated";
/// By NVIDIA's compilers.
pub const KERNELS: &str = "CUDA kernels compiled";
/// What is done on a machine with a GPU, rehearsed on an emulated one.
const GPU: &str = "rehearsal for a GPU";
/// Its tests and, some days, its wheel.
const PYTHON: &str = "package for Python";
const NOTEBOOKS: &str = "notebooks";
const NPM: &str = "package for npm";
const WIDGET: &str = "widget in JupyterLab";
/// Training by each instruction set that the processor has a wider one than.
const INSTRUCTIONS: &str = "narrower instructions";
/// Runs that are killed, starved and damaged.
const TORTURE: &str = "torture";
/// By the libraries and launchers of others.
pub const MPI: &str = "ranks over MPI";
/// A crate outside the workspace, with models of its own.
pub const STRANGER: &str = "a stranger's models";
/// By a solver of integer programs.
pub const ORACLE: &str = "plans against the optimum";

/// The tasks, by the profile that `cargo xtask` has built them with.
const OWN: [&str; 5] = ["--package", "xtask", "--profile", "xtask", "--locked"];

/// What prints the kernels of maps.
const PRINTED: &str = "core/src/dialect.rs";

/// Sources that the tests of training run.
const BELOW_TRAINING: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "backend-cpu",
    "backend-cuda/src",
    "backend-wgpu",
    "core",
    "data",
    "nn",
    "ranks",
    "shaders",
    "tests/src",
    "tests/tests/training",
];
const BELOW_WGPU: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "backend-cpu",
    "backend-wgpu",
    "core",
    "nn",
    "shaders",
    "tests/src",
    "tests/tests/wgpu",
];
const BELOW_COMMAND: &[&str] = &[
    "Cargo.lock",
    "Cargo.toml",
    "backend-cpu",
    "backend-cuda/src",
    "backend-wgpu",
    "cli",
    "core",
    "data",
    "engine",
    "nn",
    "ranks",
    "shaders",
];

/// Test targets by the stages that run nothing else, with the folders of those whose files are drawn.
const SLOW: [(&str, &str, Option<&str>); 4] = [
    (TRAINING, "training", Some("tests/tests/training")),
    (WGPU, "wgpu", None),
    (COMMAND, "end_to_end", Some("cli/tests/end_to_end")),
    (EMULATED, "cuda", Some("tests/tests/cuda")),
];
/// Each file of tests that are drawn is run one day of these.
const DAYS_OF_FILES: u64 = 3;

/// The stages in the order in which they begin where there's a place. Those that use the same target directory of cargo come
/// after its build, since cargo does one build at a time.
const STAGES: &[Stage] = &[
    Stage::new("format", &[], Check(|shell| run(shell, &["fmt"], &["--all", "--", "--check"]))),
    Stage::new(BUILD, &[], Check(|shell| run(shell, &packages::BUILD, &PACKAGES))),
    Stage::new(SYSTEM, &[], Check(system::prepare)),
    Stage::new(PAGE, &[SYSTEM], Check(web::build_for_tests)),
    // Unit tests, the conformance cases, and the tests of the command line, which run the binary.
    Stage::new(TESTS, &[BUILD, SYSTEM], Tests(quick)),
    Stage::new(TRAINING, &[BUILD, SYSTEM], Tests(|shell| slow(shell, TRAINING)))
        .known_by(BELOW_TRAINING, 7),
    Stage::new(WGPU, &[BUILD, SYSTEM], Tests(|shell| slow(shell, WGPU))).known_by(BELOW_WGPU, 7),
    Stage::new(COMMAND, &[BUILD, SYSTEM], Tests(|shell| slow(shell, COMMAND)))
        .known_by(BELOW_COMMAND, 7),
    Stage::new(END_TO_END, &[BUILD, PAGE], Tests(web::test_page))
        .known_by(&["web/page", "web/src"], 7),
    Stage::new(TORTURE, &[BUILD, SYSTEM], Tests(torture::test)),
    Stage::new(INSTRUCTIONS, &[BUILD, TESTS], Check(instructions::test))
        .known_by(BELOW_TRAINING, 3),
    Stage { measures: true, ..Stage::new(TIMES, &[PAGE], Tests(web::time_page)) },
    Stage { measures: true, ..Stage::new(TIMED, &[BUILD], Tests(timed)) },
    Stage::new(BROWSER, &[BUILD, PAGE], Tests(web::test_engine))
        .known_by(&["backend-wgpu", "shaders", "tests/browser", "web/src"], 7),
    // Left out by `cargo test`, since each kernel is compiled first.
    Stage::new(EMULATED, &[BUILD, SYSTEM], Tests(|shell| slow(shell, EMULATED)))
        .known_by(&["backend-cuda/src", PRINTED, "kernels", "tests/tests/cuda"], 7),
    Stage::new(KERNELS, &[BUILD, SYSTEM], Tests(nvidia::test))
        .known_by(&["backend-cuda", PRINTED, "kernels"], 7),
    Stage::new(GPU, &[BUILD, SYSTEM], Tests(gpu::test)).known_by(
        &["backend-cuda/src", "bench/gpu", "bench/gpu.sh", PRINTED, "kernels", "tests/gpu"],
        7,
    ),
    Stage::new(ORACLE, &[BUILD], Tests(highs::test)),
    Stage::new(MPI, &[BUILD], Tests(mpi::test)).known_by(
        &[
            "cli/tests/mpirun",
            "core/src/session",
            "engine/src/machine.rs",
            "engine/src/ranks.rs",
            "ranks",
        ],
        7,
    ),
    Stage::new(STRANGER, &[TESTS], Tests(stranger)).known_by(&["nn", "tests/stranger"], 7),
    Stage::new(COOPERATIVE, &[BUILD], Tests(mesa::test)).known_by(&["backend-wgpu", "shaders"], 7),
    Stage::new("tests of tasks", &[BUILD], Tests(|shell| run(shell, &["test"], &OWN))),
    Stage::new("lints", &[BUILD], Check(lint)),
    Stage::new("documentation", &[BUILD, "lints"], Check(document)),
    Stage::new(
        "examples in the documentation",
        &[BUILD, "documentation"],
        Tests(|shell| run(shell, &["test", "--doc"], &PACKAGES)),
    ),
    // What is made of the engine for others.
    Stage::new(NPM, &[BUILD, PAGE], Tests(npm::test)).known_by(&["web/npm", "web/src"], 7),
    Stage::new(PYTHON, &[BUILD], Tests(python::test)),
    Stage::new(NOTEBOOKS, &[PYTHON], Tests(python::notebooks)),
    Stage {
        measures: true,
        ..Stage::new(WIDGET, &[PAGE, NOTEBOOKS], Tests(widget::test))
            .known_by(&["web/src", "web/widget"], 7)
    },
];

/// What the rehearsal for a GPU takes.
pub const ON_A_GPU: [&str; 3] = [SYSTEM, BUILD, GPU];

/// Stages of training by narrower instruction sets.
pub const NARROWER: [&str; 2] = [BUILD, INSTRUCTIONS];

/// Tests that measure time.
pub const IN_TIME: [&str; 2] = [BUILD, TIMED];

/// What the package for Python takes.
pub const PACKAGE_FOR_PYTHON: [&str; 2] = [BUILD, PYTHON];

/// What the course takes.
pub const COURSE: [&str; 3] = [BUILD, PYTHON, NOTEBOOKS];

/// What the widget's test takes.
pub const WIDGETS: [&str; 6] = [SYSTEM, BUILD, PAGE, PYTHON, NOTEBOOKS, WIDGET];

/// What the tests in a browser take.
pub const WEB: [&str; 6] = [SYSTEM, BUILD, PAGE, END_TO_END, TIMES, BROWSER];
/// What the package for npm takes.
pub const WITH_NPM: [&str; 4] = [SYSTEM, BUILD, PAGE, NPM];

/// Runs all stages but those that [`About`] leaves out; `false` where one failed. A stage that fails without a failing test, or
/// that runs no test where it should, counts as one failure.
///
/// # Errors
/// Where the folder of logs can't be made, or `passed.tsv` not be read or written.
pub fn run_all(draw: Draw) -> anyhow::Result<bool> {
    let passed = Passed::read(&root())?;
    let (mut names, mut left_out) = (vec![], vec![]);
    for (place, stage) in (0..).zip(STAGES) {
        let known = stage.about.zip(stage.hash());
        let since = known
            .and_then(|(about, hash)| passed.leaves_out((stage.name, place), about, &hash, draw));
        match since {
            None => names.push(stage.name),
            Some(day) => left_out.push((stage.name, day)),
        }
    }
    run_stages(&names, &left_out, draw)
}

/// Runs the stages with these names, as [`run_all`] does. What a single one prints comes at once.
///
/// # Errors
/// As [`run_all`].
pub fn run_only(names: &[&str], draw: Draw) -> anyhow::Result<bool> {
    run_stages(names, &[], draw)
}

/// Runs the stages that a person names, without those that come before them.
///
/// # Errors
/// A name that no stage has, and as [`run_all`].
pub fn run_named(names: &[String]) -> anyhow::Result<bool> {
    let known: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
    for name in names {
        ensure!(known.contains(&name.as_str()), "there is no stage `{name}`: {}", known.join(", "));
    }
    run_only(&names.iter().map(String::as_str).collect::<Vec<_>>(), Draw::Files)
}

/// Runs those with `names`, and says since which day the others that are `left_out` haven't changed.
fn run_stages(names: &[&str], left_out: &[(&str, &str)], draw: Draw) -> anyhow::Result<bool> {
    let stages: Vec<&Stage> = STAGES.iter().filter(|stage| names.contains(&stage.name)).collect();
    let logs = root().join("target").join("checks");
    fs::create_dir_all(&logs).with_context(|| format!("can't make {}", logs.display()))?;
    // As the files are now: whoever changes them meanwhile hasn't tested the change.
    let hashes: Vec<_> =
        stages.iter().filter_map(|stage| Some((stage.name, stage.hash()?))).collect();
    let start = Instant::now();
    let outcomes = Mutex::new(vec![]);
    let places = std::thread::available_parallelism().map_or(2, usize::from).max(2);
    schedule::run(&stages, places, |stage| {
        let log =
            (stages.len() > 1).then(|| logs.join(format!("{}.log", stage.name.replace(' ', "-"))));
        let outcome = stage.run(log, draw);
        outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
    });
    let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|outcome| stages.iter().position(|stage| stage.name == outcome.name));
    print!("\n{}", report::table(&outcomes, left_out, start.elapsed()));
    let has_passed = |name| {
        let mut whole = outcomes.iter().filter(|outcome| !outcome.is_part);
        whole.any(|outcome| outcome.name == name && outcome.counts.failed == 0)
    };
    let mut passed = Passed::read(&root())?;
    for (name, hash) in hashes.into_iter().filter(|&(name, _)| has_passed(name)) {
        passed.write(name, &hash)?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.counts.failed == 0))
}

impl schedule::Scheduled for &Stage {
    fn name(&self) -> &str {
        self.name
    }

    fn after(&self) -> &[&str] {
        self.after
    }

    fn alone(&self) -> bool {
        self.measures
    }
}

impl Stage {
    /// A hash of what it's about; none where it isn't left out, or git can't tell, as in a copy without a repository.
    fn hash(&self) -> Option<String> {
        passed::hash(&root(), self.about?.files).ok()
    }

    /// Runs it under a headline, what it prints kept in the file `log` until it ends, where there's one.
    fn run(&self, log: Option<PathBuf>, draw: Draw) -> Outcome {
        let start = Instant::now();
        println!("== {} begins ==", self.name);
        let opened = match &log {
            None => Ok(Shell::live()),
            Some(log) => Shell::logged(log),
        };
        let (shell, counts, problem) = match opened {
            Ok(mut shell) => {
                shell.draw = draw;
                let (counts, problem) = self.perform(&mut shell);
                (shell, counts, problem)
            }
            Err(error) => (Shell::live(), Counts::FAILED, Some(error.to_string())),
        };
        let Shell { processor, mut failures, not_run, is_part, .. } = shell;
        let wall = start.elapsed();
        // Lines of two stages don't mix.
        let mut stdout = io::stdout().lock();
        let show = || -> io::Result<()> {
            if let Some(log) = log.filter(|_| problem.is_some()) {
                writeln!(stdout, "\n== {} ==", self.name)?;
                io::copy(&mut File::open(log)?, &mut stdout)?;
            }
            if let Some(problem) = &problem {
                writeln!(stdout, "stage `{}` failed: {problem}", self.name)?;
            }
            let [wall, processor] = [wall, processor].map(|time| time.as_secs_f64());
            writeln!(
                stdout,
                "== {}: {wall:.0} s, {processor:.0} s of processor time, {counts} ==\n",
                self.name
            )
        };
        // Whoever reads the output may have gone; the exit status still counts.
        let _ = show();
        if failures.is_empty() {
            failures.extend(problem);
        }
        Outcome { name: self.name, wall, processor, counts, failures, not_run, is_part }
    }

    /// Does what it does. It fails where it says so, or should report tests and doesn't; then with why, and as at least one
    /// failure.
    fn perform(&self, shell: &mut Shell) -> (Counts, Option<String>) {
        let (Check(work) | Tests(work)) = self.work;
        let done = work(shell);
        let silent = matches!(self.work, Tests(_)) && shell.counts.runners == 0;
        let problem = match done {
            Err(error) => Some(format!("{error:#}")),
            Ok(()) => silent.then(|| "no test ran".to_owned()),
        };
        match problem {
            Some(_) if shell.counts.failed == 0 => (Counts { failed: 1, ..shell.counts }, problem),
            _ => (shell.counts, problem),
        }
    }
}

/// Runs cargo with these arguments.
fn run(shell: &mut Shell, first: &[&str], rest: &[&str]) -> anyhow::Result<()> {
    shell.run(words(first).args(rest))
}

/// Runs the tests of libraries and programs, and of every target that is no stage of its own.
fn quick(shell: &mut Shell) -> anyhow::Result<()> {
    let targets = packages::test_targets(shell)?;
    let is_slow = |target: &&String| SLOW.iter().any(|(_, slow, _)| slow == target);
    let quick = targets.iter().filter(|target| !is_slow(target));
    let mut command = words(&["test", "--no-fail-fast", "--lib", "--bins"]);
    command.args(PACKAGES).args(quick.flat_map(|target| ["--test", target]));
    shell.run(&mut command)
}

/// Runs the test target of a stage: of a part, the files that are drawn.
fn slow(shell: &mut Shell, stage: &str) -> anyhow::Result<()> {
    let target = SLOW.iter().find(|(name, ..)| *name == stage);
    let &(_, target, folder) =
        target.with_context(|| format!("`{stage}` is no stage of one target"))?;
    let mut drawn = vec![];
    if let Some(folder) = folder.filter(|_| shell.draw == Draw::Part) {
        let mut later = vec![];
        for (file, index) in packages::test_files(folder)?.into_iter().zip(0..) {
            let is_today = shell.draw.takes_a_day_of(DAYS_OF_FILES, index);
            if is_today { &mut drawn } else { &mut later }.push(file);
        }
        shell.is_part = true;
        let later = later.join(" ");
        shell.not_run.push(format!("{later} of {stage}, on another day (--all runs them)"));
    }
    shell.run(words(&["test", "--test", target]).args(PACKAGES).arg("--").args(drawn))
}

/// Runs the tests that measure time and are ignored beside others.
fn timed(shell: &mut Shell) -> anyhow::Result<()> {
    run(
        shell,
        &[&["test", "--lib", "--test", "plans"], &PACKAGES[..]].concat(),
        &["--", "--ignored", "timed::"],
    )
}

/// Builds the crate with the library as others do, and runs it. The only test of its kind that is left out otherwise.
fn stranger(shell: &mut Shell) -> anyhow::Result<()> {
    let only = ["--", "--ignored", "stranger::"];
    run(shell, &[&["test", "--test", "house"], &PACKAGES[..]].concat(), &only)
}

/// Lints the packages, and this one by its own profile: what each is made of has been compiled so.
fn lint(shell: &mut Shell) -> anyhow::Result<()> {
    let strictly = ["--all-targets", "--", "-D", "warnings"];
    for packages in [&PACKAGES[..], &OWN] {
        run(shell, &[&["clippy"], packages].concat(), &strictly)?;
    }
    Ok(())
}

fn document(shell: &mut Shell) -> anyhow::Result<()> {
    for packages in [&PACKAGES[..], &OWN] {
        let mut command = words(&["doc", "--no-deps"]);
        shell.run(command.args(packages).env("RUSTDOCFLAGS", "-D warnings"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use std::process::Command;

    use super::*;

    fn names() -> Vec<&'static str> {
        STAGES.iter().map(|stage| stage.name).collect()
    }

    #[test]
    fn stages_come_after_stages_that_there_are() {
        let names = names();
        for stage in STAGES {
            assert!(stage.after.iter().all(|name| names.contains(name)), "{}", stage.name);
            assert_eq!(
                names.iter().filter(|&&name| name == stage.name).count(),
                1,
                "{}",
                stage.name
            );
        }
        for file in STAGES.iter().filter_map(|stage| stage.about).flat_map(|about| about.files) {
            assert!(root().join(file).exists(), "there is no {file}");
        }
        for stage in Passed::read(&root()).unwrap().lines.keys() {
            assert!(names.contains(&stage.as_str()), "{stage} of passed.tsv");
        }
        let apart = [COOPERATIVE, EMULATED, KERNELS, MPI, ORACLE, STRANGER];
        let tasks: [&[&str]; 9] = [
            &IN_TIME,
            &WEB,
            &WIDGETS,
            &WITH_NPM,
            &NARROWER,
            &PACKAGE_FOR_PYTHON,
            &COURSE,
            &ON_A_GPU,
            &apart,
        ];
        for name in tasks.concat() {
            assert!(names.contains(&name), "{name}");
        }
    }

    #[test]
    fn a_stage_that_runs_no_test_fails() {
        let failed = |work| {
            // What it prints isn't for the checks that run this test.
            let mut shell = Shell::logged(Path::new("/dev/null")).unwrap();
            Stage::new("stage", &[], work).perform(&mut shell).0.failed
        };
        let silent = |shell: &mut Shell| shell.run(&mut Command::new("true"));
        assert_eq!(failed(Check(silent)), 0);
        assert_eq!(failed(Tests(silent)), 1);
        assert_eq!(failed(Check(|shell| shell.run(&mut Command::new("false")))), 1);
        assert_eq!(failed(Check(|shell| shell.run(&mut Command::new("no-such-program")))), 1);
        let reports = |shell: &mut Shell| {
            let words = "test result: FAILED. 1 passed; 2 failed; 0 ignored;";
            shell.run(Command::new("sh").args(["-c", &format!("echo '{words}'; exit 1")]))
        };
        assert_eq!(failed(Tests(reports)), 2);
    }
}
