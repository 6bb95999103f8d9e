//! Rates of this machine's devices: measured for a moment, and kept for the next command.
//!
//! ```
//! use tightrope::devices::cpu;
//! use tightrope::nn::Precision;
//! use tightrope::rates::Store;
//!
//! let device = cpu(2)?;
//! let known = Store::of_user().known(&*device, Precision::F32, 2);
//! println!("a step is estimated {}", known.origin());
//! assert_eq!(known.measured(), known.origin().starts_with("from rates measured"));
//! # Ok::<(), tightrope::Error>(())
//! ```

#[cfg(not(target_family = "wasm"))]
mod lone;
#[cfg(not(target_family = "wasm"))]
mod measure;

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tightrope_core::{Backend, DeviceKind};
use tightrope_data::{files, limits};
use tightrope_nn::{Precision, Rates};

use crate::cards::Card;
use crate::interconnect::{Connected, Links};
use crate::machine;
use crate::settings::Interconnect;

/// What the name of a device says whose matmuls round to TF32.
const IN_TF32: &str = "in TF32";

/// Where rates are from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// They were measured on this device.
    Measured,
    /// They were measured on this device while other programs had a part of the processor's time.
    UnderLoad,
    /// They are what kernels may reach of the GPU's published peaks.
    Published,
    /// They are of a machine that is somehow like this one.
    Default,
}

impl Source {
    /// The word for machines.
    pub fn name(self) -> &'static str {
        match self {
            Self::Measured => "measured",
            Self::UnderLoad => "measured under load",
            Self::Published => "published",
            Self::Default => "default",
        }
    }
}

/// Rates, and where they are from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// The rates.
    pub rates: Rates,
    /// Where they are from.
    pub source: Source,
    /// What connects the device to those of other ranks, where that's known.
    pub links: Option<Connected>,
}

impl Known {
    /// True if they were measured on this device.
    pub fn measured(&self) -> bool {
        matches!(self.source, Source::Measured | Source::UnderLoad)
    }

    /// Where they are from, for people.
    pub fn origin(&self) -> &'static str {
        match self.source {
            Source::Measured => "from rates measured on this device",
            Source::UnderLoad => {
                "from rates measured while other programs used the processor; a run on a quiet machine measures them again"
            }
            Source::Published => {
                "from half the published peak of its matmuls and four fifths of its memory's; none was measured"
            }
            Source::Default => {
                "from default rates; `tightrope train` and `tightrope bench` measure this device's"
            }
        }
    }
}

/// What is kept of a device.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    device: String,
    /// Digest of the code that was measured, and that measured it.
    kernels: String,
    by_precision: BTreeMap<String, KeptRates>,
}

/// Rates in the file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct KeptRates {
    rates: Rates,
    trust: Trust,
}

/// Trust in kept rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Trust {
    /// Other programs used the processor while they were measured: a run on a quiet machine measures again.
    UnderLoad,
    /// No run took another time than they predicted.
    New,
    /// A run took another time: the next one measures again.
    Doubted,
    /// They were measured again after a run took another time, and stay.
    Again,
}

/// Rates of devices, and the folder they are kept in.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    folder: Option<PathBuf>,
    /// FLOP/s of matmuls, where they were timed already.
    matmul: Option<f64>,
    /// What connects devices to each other.
    interconnect: Interconnect,
    /// Part of the time that this process may wait for a processor while rates are measured that are kept.
    quiet: f64,
    /// Steps that a processor is measured by.
    steps: Steps,
}

/// Steps by which the rates of a processor are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steps {
    /// All, for estimates of any shape.
    All,
    /// The usual one, for tests of how rates are kept: a debug build takes seconds for each.
    #[cfg(test)]
    Usual,
}

/// The part on a machine that does little else.
const QUIET: f64 = 0.05;

impl Store {
    /// That of this user.
    pub fn of_user() -> Self {
        Self { folder: machine::cache_folder(), ..Self::EMPTY }
    }

    /// One that keeps nothing.
    const EMPTY: Self = Self {
        folder: None,
        matmul: None,
        interconnect: Interconnect::Auto,
        quiet: QUIET,
        steps: Steps::All,
    };

    /// That of a device whose matmuls were timed when it was opened, at `matmul` FLOP/s: everything else is taken to be as
    /// much faster or slower than by default.
    pub fn of_timed(matmul: f64) -> Self {
        Self { matmul: Some(matmul), ..Self::EMPTY }
    }

