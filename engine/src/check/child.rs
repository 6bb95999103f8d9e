//! Cases in a process of their own: one that a kernel takes down, or that never ends.

use std::ffi::OsString;
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::Duration;

use tightrope_core::DeviceKind;

use super::serve::{Event, Request, serve};
use crate::error::Result;

/// What begins a line of the child's: a program around it may print others.
const MARK: &str = "tightrope-check ";

/// Longest that a device is opened and kernels are compiled.
const COMPILING: Duration = Duration::from_secs(300);
/// Longest that a small case takes on a GPU of NVIDIA's, which ends no kernel by itself.
const RUNNING: Duration = Duration::from_secs(20);

/// How to start a process that calls [`serve_stdin`].
#[derive(Clone, Debug)]
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// How a process went that ran cases.
pub(super) enum Ended {
    /// It ran what it was asked to, up to the first case that was wrong.
    Told,
    /// It was at this case, and how it ended.
    At(usize, String),
    /// It ran none, and why.
    Never(String),
}

impl Program {
    /// Has a process run cases on a device of this kind, and tells what it says.
    pub(super) fn run(
        &self,
        kind: DeviceKind,
        request: &Request,
        tell: &mut dyn FnMut(&Event),
    ) -> Ended {
        // Drivers of other GPUs end what hangs, and some compile a kernel when it first runs.
        let running = if kind == DeviceKind::Cuda { RUNNING } else { COMPILING };
        let started = Command::new(&self.path)
            .args(&self.arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        match started {
            Ok(mut child) => {
                let ended = follow(&mut child, running, request, tell);
                // It has ended, or it won't by itself.
                let _ = child.kill();
                let _ = child.wait();
                ended
            }
            Err(error) => Ended::Never(format!("no process can be started for them: {error}")),
        }
    }
}

/// Asks a process, and hears it to its end.
fn follow(
    child: &mut Child,
    running: Duration,
    request: &Request,
    tell: &mut dyn FnMut(&Event),
) -> Ended {
    let (mut input, output) = (child.stdin.take(), child.stdout.take());
    let asked = serde_json::to_vec(request).unwrap_or_default();
    // A process that ends before it has read all of it says why.
    let _ = input.as_mut().map(|input| input.write_all(&asked));
    drop(input);
    let mut complaints = child.stderr.take();
    let complaints = Builder::new().spawn(move || {
        let mut text = vec![];
        let _ = complaints.as_mut().map(|pipe| pipe.read_to_end(&mut text));
        String::from_utf8_lossy(&text).into_owned()
    });
    let (send, events) = channel();
    let hearing = Builder::new().spawn(move || {
        let lines = output.map(|output| BufReader::new(output).lines());
        for line in lines.into_iter().flatten().map_while(io::Result::ok) {
            let event = line.strip_prefix(MARK).and_then(|line| serde_json::from_str(line).ok());
            if event.is_some_and(|event: Event| send.send(event).is_err()) {
                break;
            }
        }
    });
    let (Ok(complaints), Ok(_)) = (complaints, hearing) else {
        return Ended::Never("no thread can be started that hears their process".to_owned());
    };
    match listen(&events, running, request.cases(), tell) {
        Heard::All => Ended::Told,
        Heard::Silence(at) => {
            let seconds = running.as_secs();
            match at {
                Some(at) => Ended::At(at, format!("it didn't end within {seconds} s")),
                None => Ended::Never("the process for them doesn't answer".to_owned()),
            }
        }
        Heard::End(at) => {
            let status = child.wait().map_or_else(|error| error.to_string(), |s| s.to_string());
            let complaints = complaints.join().unwrap_or_default();
            let last = complaints.lines().rfind(|line| !line.trim().is_empty());
            let said = last.map_or(String::new(), |line| format!(": {line}"));
            match at {
                Some(at) => Ended::At(at, format!("its process ended with {status}{said}")),
                None => Ended::Never(format!("the process for them ended with {status}{said}")),
            }
        }
    }
}

/// Hears a process until it's done, silent or gone.
fn listen(
    events: &Receiver<Event>,
    running: Duration,
    cases: usize,
    tell: &mut dyn FnMut(&Event),
) -> Heard {
    let (mut at, mut patience) = (None, COMPILING);
    loop {
        let event = match events.recv_timeout(patience) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => return Heard::Silence(at),
            Err(RecvTimeoutError::Disconnected) => return Heard::End(at),
        };
        tell(&event);
        match event {
            Event::Opened | Event::Answered => patience = COMPILING,
            Event::Running(index) => (at, patience) = (Some(index), running),
            Event::Done(index, wrong) => {
                if wrong.is_some() || index + 1 == cases {
                    return Heard::All;
                }
                // What is compiled next is the next case's.
                (at, patience) = (Some(index + 1), COMPILING);
            }
        }
    }
}

/// What was heard of a process, and the case that it was at.
enum Heard {
    All,
    Silence(Option<usize>),
    End(Option<usize>),
}

/// Runs the cases that stdin asks for, and tells on stdout what happens: all that the process of a [`Program`] does.
///
/// # Errors
/// A request that can't be read, and a device that can't be opened.
pub fn serve_stdin() -> Result<()> {
    let mut asked = vec![];
    io::stdin().read_to_end(&mut asked).map_err(anyhow::Error::from)?;
    let request: Request = serde_json::from_slice(&asked).map_err(anyhow::Error::from)?;
    serve(&request, &mut |event| {
        let line = serde_json::to_string(&event).unwrap_or_default();
        let mut out = io::stdout().lock();
        // Whoever doesn't listen any more has ended.
        let _ = writeln!(out, "{MARK}{line}").and_then(|()| out.flush());
    })
}
