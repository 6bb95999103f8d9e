//! A rank whose network is cut: the others name it, it names another, and the run goes on from its checkpoint to the bits of one that
//! nothing befell. Ranks meet by TCP, as torchrun starts them, in two networks of this machine's own.

use std::io::{BufRead, BufReader, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use super::faults::{IMPATIENT, SAVED_EVERY, STEPS, drawn, settings, steps_made, words};
use super::{Folder, MPIS, TIGHTROPE, described, ranks, said, text, weights};

/// Cases of a day, and all of them.
const DRAWN: u64 = 1;
const ALL: u64 = 20;
const COUNT: u64 = 3;
/// The lost rank's address, and that of the others.
const FAR: &str = "10.7.0.2";
const NEAR: &str = "10.7.0.1";
/// Within which all have ended: their time-out of 5 s, and what it takes to be sure and to end.
const SOON: Duration = Duration::from_secs(15);

/// Makes a second network with one link to this process's, and says which process is in it. The first line of input cuts the link; all is
/// gone when the input ends.
const NETWORKS: &str = r#"
set -e
ip link set lo up
unshare --net sleep 1000 & far=$!
trap 'kill $far' EXIT
own=$(readlink /proc/self/ns/net)
until [ "$(readlink /proc/$far/ns/net)" != "$own" ]; do sleep 0.01; done
ip link add name near type veth peer name far
ip link set far netns $far
ip address add 10.7.0.1/24 dev near
ip link set near up
there() { nsenter --net=/proc/$far/ns/net "$@"; }
there ip address add 10.7.0.2/24 dev far
there ip link set far up
there ip link set lo up
echo $far
read -r cut
ip link set near down
echo cut
read -r end || true
"#;

/// Two networks with a link between them.
struct Networks {
    script: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// A process in each: of the others, and of the lost rank.
    processes: [u32; 2],
    /// Whether this user may make networks without being another one.
    is_root: bool,
}

impl Networks {
    fn new() -> Self {
        let is_root = fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
        let mut command = Command::new("unshare");
        command.args((!is_root).then_some("--map-root-user")).args(["--net", "sh", "-c", NETWORKS]);
        let path = env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = command.spawn().expect("unshare");
        let mut output = BufReader::new(script.stdout.take().expect("a pipe"));
        let (input, near) = (script.stdin.take(), script.id());
        let far = line(&mut output).parse().expect("two networks: `ip` of iproute2 makes them");
        Self { script, input, output, processes: [near, far], is_root }
    }

    /// `tightrope train` as a rank: the lost one, or one of the others.
    fn rank(&self, rank: u64, lost: u64, words: &[&str]) -> Child {
        let process = self.processes[usize::from(rank == lost)];
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{process}/ns/net"));
        if !self.is_root {
            command.args([&format!("--user=/proc/{process}/ns/user"), "--preserve-credentials"]);
        }
        command.args([TIGHTROPE, "train"]);
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("WORLD_SIZE", COUNT.to_string()).env("LOCAL_WORLD_SIZE", COUNT.to_string());
        command.env("MASTER_ADDR", if lost == 0 { FAR } else { NEAR }).env("MASTER_PORT", "29500");
        // They're on several machines, as far as they know.
        command.env("TIGHTROPE_SECRET", "of the ranks of this test");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        described(command, words).spawn().expect("nsenter")
    }

    /// Cuts the link.
    fn cut(&mut self) {
        let input = self.input.as_mut().expect("a pipe");
        input.write_all(b"cut\n").expect("a script that listens");
        assert_eq!(line(&mut self.output), "cut");
    }
}

impl Drop for Networks {
    fn drop(&mut self) {
        drop(self.input.take());
        // Whatever it says, all of it is gone.
        let _ = self.script.wait();
    }
}

fn line(output: &mut impl BufRead) -> String {
    let mut line = String::new();
    output.read_line(&mut line).expect("a script that speaks");
    line.trim().to_owned()
}

#[test]
#[ignore = "needs MPI, and networks of its own: cargo xtask mpi"]
fn a_rank_whose_network_is_cut_is_named_and_the_run_goes_on_to_the_same_bits() {
    let folder = Folder::new();
    let (words, _) = words();
    let cases = if words == "all" { ALL } else { DRAWN };
    println!("{cases} of {ALL} cut networks drawn by {words}: TIGHTROPE_DRAW={words}");
    let (steps, every) = (STEPS.to_string(), SAVED_EVERY.to_string());
    // Where gradients are summed pass by pass, any number of ranks makes the same steps.
    let (undisturbed, out) = folder.run("undisturbed");
    said(ranks(MPIS[0], 2, &settings("2", &out, &steps, &every)));
    for case in 0..cases {
        let draw = |what, below| drawn(&words, case, what, below);
        let (lost, shard) = (draw("cut rank", COUNT), 2 + draw("cut shard", 2));
        // A checkpoint is there, and steps are left.
        let at = SAVED_EVERY + 3 + draw("cut step", STEPS - SAVED_EVERY - 8);
        let what = format!("case {case}: shard {shard}, rank {lost} cut off at {at}");
        println!("{what}");
        let (run, out) = folder.run(&format!("cut-{case}"));
        let shard = shard.to_string();
        let mut networks = Networks::new();
        let mut own = settings(&shard, &out, &steps, &every);
        own.extend(IMPATIENT);
        let started: Vec<Child> = (0..COUNT).map(|rank| networks.rank(rank, lost, &own)).collect();
        let since = Instant::now();
        while steps_made(&run) < at {
            assert!(since.elapsed() < Duration::from_secs(120), "{what}: no steps");
            thread::sleep(Duration::from_millis(5));
        }
        networks.cut();
        let since = Instant::now();
        for (rank, child) in (0..).zip(started) {
            let Output { status, stderr, .. } = child.wait_with_output().expect("a process");
            let errors = text(&stderr);
            assert!(!status.success(), "{what}, rank {rank}: {errors}");
            let named = (0..COUNT).find(|named| errors.contains(&format!("error: rank {named}:")));
            match rank == lost {
                true => assert!(named.is_some_and(|named| named != lost), "{what}: {errors}"),
                false => assert_eq!(named, Some(lost), "{what}, rank {rank}: {errors}"),
            }
        }
        assert!(since.elapsed() < SOON, "{what}: ended after {:?}", since.elapsed());

        let count = 2 + draw("others", 3) as usize;
        said(ranks(MPIS[case as usize % 2], count, &["--resume", &out, "--rank-timeout", "60"]));
        assert!(weights(&run, STEPS) == weights(&undisturbed, STEPS), "{what}: other weights");
    }
}