    /// The same, with devices that are connected so.
    pub fn connected(self, interconnect: Interconnect) -> Self {
        Self { interconnect, ..self }
    }

    /// The rates of a device: those kept, else default ones.
    pub fn known(&self, device: &dyn Backend, precision: Precision, threads: usize) -> Known {
        match self.kept(device, precision) {
            Some(KeptRates { rates, trust: Trust::UnderLoad }) => {
                self.of(device, rates, Source::UnderLoad)
            }
            Some(KeptRates { rates, .. }) => self.of(device, rates, Source::Measured),
            None => self.unmeasured(device, precision, threads),
        }
    }

    fn kept(&self, device: &dyn Backend, precision: Precision) -> Option<KeptRates> {
        let kept = self.read(device)?.by_precision.get(key(precision)).copied();
        kept.filter(|kept| kept.rates.plausible())
    }

    /// Rates of a device, with what connects it to others.
    fn of(&self, device: &dyn Backend, rates: Rates, source: Source) -> Known {
        let card = card(device);
        let links = match self.interconnect {
            // A browser's tab has no others to train with.
            _ if cfg!(target_family = "wasm") => None,
            Interconnect::Auto => card.map(|card| Links::OF_GPU.of(Some(card.links()))),
            Interconnect::Of(links) => Some(links.of(card.map(Card::links))),
        };
        let rates = rates.connected(links.map(|links| links.rates()));
        Known { rates, source, links }
    }

    /// The rates of a device in each of these precisions, all from one source, so that their times can be compared.
    pub fn comparable(
        &self,
        device: &dyn Backend,
        precisions: &[Precision],
        threads: usize,
    ) -> Vec<Known> {
        let known = |&precision: &Precision| self.known(device, precision, threads);
        let found: Vec<Known> = precisions.iter().map(known).collect();
        if found.iter().all(|known| known.source == found[0].source) {
            return found;
        }
        let unmeasured = |&precision: &Precision| self.unmeasured(device, precision, threads);
        precisions.iter().map(unmeasured).collect()
    }

    /// What a device is taken to reach that nothing was measured of.
    fn unmeasured(&self, device: &dyn Backend, precision: Precision, threads: usize) -> Known {
        let name = device.name();
        let in_tf32 = name.contains(IN_TF32);
        if let Some(card) = card(device) {
            return self.of(device, card.rates(precision, in_tf32), Source::Published);
        }
        let capability = device.compute_capability();
        if let Some(capability) = capability.filter(|_| cfg!(not(target_family = "wasm"))) {
            let rates = Card::of_capability(capability).rates(precision, in_tf32);
            return self.of(device, rates, Source::Default);
        }
        let rates = Rates::of(&name, precision, threads);
        let rates = self.matmul.map_or(rates, |matmul| rates.scaled_to(matmul));
        self.of(device, rates, Source::Default)
    }

    fn file(&self, device: &dyn Backend) -> Option<PathBuf> {
        let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
        let name: String = device.name().chars().map(plain).collect();
        let name: Vec<&str> = name.split('-').filter(|word| !word.is_empty()).collect();
        let build = if cfg!(debug_assertions) { "-debug" } else { "" };
        Some(self.folder.as_ref()?.join(format!("rates-{}{build}.json", name.join("-"))))
    }

    /// Reads the file of this device and its kernels; `None` if there's none, or none that can be read.
    fn read(&self, device: &dyn Backend) -> Option<Kept> {
        let bytes = files::read(&self.file(device)?, limits::DESCRIPTION).ok()?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        let is_same = kept.device == identity(device) && kept.kernels == kernels(device.kind());
        is_same.then_some(kept)
    }
}

/// Digest of the code that rates of a kind of device are measured with: its kernels, the costs of ops, and the measuring itself.
pub fn kernels(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Cpu => env!("KERNELS_CPU"),
        DeviceKind::Wgpu => env!("KERNELS_WGPU"),
        DeviceKind::Cuda => env!("KERNELS_CUDA"),
    }
}

/// The card that a device is, where it's listed. A browser doesn't say.
fn card(device: &dyn Backend) -> Option<&'static Card> {
    let is_card = cfg!(not(target_family = "wasm")) && device.kind() == DeviceKind::Cuda;
    is_card.then(|| Card::of_device(&device.name())).flatten()
}

