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
//! assert_eq!(known.measured(), known.origin() == "from rates measured on this device");
//! # Ok::<(), tightrope::Error>(())
//! ```

#[cfg(not(target_family = "wasm"))]
mod measure;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tightrope_core::{Backend, DeviceKind};
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
    /// Whether they were measured on this device.
    pub fn measured(&self) -> bool {
        self.source == Source::Measured
    }

    /// Where they are from, for people.
    pub fn origin(&self) -> &'static str {
        match self.source {
            Source::Measured => "from rates measured on this device",
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
    version: String,
    by_precision: BTreeMap<String, Rates>,
}

/// Rates of devices, and the folder they are kept in.
#[derive(Clone, Debug, PartialEq)]
pub struct Store {
    folder: Option<PathBuf>,
    /// FLOP/s of matmuls, where they were timed already.
    matmul: Option<f64>,
    /// What connects devices to each other.
    interconnect: Interconnect,
}

impl Store {
    /// That of this user.
    pub fn of_user() -> Self {
        Self { folder: machine::cache_folder(), matmul: None, interconnect: Interconnect::Auto }
    }

    /// That of a device whose matmuls were timed when it was opened, at `matmul` FLOP/s: everything else is taken to be as
    /// much faster or slower than by default.
    pub fn of_timed(matmul: f64) -> Self {
        Self { folder: None, matmul: Some(matmul), interconnect: Interconnect::Auto }
    }

    /// The same, with devices that are connected so.
    pub fn connected(self, interconnect: Interconnect) -> Self {
        Self { interconnect, ..self }
    }

    /// The rates of a device: those kept, else default ones.
    pub fn known(&self, device: &dyn Backend, precision: Precision, threads: usize) -> Known {
        let kept = self.read(device);
        let kept = kept.and_then(|kept| kept.by_precision.get(key(precision)).copied());
        let kept = kept.filter(Rates::plausible);
        match kept {
            Some(rates) => self.of(device, rates, Source::Measured),
            None => self.unmeasured(device, precision, threads),
        }
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

    /// What is kept of this device and this version; a file that can't be read is none.
    fn read(&self, device: &dyn Backend) -> Option<Kept> {
        let bytes = fs::read(self.file(device)?).ok()?;
        let kept: Kept = serde_json::from_slice(&bytes).ok()?;
        (kept.device == identity(device) && kept.version == VERSION).then_some(kept)
    }
}

/// Rates are of this version's kernels.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The card that a device is, where it's listed. A browser doesn't say.
fn card(device: &dyn Backend) -> Option<&'static Card> {
    let is_card = cfg!(not(target_family = "wasm")) && device.kind() == DeviceKind::Cuda;
    is_card.then(|| Card::of_device(&device.name())).flatten()
}

fn key(precision: Precision) -> &'static str {
    precision.dtype().name()
}

/// What tells devices apart, also where several machines share a folder.
fn identity(device: &dyn Backend) -> String {
    format!("{} in {}", device.name(), machine::model())
}

#[cfg(test)]
mod tests {
    use tightrope_backend_cpu::Cpu;

    use super::*;

    const EMPTY: Store = Store { folder: None, matmul: None, interconnect: Interconnect::Auto };

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
            kept["by_precision"]["f32"]["matmul"] = serde_json::from_str(damaged).unwrap();
            fs::write(&file, kept.to_string()).unwrap();
            assert!(!store.known(&cpu, Precision::F32, 1).measured(), "{damaged}");
            assert!(store.measured(&mut cpu, Precision::F32, 1).measured());
        }
        let none = EMPTY;
        assert!(!none.known(&cpu, Precision::F32, 1).measured());
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
        fn run(&mut self, program: usize, steps: std::ops::Range<usize>) -> Outcome {
            self.0.run(program, steps)
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
