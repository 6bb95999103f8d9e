//! The progress of a training run: one live line on a terminal, plain lines elsewhere.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tightrope::plain;
use tightrope::units::{human_bytes, human_count, human_time};

/// What is known after a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepInfo {
    /// Optimizer steps done, from 1.
    pub step: u64,
    /// Loss and gradient norm, in a step that read them back from the device.
    pub readings: Option<Readings>,
    /// Learning rate of the step.
    pub lr: f64,
    /// Tokens or images trained in the step.
    pub tokens: u64,
    /// What those are called in a rate.
    pub unit: &'static str,
    /// Bytes of device memory in use.
    pub memory: u64,
}

/// The numbers that a step reads back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Readings {
    /// Mean loss, in nats.
    pub loss: f64,
    /// Share of classes that were told right, of a model that tells classes apart.
    pub accuracy: Option<f64>,
    /// Global gradient norm before clipping.
    pub grad_norm: f64,
}

/// Shows how far a run has come, on stderr, so that stdout holds results only.
///
/// It starts to measure time when it is made.
pub struct Progress {
    output: Output,
    steps: u64,
    readings: Option<Readings>,
    pace: Pace,
    start: Instant,
}

enum Output {
    Live(ProgressBar),
    Lines(Box<dyn Write + Send>),
}

impl Progress {
    /// Progress towards `steps` optimizer steps, of which `done` are done (after a resume). The
    /// line is live when stderr is a terminal and `json` is false.
    pub fn new(steps: u64, done: u64, json: bool) -> Self {
        let output = if !json && io::stderr().is_terminal() {
            Output::live(steps, done, ProgressDrawTarget::stderr())
        } else {
            Output::Lines(Box::new(io::stderr()))
        };
        Self::with_output(output, steps)
    }

    /// Progress that nobody sees, nor what is noted of it.
    pub fn silent(steps: u64) -> Self {
        Self::with_output(Output::Lines(Box::new(io::sink())), steps)
    }

    fn with_output(output: Output, steps: u64) -> Self {
        Self { output, steps, readings: None, pace: Pace::default(), start: Instant::now() }
    }

    /// Shows a step. Plain lines appear for the steps with readings only.
    pub fn step(&mut self, info: &StepInfo) {
        self.step_at(info, self.start.elapsed());
    }

    fn step_at(&mut self, info: &StepInfo, elapsed: Duration) {
        self.pace.push(elapsed, info.tokens);
        self.readings = info.readings.or(self.readings);
        if info.readings.is_none() && matches!(self.output, Output::Lines(_)) {
            return;
        }
        let line = self.line(info);
        match &mut self.output {
            Output::Live(bar) => {
                bar.set_position(info.step);
                bar.set_message(line);
            }
            // Training goes on when nobody reads its progress any more.
            Output::Lines(out) => drop(writeln!(out, "{line}")),
        }
    }

    /// Shows a text of one or more lines above the live line.
    pub fn note(&mut self, text: &str) {
        let text = &*plain::brief(text);
        match &mut self.output {
            // `println` shows nothing where the bar is hidden, `suspend` always.
            Output::Live(bar) => bar.suspend(|| eprintln_lossy(text)),
            Output::Lines(out) => drop(writeln!(out, "{text}")),
        }
    }

    /// Leaves the last line standing and ends the live one.
    pub fn finish(&mut self) {
        match &mut self.output {
            Output::Live(bar) => bar.abandon(),
            Output::Lines(out) => drop(out.flush()),
        }
    }

    fn line(&self, info: &StepInfo) -> String {
        let width = self.steps.to_string().len();
        let percent = 100.0 * info.step as f64 / self.steps.max(1) as f64;
        let mut line = format!("{percent:3.0}% {:width$}/{}", info.step, self.steps);
        // Writing to a String can't fail.
        if let Some(Readings { loss, accuracy, grad_norm }) = self.readings {
            let _ = write!(line, "  loss {loss:.4}");
            if let Some(accuracy) = accuracy {
                let _ = write!(line, "  accuracy {:.1}%", 100.0 * accuracy);
            }
            let _ = write!(line, "  grad {grad_norm:.2}");
        }
        let _ = write!(line, "  lr {:.2e}", info.lr);
        if let Some(rate) = self.pace.tokens_per_s() {
            let _ = write!(line, "  {} {}/s", human_count(rate), info.unit);
        }
        let _ = write!(line, "  {}", human_bytes(info.memory));
        let left = self.steps.saturating_sub(info.step);
        if let Some(left) = self.pace.time_for(left).filter(|_| left > 0) {
            let _ = write!(line, "  ETA {}", human_time(left));
        }
        line
    }
}

impl Drop for Progress {
    /// A run that fails leaves its last line on the screen, as one that ends does.
    fn drop(&mut self) {
        self.finish();
    }
}

impl Output {
    fn live(steps: u64, done: u64, target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps), target).with_position(done);
        let style = ProgressStyle::with_template("{bar:16} {wide_msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self::Live(bar)
    }
}

