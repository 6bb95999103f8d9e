//! A thread that owns what may not leave it, and does there what it is asked to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

use crate::failure::raised;

/// How long Ctrl+C may go unseen while something is waited for.
const ATTENTION: Duration = Duration::from_millis(50);

type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// Asks what a worker owns to stop what it does.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Whether somebody asked.
    pub fn requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn set(&self, requested: bool) {
        self.0.store(requested, Ordering::Relaxed);
    }
}

/// A thread that owns an `S`. While it works, the interpreter is free, and Ctrl+C is answered.
pub struct Worker<S> {
    /// Sender of jobs; `None` once the thread has ended.
    jobs: Mutex<Option<Sender<Job<S>>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    stop: Stop,
    /// The process that has the thread: one that was forked from it doesn't.
    process: u32,
}

/// What is waited for with the interpreter free, as a closure that runs without it may not hold the receiver itself.
struct Answer<T>(Receiver<T>);

impl<S: 'static> Worker<S> {
    /// Starts a thread that owns what `make` makes.
    ///
    /// # Errors
    /// What `make` fails with, as an exception; a signal that came meanwhile.
    pub fn start(
        py: Python<'_>,
        make: impl FnOnce(Stop) -> tightrope::Result<S> + Send + 'static,
    ) -> PyResult<Self> {
        let (jobs, asked) = channel::<Job<S>>();
        let (made, answer) = channel();
        let stop = Stop::default();
        let own = stop.clone();
        let thread = thread::Builder::new()
            .name("tightrope".to_owned())
            .spawn(move || match make(own) {
                Ok(mut owned) => {
                    if made.send(Ok(())).is_ok() {
                        asked.into_iter().for_each(|job| job(&mut owned));
                    }
                }
                Err(error) => drop(made.send(Err(error))),
            })
            .map_err(|error| {
                PyRuntimeError::new_err(format!("no thread can be started: {error}"))
            })?;
        let (jobs, thread) = (Mutex::new(Some(jobs)), Mutex::new(Some(thread)));
        let worker = Self { jobs, thread, stop, process: std::process::id() };
        worker.wait(py, Answer(answer))?;
        Ok(worker)
    }

    /// Has `work` done, and waits for what it gives.
    ///
    /// # Errors
    /// What `work` fails with, as an exception; KeyboardInterrupt, after which what was under way is abandoned; and a process
    /// that was forked.
    pub fn ask<T: Send + 'static>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut S) -> tightrope::Result<T> + Send + 'static,
    ) -> PyResult<T> {
        if std::process::id() != self.process {
            return Err(PyRuntimeError::new_err(
                "this trainer was made before the process was forked, and its threads stayed behind; make it after the \
                 fork, or use the start method \"spawn\"",
            ));
        }
        let (done, answer) = channel();
        let stop = self.stop.clone();
        let job = Box::new(move |owned: &mut S| {
            // What an earlier job was stopped by isn't for this one.
            stop.set(false);
            // Nobody listens any more where the wait was interrupted.
            let _ = done.send(work(owned));
        });
        let sent = locked(&self.jobs).as_ref().is_some_and(|jobs| jobs.send(job).is_ok());
        if !sent {
            return Err(ended());
        }
        self.wait(py, Answer(answer))
    }

    /// Ends the thread and drops what it owns. Waits for that, as another worker may need the memory.
    pub fn end(&self, py: Python<'_>) {
        locked(&self.jobs).take();
        let thread = locked(&self.thread).take();
        // A job that panicked has ended the thread already.
        py.detach(|| thread.map(JoinHandle::join));
    }

    fn wait<T: Send>(&self, py: Python<'_>, answer: Answer<tightrope::Result<T>>) -> PyResult<T> {
        let mut answer = answer;
        loop {
            let (received, back) = py.detach(move || {
                let received = answer.0.recv_timeout(ATTENTION);
                (received, answer)
            });
            answer = back;
            match received {
                Ok(result) => return result.map_err(|error| raised(py, &error)),
                Err(RecvTimeoutError::Disconnected) => return Err(ended()),
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(signal) = py.check_signals() {
                        self.stop.set(true);
                        return Err(signal);
                    }
                }
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn ended() -> PyErr {
    PyRuntimeError::new_err("the trainer's thread has ended; make another trainer")
}
