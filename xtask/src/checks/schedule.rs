//! Stages side by side, each after those that it waits for.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// What a schedule has to know of a stage.
pub trait Scheduled: Sync {
    fn name(&self) -> &str;
    /// Names of the stages that must have ended, however they did.
    fn after(&self) -> &[&str];
    /// Whether nothing may run while it does.
    fn alone(&self) -> bool;
}

/// Where the stages are, by their index.
struct State {
    begun: Vec<bool>,
    ended: Vec<bool>,
}

impl State {
    fn running(&self) -> usize {
        self.begun.iter().zip(&self.ended).filter(|(begun, ended)| **begun && !**ended).count()
    }

    /// The first stage that may begin: none where all have to wait, `Err` where all have begun. One that runs alone lets the
    /// others go first while any runs.
    fn next<S: Scheduled>(&self, stages: &[S]) -> Result<Option<usize>, ()> {
        let ended = |name: &&str| {
            let place = stages.iter().position(|stage| stage.name() == *name);
            place.is_none_or(|place| self.ended[place])
        };
        let mut waiting = (0..stages.len()).filter(|&index| !self.begun[index]).peekable();
        if waiting.peek().is_none() {
            return Err(());
        }
        let running = self.running();
        let is_alone = (0..stages.len())
            .any(|index| self.begun[index] && !self.ended[index] && stages[index].alone());
        Ok(waiting.find(|&index| {
            let stage = &stages[index];
            !is_alone && (running == 0 || !stage.alone()) && stage.after().iter().all(ended)
        }))
    }
}

/// Ends a stage where it's dropped: a stage that panics too, since others wait for it.
struct Ends<'a> {
    state: &'a Mutex<State>,
    changed: &'a Condvar,
    index: usize,
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).ended[self.index] = true;
        self.changed.notify_all();
    }
}

/// Runs every stage once, at most `places` at a time, the first of the list first among those that may begin. A stage that
/// isn't in the list is not waited for.
///
/// # Panics
/// Where stages wait for each other in a circle, and where a stage panics, once the others have ended.
pub fn run<S: Scheduled>(stages: &[S], places: usize, work: impl Fn(&S) + Sync) {
    let state =
        Mutex::new(State { begun: vec![false; stages.len()], ended: vec![false; stages.len()] });
    let changed = Condvar::new();
    let worker = || {
        let mut now = state.lock().unwrap_or_else(PoisonError::into_inner);
        while let Ok(next) = now.next(stages) {
            let Some(index) = next else {
                assert!(now.running() > 0, "stages wait for each other");
                now = changed.wait(now).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            now.begun[index] = true;
            drop(now);
            let ends = Ends { state: &state, changed: &changed, index };
            work(&stages[index]);
            drop(ends);
            now = state.lock().unwrap_or_else(PoisonError::into_inner);
        }
    };
    thread::scope(|scope| {
        for _ in 0..places.max(1) {
            scope.spawn(worker);
        }
    });
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    struct Stage {
        name: &'static str,
        after: &'static [&'static str],
        alone: bool,
    }

    impl Scheduled for Stage {
        fn name(&self) -> &str {
            self.name
        }
        fn after(&self) -> &[&str] {
            self.after
        }
        fn alone(&self) -> bool {
            self.alone
        }
    }

    const fn stage(name: &'static str, after: &'static [&'static str]) -> Stage {
        Stage { name, after, alone: false }
    }

    const STAGES: [Stage; 6] = [
        Stage { alone: true, ..stage("speed", &["build"]) },
        stage("tests", &["build"]),
        stage("build", &[]),
        stage("page", &[]),
        stage("browser", &["page"]),
        stage("kernels", &["build", "elsewhere"]),
    ];

    /// Names in the order in which stages began and ended, and the most that ran at once.
    fn traced(places: usize) -> (Vec<String>, usize) {
        let trace = Mutex::new(vec![]);
        let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        run(&STAGES, places, |stage| {
            let now = 1 + running.fetch_add(1, Ordering::SeqCst);
            most.fetch_max(now, Ordering::SeqCst);
            trace.lock().unwrap().push(format!("{}+", stage.name));
            thread::sleep(Duration::from_millis(20));
            trace.lock().unwrap().push(format!("{}-", stage.name));
            running.fetch_sub(1, Ordering::SeqCst);
        });
        (trace.into_inner().unwrap(), most.into_inner())
    }

    #[test]
    fn stages_wait_for_those_before_them() {
        for places in 1..4 {
            let (trace, most) = traced(places);
            assert_eq!(trace.len(), 2 * STAGES.len(), "{trace:?}");
            let at = |event: String| trace.iter().position(|found| *found == event).unwrap();
            for stage in &STAGES {
                for before in stage.after.iter().filter(|&&name| name != "elsewhere") {
                    assert!(at(format!("{before}-")) < at(format!("{}+", stage.name)), "{trace:?}");
                }
            }
            let speed = at("speed+".to_owned());
            assert_eq!(trace[speed + 1], "speed-", "{trace:?}");
            let begun = |until| trace[..until].iter().filter(|event| event.ends_with('+')).count();
            assert_eq!(2 * begun(speed), speed, "others ran: {trace:?}");
            assert!(
                most <= places && most > usize::from(places > 1),
                "{most} at once in {places} places: {trace:?}"
            );
        }
    }

    #[test]
    fn a_panic_of_a_stage_reaches_the_caller() {
        let run = || run(&STAGES, 2, |stage| assert_ne!(stage.name, "page"));
        assert!(std::panic::catch_unwind(run).is_err());
    }

    #[test]
    fn one_place_takes_them_in_the_order_of_the_list() {
        let (trace, _) = traced(1);
        let begun = trace.iter().filter_map(|event| event.strip_suffix('+'));
        assert!(begun.eq(["build", "speed", "tests", "page", "browser", "kernels"]), "{trace:?}");
    }
}