fn key(precision: Precision) -> &'static str {
    precision.dtype().name()
}

/// Identity of a device among those of all machines that share a folder: the device with its threads and its instruction set, the
/// processor, and the cores that this process may use.
fn identity(device: &dyn Backend) -> String {
    let (name, model, features) = (device.name(), machine::model(), machine::features().join(" "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    let cores = machine::cpu_quota().map_or(cores, |quota| quota.cores.min(cores));
    format!("{name} in {model} with {features}, {cores:.2} cores")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tightrope_backend_cpu::Cpu;

    use super::*;

    /// Keeps nothing, whatever else the machine does.
    const EMPTY: Store = Store { quiet: 1.0, steps: Steps::Usual, ..Store::EMPTY };

    #[test]
    fn rates_are_measured_once_and_kept_for_their_device_alone() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Some(dir.path().join("tightrope"));
        let store = Store { folder, ..EMPTY };
        let mut cpu = Cpu::new(1).unwrap();
        let default = store.known(&cpu, Precision::F32, 1);
        assert!(!default.measured() && default.origin().contains("default"));
        let measured = store.measured(&mut cpu, Precision::F32, 1);
        assert!(measured.measured() && measured.rates != default.rates, "{measured:?}");
        assert_eq!(store.known(&cpu, Precision::F32, 1), measured);
        assert_eq!(store.measured(&mut cpu, Precision::F32, 1), measured);
        assert!(!store.known(&cpu, Precision::BF16, 1).measured());
        assert!(!store.known(&Cpu::new(2).unwrap(), Precision::F32, 2).measured());
        let file = store.file(&cpu).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        for broken in [text.replace(&cpu.name(), "another"), text[..text.len() / 2].to_owned()] {
            fs::write(&file, broken).unwrap();
            assert!(!store.known(&cpu, Precision::F32, 1).measured());
        }
        // Numbers that no device has.
        for damaged in ["0.0", "-1.0", "1e-300", "1e300"] {
            let mut kept: serde_json::Value = serde_json::from_str(&text).unwrap();
            kept["by_precision"]["f32"]["rates"]["matmul"] = serde_json::from_str(damaged).unwrap();
            fs::write(&file, kept.to_string()).unwrap();
            assert!(!store.known(&cpu, Precision::F32, 1).measured(), "{damaged}");
            assert!(store.measured(&mut cpu, Precision::F32, 1).measured());
        }
        let none = EMPTY;
        assert!(!none.known(&cpu, Precision::F32, 1).measured());
    }

    /// A file of rates that were measured while other programs ran, or by kernels of before, was used for good: 133 times off.
    #[test]
    #[cfg(target_os = "linux")]
    fn rates_of_a_busy_machine_or_of_other_kernels_are_measured_again() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Some(dir.path().to_owned());
        let store = Store { folder, ..EMPTY };
        let busy = Store { quiet: -1.0, ..store.clone() };
        let mut cpu = Cpu::new(1).unwrap();
        let source = |store: &Store, cpu: &Cpu| store.known(cpu, Precision::F32, 1).source;
        let trust = |cpu: &Cpu| store.kept(cpu, Precision::F32).map(|kept| kept.trust);
        let first = busy.measured(&mut cpu, Precision::F32, 1);
        assert_eq!((first.source, source(&store, &cpu)), (Source::UnderLoad, Source::UnderLoad));
        assert!(first.measured() && first.origin().contains("other programs"));
        store.measure(&mut cpu, Precision::F32, 1);
        assert_eq!((source(&store, &cpu), trust(&cpu)), (Source::Measured, Some(Trust::New)));
        // They aren't replaced by worse ones.
        let kept = store.known(&cpu, Precision::F32, 1);
        assert_eq!(busy.measure(&mut cpu, Precision::F32, 1).source, Source::UnderLoad);
        assert_eq!(store.known(&cpu, Precision::F32, 1), kept);
        let quiet = Store { quiet: QUIET, ..store.clone() };
        let compare = |cpu: &Cpu, seconds, waited| {
            quiet.compare(cpu, Precision::F32, seconds, Some(waited)).unwrap_or_default()
        };
        assert_eq!(compare(&cpu, (0.1, 0.19), 0.0), "");
        assert!(compare(&cpu, (0.1, 0.9), 0.4).contains("for 40 % of the time"));
        assert_eq!(trust(&cpu), Some(Trust::New));
        // A run that is faster than predicted tells, whatever else ran.
        assert!(compare(&cpu, (0.1, 0.01), 0.4).contains("measures them again"));
        assert_eq!(trust(&cpu), Some(Trust::Doubted));
        store.measured(&mut cpu, Precision::F32, 1);
        assert_eq!(trust(&cpu), Some(Trust::Again));
        assert!(compare(&cpu, (0.1, 0.9), 0.0).contains("--profile"));
        assert_eq!(trust(&cpu), Some(Trust::Again));
        let file = store.file(&cpu).unwrap();
        let text = fs::read_to_string(&file).unwrap();
        fs::write(&file, text.replace(kernels(cpu.kind()), "0123456789abcdef")).unwrap();
        assert_eq!(source(&store, &cpu), Source::Default);
    }

    /// A GPU of NVIDIA's that no list of cards has.
    struct Unlisted(Cpu);

    impl tightrope_core::plan::PlannedAs for Unlisted {
        fn planned_as(&self) -> &dyn tightrope_core::plan::Target {
            &self.0
        }
    }

    impl Backend for Unlisted {
        fn name(&self) -> String {
            "cuda (NVIDIA RTX A2000)".into()
        }
        fn kind(&self) -> DeviceKind {
            DeviceKind::Cuda
        }
        fn compute_capability(&self) -> Option<(i32, i32)> {
            Some((8, 6))
        }
        fn prepare(&mut self, plan: std::sync::Arc<tightrope_core::Plan>) -> Outcome {
            self.0.prepare(plan)
        }
        fn allocated_bytes(&self) -> u64 {
            self.0.allocated_bytes()
        }
        fn write(&mut self, at: u64, data: &[u8]) -> Outcome {
            self.0.write(at, data)
        }
        fn run(
            &mut self,
            program: usize,
            steps: std::ops::Range<usize>,
            cancel: &tightrope_core::Cancel,
        ) -> Outcome {
            self.0.run(program, steps, cancel)
        }
        fn read(&mut self, ranges: &[std::ops::Range<u64>]) -> tightrope_core::Reading<'_> {
            self.0.read(ranges)
        }
    }

    type Outcome = Result<(), tightrope_core::DeviceError>;

    #[test]
    fn a_gpu_of_no_list_is_as_fast_as_one_of_its_compute_capability_and_measured_from_there() {
        let store = EMPTY;
        let mut device = Unlisted(Cpu::new(1).unwrap());
        let listed = Card::named("rtx-3060").unwrap();
        for precision in [Precision::F32, Precision::BF16] {
            let known = store.known(&device, precision, 1);
            assert_eq!(known.rates, listed.rates(precision, false));
            assert_eq!(known.source, Source::Default);
        }
        // What no op tells stays as it is on such a GPU: one in a graph begins in two microseconds.
        let measured = store.measure(&mut device, Precision::F32, 1).rates;
        let kept = |rates: &Rates| serde_json::to_value(rates).unwrap()["launch_s"].clone();
        assert_eq!(kept(&measured), kept(&listed.rates(Precision::F32, false)));
        assert_ne!(kept(&measured), kept(&Rates::of("cpu", Precision::F32, 1)));
    }

    #[test]
    fn ranks_are_connected_as_is_said_and_else_as_the_card_is() {
        let device = Unlisted(Cpu::new(1).unwrap());
        let links = |store: &Store| store.known(&device, Precision::F32, 1).links;
        // Nothing is known of a card that isn't listed.
        assert_eq!(links(&EMPTY), None);
        let said = Interconnect::Of("4xpcie4+25gbe".parse().unwrap());
        let store = EMPTY.connected(said);
        assert_eq!(links(&store).unwrap().to_string(), "4xpcie4+25gbe");
        let rates = store.known(&device, Precision::F32, 1).rates;
        assert_eq!(rates.connected(None), EMPTY.known(&device, Precision::F32, 1).rates);
    }

    #[test]
    fn a_device_whose_matmuls_were_timed_is_as_much_faster_in_all() {
        let cpu = Cpu::new(1).unwrap();
        let known = |flops| Store::of_timed(flops).known(&cpu, Precision::F32, 1);
        let default = Rates::of(&cpu.name(), Precision::F32, 1);
        assert_eq!(known(1e9).rates, default.scaled_to(1e9));
        assert!(known(2e9).rates != known(1e9).rates && !known(1e9).measured());
    }
}
