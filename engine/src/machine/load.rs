//! Processor time that this process wanted and others had.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use tightrope_data::files::read_system;

/// Counters of the system at a moment, to tell later how busy other programs kept the processor.
///
/// ```
/// use tightrope::machine::Load;
///
/// let load = Load::now();
/// let sum: u64 = (0..1_000_000).sum();
/// // Of the time in which this process could have run, the part that it had to wait.
/// assert!(load.waited().is_none_or(|part| (0.0..=1.0).contains(&part)), "{sum}");
/// ```
#[derive(Debug)]
pub struct Load {
    at: Instant,
    /// Nanoseconds that each thread of this process ran, and that it waited for a processor.
    threads: BTreeMap<String, [u64; 2]>,
    /// Microseconds in which a thread of any process waited for a processor.
    pressure: Option<u64>,
    /// Ticks in which the machine computed or could have, and those that its host took from it.
    ticks: Option<[u64; 2]>,
}

impl Load {
    /// The counters now.
    pub fn now() -> Self {
        Self::of(Path::new("/proc"))
    }

    fn of(proc: &Path) -> Self {
        let read = |path: &Path| read_system(path).ok();
        let tasks = fs::read_dir(proc.join("self/task")).into_iter().flatten().flatten();
        let times = |text: String| {
            let mut words = text.split_whitespace().map(|word| word.parse().ok());
            Some([words.next()??, words.next()??])
        };
        let thread = |task: fs::DirEntry| {
            let times = times(read(&task.path().join("schedstat"))?)?;
            Some((task.file_name().to_string_lossy().into_owned(), times))
        };
        Self {
            at: Instant::now(),
            threads: tasks.filter_map(thread).collect(),
            pressure: read(&proc.join("pressure/cpu")).and_then(|text| pressure(&text)),
            ticks: read(&proc.join("stat")).and_then(|text| ticks(&text)),
        }
    }

    /// Part of the time since then that this process's threads waited for a processor while they could have run, and that the machine's
    /// host took: 0 on a machine that does nothing else; `None` if the system doesn't tell.
    pub fn waited(&self) -> Option<f64> {
        self.until(&Self::now())
    }

    fn until(&self, now: &Self) -> Option<f64> {
        let since = |now: [u64; 2], then: [u64; 2]| {
            [0, 1].map(|index| now[index].saturating_sub(then[index]) as f64)
        };
        let mut sums = [0.0; 2];
        for (thread, times) in &now.threads {
            let own = since(*times, self.threads.get(thread).copied().unwrap_or_default());
            sums.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        let [ran, waited] = sums;
        let part = match (self.pressure, now.pressure) {
            _ if ran + waited > 0.0 => waited / (ran + waited),
            (Some(then), Some(now)) => {
                let elapsed = self.at.elapsed().as_micros().max(1) as f64;
                (now.saturating_sub(then) as f64 / elapsed).min(1.0)
            }
            _ => return None,
        };
        let stolen = self.ticks.zip(now.ticks).map_or(0.0, |(then, now)| {
            let [busy, stolen] = since(now, then);
            stolen / busy.max(1.0)
        });
        Some(1.0 - (1.0 - part) * (1.0 - stolen.min(1.0)))
    }
}

/// True if more threads want a processor now than there are, by the middle one of a few looks.
pub fn is_busy() -> bool {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let mut counts: Vec<usize> = (0..LOOKS)
        .filter_map(|_| {
            std::thread::sleep(BETWEEN);
            running(&read_system("/proc/stat").ok()?)
        })
        .collect();
    counts.sort_unstable();
    counts.get(counts.len() / 2).is_some_and(|&count| count > cores)
}

/// Looks at how many threads run, and the time between two.
const LOOKS: usize = 9;
const BETWEEN: Duration = Duration::from_millis(2);

/// Threads that run or could, this one with them.
fn running(stat: &str) -> Option<usize> {
    stat.lines().find_map(|line| line.strip_prefix("procs_running "))?.trim().parse().ok()
}

/// Microseconds of `some avg10=0.00 avg60=0.00 avg300=0.00 total=12`.
fn pressure(text: &str) -> Option<u64> {
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

/// Ticks of the first line of `/proc/stat`: those in which the machine wasn't idle, and of these, those that its host took.
fn ticks(text: &str) -> Option<[u64; 2]> {
    let line = text.lines().next()?.strip_prefix("cpu ")?;
    let ticks: Vec<u64> = line.split_whitespace().map_while(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; what guests take is part of `user`.
    let all = ticks.get(..8)?.iter().sum::<u64>();
    Some([all - ticks[3] - ticks[4], ticks[7]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(threads: &[(&str, [u64; 2])], ticks: Option<[u64; 2]>) -> Load {
        let threads = threads.iter().map(|(name, times)| ((*name).to_owned(), *times)).collect();
        Load { at: Instant::now(), threads, pressure: None, ticks }
    }

    #[test]
    fn threads_that_wait_and_ticks_that_are_stolen_count() {
        let then = load(&[("1", [100, 50]), ("2", [7, 0])], Some([1000, 10]));
        let now = load(&[("1", [400, 150]), ("3", [100, 0])], Some([1000, 10]));
        // 400 ns ran and 100 waited.
        let waited = |now: &Load| then.until(now).map(|part| (100.0 * part).round());
        assert_eq!(waited(&now), Some(20.0));
        let stolen = Load { ticks: Some([1100, 60]), ..now };
        assert_eq!(waited(&stolen), Some(60.0));
        assert_eq!(load(&[], None).until(&load(&[], None)), None);
        let pressed = |total| Load { pressure: Some(total), ..load(&[], None) };
        assert_eq!(pressed(5).until(&pressed(5)), Some(0.0));
        assert_eq!(pressed(5).until(&pressed(u64::MAX)), Some(1.0));
    }

    #[test]
    fn counters_are_read() {
        let text =
            "some avg10=3.16 avg60=4.93 avg300=5.23 total=34622000\nfull avg10=0.00 total=0\n";
        assert_eq!(pressure(text), Some(34_622_000));
        let text = "cpu  69582 1 8010 72254 460 2 97 496 0 0\ncpu0 1 2 3\n";
        assert_eq!(ticks(text), Some([69582 + 1 + 8010 + 2 + 97 + 496, 496]));
        assert_eq!(running("cpu 1\nprocs_running 3\nprocs_blocked 0\n"), Some(3));
        assert_eq!((pressure("full total=3"), ticks("cpu  1 2 3")), (None, None));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_crowd_of_threads_is_noticed() {
        let load = Load::now();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..4 * cores {
                scope.spawn(|| while load.at.elapsed().as_millis() < 200 {});
            }
            std::thread::sleep(Duration::from_millis(150));
            if load.threads.is_empty() {
                eprintln!("left out: this system counts no time that threads wait");
            } else {
                assert!(load.waited().unwrap() > 0.3, "{:?}", load.waited());
            }
        });
    }
}