fn eprintln_lossy(text: &str) {
    // A closed terminal leaves nobody to tell.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Time and tokens of the steps so far.
#[derive(Debug, Default)]
struct Pace {
    /// Steps seen.
    count: u64,
    /// Time at the end of the last step that is too early to count.
    warm: Duration,
    /// Time at the end of each of the latest steps, and the step's tokens.
    latest: VecDeque<(Duration, u64)>,
}

impl Pace {
    /// The first steps compile kernels, touch memory for the first time and fill caches.
    const COLD: u64 = 3;
    /// Steps that the rate is measured over: enough to be calm, few enough to show a change.
    const WINDOW: usize = 32;

    fn push(&mut self, elapsed: Duration, tokens: u64) {
        self.count += 1;
        if self.count <= Self::COLD {
            self.warm = elapsed;
        }
        if self.count >= Self::COLD {
            self.latest.push_back((elapsed, tokens));
            if self.latest.len() > Self::WINDOW + 1 {
                self.latest.pop_front();
            }
        }
    }

    /// Tokens trained per second over the latest steps, once there are enough to tell.
    fn tokens_per_s(&self) -> Option<f64> {
        let (first, _) = self.latest.front()?;
        let (last, _) = self.latest.back()?;
        // The tokens of the first entry were trained before its time.
        let tokens: u64 = self.latest.iter().skip(1).map(|(_, tokens)| tokens).sum();
        let seconds = last.saturating_sub(*first).as_secs_f64();
        (seconds > 0.0).then(|| tokens as f64 / seconds)
    }

    /// Time for `steps` more, at the mean of all warm steps, pauses to evaluate included.
    fn time_for(&self, steps: u64) -> Option<Duration> {
        let (last, _) = self.latest.back()?;
        let warm_steps = self.count.checked_sub(Self::COLD).filter(|steps| *steps > 0)?;
        let mean = last.saturating_sub(self.warm).as_secs_f64() / warm_steps as f64;
        Duration::try_from_secs_f64(mean * steps as f64).ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use indicatif::InMemoryTerm;

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Shared {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    fn info(step: u64, loss: Option<f64>) -> StepInfo {
        StepInfo {
            step,
            readings: loss.map(|loss| Readings { loss, accuracy: None, grad_norm: 0.834 }),
            lr: 3e-4,
            tokens: 1024,
            unit: "tok",
            memory: 1_331_439_862,
        }
    }

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn time_starts_with_the_progress() {
        let mut progress = Progress::new(10, 0, true);
        for step in 1..=5 {
            std::thread::sleep(Duration::from_millis(2));
            progress.step(&info(step, None));
        }
        let rate = progress.pace.tokens_per_s().unwrap();
        assert!(rate > 0.0 && rate <= 1024.0 / 0.002, "{rate}");
    }

    #[test]
    fn lines_at_log_points_only() {
        let out = Shared::default();
        let mut progress = Progress::with_output(Output::Lines(Box::new(out.clone())), 1000);
        progress.note("gpt, 10.8M weights");
        // The first step takes 100 s; the ETA must not know.
        progress.step_at(&info(1, Some(10.9)), seconds(100.0));
        progress.step_at(&info(2, None), seconds(100.1));
        progress.step_at(&info(3, None), seconds(100.2));
        progress.step_at(&info(4, None), seconds(100.3));
        progress.step_at(&info(5, Some(f64::NAN)), seconds(100.4));
        progress.finish();
        assert_eq!(
            out.text(),
            "gpt, 10.8M weights\n\
             \x20 0%    1/1000  loss 10.9000  grad 0.83  lr 3.00e-4  1.24 GiB\n\
             \x20 0%    5/1000  loss NaN  grad 0.83  lr 3.00e-4  10.2k tok/s  1.24 GiB  ETA 1m40s\n"
        );
    }

    #[test]
    fn images_have_an_accuracy() {
        let out = Shared::default();
        let mut progress = Progress::with_output(Output::Lines(Box::new(out.clone())), 4);
        for step in 1..=4 {
            let readings = Readings { loss: 0.25, accuracy: Some(0.96875), grad_norm: 0.834 };
            let readings = (step == 4).then_some(readings);
            let info = StepInfo { readings, unit: "img", tokens: 32, ..info(step, None) };
            progress.step_at(&info, seconds(step as f64));
        }
        progress.finish();
        let expected =
            "100% 4/4  loss 0.2500  accuracy 96.9%  grad 0.83  lr 3.00e-4  32 img/s  1.24 GiB\n";
        assert_eq!(out.text(), expected);
    }

    #[test]
    fn a_live_line_keeps_the_last_loss() {
        let term = InMemoryTerm::new(5, 120);
        let target = ProgressDrawTarget::term_like(Box::new(term.clone()));
        let mut progress = Progress::with_output(Output::live(10, 0, target), 10);
        for step in 1..=8 {
            let loss = (step == 1).then_some(2.5);
            progress.step_at(&info(step, loss), seconds(step as f64));
        }
        progress.finish();
        let screen = term.contents();
        assert!(screen.contains(" 80%  8/10  loss 2.5000  grad 0.83  lr 3.00e-4"), "{screen}");
        assert!(screen.contains("1.02k tok/s  1.24 GiB  ETA 2.0s"), "{screen}");
        assert_eq!(screen.lines().count(), 1, "{screen}");
    }

    #[test]
    fn the_rate_follows_a_change_and_the_eta_the_mean() {
        let mut pace = Pace::default();
        let mut time = 0.0;
        for step in 0..200 {
            time += if step < 100 { 1.0 } else { 0.5 };
            pace.push(seconds(time), 100);
        }
        assert!((pace.tokens_per_s().unwrap() - 200.0).abs() < 1e-9);
        let mean = (97.0 + 50.0) / 197.0;
        assert!((pace.time_for(10).unwrap().as_secs_f64() - 10.0 * mean).abs() < 1e-6);
    }

    #[test]
    fn no_rate_before_the_warm_steps() {
        let mut pace = Pace::default();
        for step in 1..=3 {
            pace.push(seconds(f64::from(step)), 100);
            assert_eq!((pace.tokens_per_s(), pace.time_for(5)), (None, None));
        }
        pace.push(seconds(3.0), 100);
        assert_eq!(pace.tokens_per_s(), None, "no time has passed");
    }
}
