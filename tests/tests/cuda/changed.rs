//! Kernels with changes to their text, emulated: what the device says of them.

use conformance::tolerance::Deviation;
use conformance::{reference, values};
use tightrope_backend_cuda::driver::{Dispatch, Driver, Emulated, Staging, Task};
use tightrope_backend_cuda::source::{self, Kernel};
use tightrope_core::launch::{BINDING_ALIGNMENT, Launch, Limits, Place, Source};
use tightrope_core::ops::Case;
use tightrope_core::{Rule, Type};

use crate::kernels::cache;

/// What is changed.
pub struct Changed<'a> {
    /// Inputs and an op.
    pub case: Case,
    /// Of the device.
    pub limits: Limits,
    /// A kernel file with those that it builds on, the last of which is changed: names and texts.
    pub files: &'a [(&'static str, &'static str)],
    /// Constants of its launches that are other than for good use.
    pub constants: &'a [(&'static str, u32)],
}

/// Orders of threads in which each wrong kernel is tried.
const ORDERS: usize = 3;

/// How far the first output is off, or what is wrong.
pub type Verdict = Result<Deviation, String>;

/// What the emulated device says of a case's launches with changes to the text of one file, each in several orders of threads.
pub fn verdicts(of: &Changed<'_>, changes: &[(&str, &str)]) -> Vec<Vec<Verdict>> {
    let Changed { case, limits, files, constants } = of;
    let inputs: Vec<&Type> = case.inputs.iter().map(|sample| &sample.ty).collect();
    let outputs = case.op.infer(&inputs).expect("a valid case");
    let all: Vec<&Type> = outputs.iter().collect();
    let mut launches = case.op.launch(limits, &inputs, &all).expect("launches");
    let (name, text) = files[files.len() - 1];
    let is_changed = |launch: &Launch| name.strip_suffix(".cu") == Some(launch.kernel);
    for launch in launches.list.iter_mut().filter(|launch| is_changed(launch)) {
        for (name, value) in &mut launch.constants {
            let other = constants.iter().find(|(other, _)| other == name);
            *value = other.map_or(*value, |&(_, other)| other);
        }
    }
    let changed = |(from, to): &(&str, &str)| {
        assert!(text.contains(from), "{from}");
        let text = text.replace(from, to);
        let kernel = |launch: &Launch| {
            if !is_changed(launch) {
                return Kernel::of(launch).expect("a kernel");
            }
            let before = files[..files.len() - 1].iter().copied();
            let files: Vec<_> = before
                .chain([(name, text.as_str())])
                .map(|(name, text)| (name.to_owned(), text))
                .collect();
            Kernel::with_files(launch, &files).expect("a kernel")
        };
        launches.list.iter().map(kernel).collect::<Vec<_>>()
    };
    let kernels: Vec<Kernel> = changes.iter().flat_map(changed).collect();
    let mut driver = Emulated::new(cache(), 7);
    let loaded = driver.load(&kernels).expect("kernels that compile");
    // Inputs, outputs and scratch, one behind the other.
    let sizes = inputs.iter().chain(&all).map(|ty| ty.bytes() as u64);
    let mut starts = vec![0];
    for size in sizes.chain([launches.scratch_bytes]) {
        let end = starts[starts.len() - 1] + size;
        starts.push(end.next_multiple_of(BINDING_ALIGNMENT));
    }
    let base = driver.allocate(starts[starts.len() - 1]).expect("memory");
    let mut staging = Staging::default();
    for (start, bytes) in starts.iter().zip(&values::inputs(case)) {
        staging.write(&mut driver, *start, bytes).expect("room");
    }
    let address = |place: &Place| {
        let tensor = match place.source {
            Source::Input(index) => index,
            Source::Output(index) => inputs.len() + index,
            Source::Scratch => inputs.len() + all.len(),
        };
        base + starts[tensor] + place.bytes().0
    };
    let map = |boxed: &_, address| driver.tensor_map(boxed, address);
    let arguments: Vec<Vec<u8>> = launches
        .list
        .iter()
        .map(|launch| source::arguments(launch, address, map).expect("arguments"))
        .collect();
    let expected = &reference::outputs(case).expect("outputs")[0];
    let expected = values::decode(all[0].dtype, expected);
    let written = starts[inputs.len()]..starts[inputs.len()] + all[0].bytes() as u64;
    let mut once = |loaded: &[_]| {
        let tasks = launches.list.iter().zip(loaded).zip(&arguments);
        for ((launch, &kernel), arguments) in tasks {
            let blocks = launch.most_groups.unwrap_or(u32::MAX).min(launch.groups.end as u32);
            let dispatch = Dispatch { kernel, arguments: arguments.clone(), blocks };
            driver.launch(&Task::Kernel(dispatch)).map_err(|error| error.to_string())?;
        }
        let bytes =
            driver.read(std::slice::from_ref(&written)).map_err(|error| error.to_string())?;
        Ok(Deviation::between(&values::decode(all[0].dtype, &bytes), &expected))
    };
    let each = loaded.chunks(launches.list.len());
    each.map(|loaded| (0..ORDERS).map(|_| once(loaded)).collect()).collect()
}

/// Holds that each change is found whatever the order of threads, in one of these words.
#[track_caller]
pub fn found(of: &Changed<'_>, changes: &[(&str, &str, &[&str])]) {
    let texts: Vec<(&str, &str)> = changes.iter().map(|&(from, to, _)| (from, to)).collect();
    for ((from, _, words), verdicts) in changes.iter().zip(verdicts(of, &texts)) {
        for verdict in verdicts {
            let said = verdict.expect_err(from);
            println!("{said}");
            // What it calls may be in a file that it builds on.
            let of_file = |(name, _): &(&str, &str)| said.contains(&format!("{name}:"));
            assert!(of.files.iter().any(of_file) && said.contains(": thread"), "{said}");
            assert!(words.iter().any(|words| said.contains(words)), "{from}: {said}");
        }
    }
}
