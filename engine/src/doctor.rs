//! What this machine has, and the largest preset that fits it.
//!
//! ```
//! use tightrope::doctor::Findings;
//!
//! let findings = Findings::look()?;
//! println!("{}", findings.text());
//! assert!(findings.json()["devices"][0]["cores"].as_u64() >= Some(1));
//! # Ok::<(), tightrope::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use serde_json::json;
use tightrope_backend_cpu::fast::gemm::{Element, kernel_name};
use tightrope_backend_cpu::isa::{Isa, Level};
use tightrope_backend_cuda::Cuda;
use tightrope_backend_cuda::matmuls::{Makers, Tally};
use tightrope_backend_wgpu::{Description, adapters};
use tightrope_core::{Backend, Graph, Node};
use tightrope_nn::{Free, Planned, Precision, Rates, TrainerConfig, presets};

use crate::check::{self, Wrong};
use crate::error::Result;
use crate::machine::{CpuQuota, Machine};
use crate::recipe::Step;
use crate::settings::{Device, MicroBatch, Settings};
use crate::units::{human_bytes, human_count, plural};
use crate::{block_on, devices};

/// What to do where there's no GPU.
const NO_ADAPTER: &str = "no GPU through Vulkan, Metal or DX12; on Debian, mesa-vulkan-drivers and libvulkan1 bring drivers";

impl Findings {
    /// Looks at the machine, and plans every preset. One that can't be planned here is left out.
    ///
    /// # Errors
    /// When the CPU refuses its threads.
    pub fn look() -> Result<Self> {
        let machine = Machine::look();
        let (device, isa) = (devices::cpu(0)?, devices::isa()?);
        let fits = presets()
            .iter()
            .filter_map(|preset| Fit::new(preset.name, &*device, machine.memory_free_bytes))
            .collect();
        let gpus = block_on(adapters());
        let cuda = devices::open_cuda(0).map(Nvidia::of);
        let wrong = check::found();
        Ok(Self { device: device.name(), isa, machine, gpus, cuda, wrong, fits })
    }
}

/// Tokens of a sequence that presets are tried with, at most: the contexts of some are for reading more than for training.
const LONGEST: usize = 4096;

/// Whether a preset can be trained, one sequence of its context at a time, or of [`LONGEST`] tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Fit {
    preset: &'static str,
    parameters: u64,
    /// Predicted peak with f32 storage: of the fastest plan that fits, else the smallest there is.
    f32_bytes: u64,
    /// As `f32_bytes`, with bf16 storage.
    bf16_bytes: u64,
    fits_f32: bool,
    fits_bf16: bool,
}

impl Fit {
    /// `None` if the preset can't be planned.
    fn new(preset: &'static str, device: &dyn Backend, free: Option<u64>) -> Option<Self> {
        let mut settings = Settings::default();
        settings.model.preset = Some(preset.to_owned());
        settings.train.batch = Some(1);
        let context = tightrope_nn::preset(preset).ok()?.context;
        settings.model.context = Some(context.min(LONGEST));
        settings.train.micro_batch = MicroBatch::Size(1);
        let Step { config, scope, .. } = Step::of(&settings).ok()?;
        let peak = |precision: Precision| {
            let rates = Rates::of(&device.name(), precision, scope.threads);
            let seconds = |graph: &Graph, node: &Node| rates.seconds(graph, node);
            let config = TrainerConfig { precision, ..config.clone() };
            let budget = free.unwrap_or(u64::MAX);
            let free = Free { loss_chunk: true, ..Free::NONE };
            let within = Planned::within(&config, budget, free, device, &seconds);
            let (found, smallest) = within.ok()?;
            let bytes = found.as_ref().map_or(smallest, |planned| planned.plan.peak_bytes());
            Some((bytes, found.is_some()))
        };
        let (f32_bytes, fits_f32) = peak(Precision::F32)?;
        let (bf16_bytes, fits_bf16) = peak(Precision::BF16)?;
        let parameters = crate::model::parameters(&config);
        Some(Self { preset, parameters, f32_bytes, bf16_bytes, fits_f32, fits_bf16 })
    }
}

/// What a GPU of NVIDIA's says of itself before it has a plan.
#[derive(Debug, Serialize)]
struct Nvidia {
    description: String,
    memory_free_bytes: Option<u64>,
    /// What its context takes.
    outside_bytes: Option<u64>,
    /// The library of matmuls, or what is missing.
    matmuls: String,
    /// Who makes what was timed on it.
    timed: Vec<Faster>,
}

/// How many of what was timed go to either of two ways.
#[derive(Debug, Serialize)]
struct Faster {
    what: &'static str,
    by: BTreeMap<&'static str, usize>,
}

impl Faster {
    fn text(&self) -> String {
        let ways = self.by.iter().map(|(way, count)| format!("{count} by {way}"));
        format!("{} {}", self.what, ways.collect::<Vec<_>>().join(" and "))
    }
}

impl From<Tally> for Faster {
    fn from(Tally { what, usual, other }: Tally) -> Self {
        Self { what, by: BTreeMap::from([usual, other]) }
    }
}

impl Nvidia {
    fn of(mut gpu: Cuda) -> Self {
        let found = gpu.matmuls_by(Makers::Fastest);
        let version = || gpu.library().unwrap_or_default().to_owned();
        Self {
            matmuls: found.map_or_else(|problem| problem, |()| version()),
            timed: gpu.tallies().into_iter().map(Faster::from).collect(),
            description: gpu.name(),
            memory_free_bytes: gpu.free_bytes(),
            outside_bytes: gpu.outside_bytes(),
        }
    }

    fn text(&self) -> String {
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), human_bytes);
        let (free, outside) = (bytes(self.memory_free_bytes), bytes(self.outside_bytes));
        let Self { description, matmuls, .. } = self;
        format!("{description}, {free} free for a plan, {outside} taken by its context; {matmuls}")
    }

    /// What was timed on it, in words; `None` where nothing was.
    fn timed(&self) -> Option<String> {
        let words: Vec<String> = self.timed.iter().map(Faster::text).collect();
        (!words.is_empty()).then(|| format!("as timed: {}", words.join("; ")))
    }
}

/// What a machine has.
pub struct Findings {
    device: String,
    isa: Isa,
    machine: Machine,
    gpus: Vec<Description>,
    /// NVIDIA's first, or why there's none.
    cuda: std::result::Result<Nvidia, String>,
    /// Kernels that were found wrong, each with its device.
    wrong: Vec<(String, Wrong)>,
    fits: Vec<Fit>,
}

impl Findings {
    /// The devices with kernels of their own, as `--device` takes them.
    pub fn gpus(&self) -> Vec<Device> {
        let cuda = self.cuda.is_ok().then_some(Device::Cuda(0));
        cuda.into_iter().chain((0..self.gpus.len()).map(Device::Wgpu)).collect()
    }

    /// The preset with the most parameters of those that fit.
    fn largest(&self, fits: impl Fn(&Fit) -> bool) -> Option<&Fit> {
        self.fits.iter().filter(|fit| fits(fit)).max_by_key(|fit| fit.parameters)
    }

    /// Name of the kernel of matmuls of this type.
    fn kernel(&self, element: Element) -> &'static str {
        kernel_name(self.isa.level(), element, element)
    }

    /// The findings for machines: `version, devices`.
    pub fn json(&self) -> serde_json::Value {
        let name = |fit: Option<&Fit>| fit.map(|fit| fit.preset);
        let mut cpu = json!(self.machine);
        cpu["name"] = "cpu".into();
        cpu["available"] = true.into();
        cpu["description"] = self.device.as_str().into();
        cpu["gemm_kernels"] = json!({
            "f32": self.kernel(Element::F32),
            "bf16": self.kernel(Element::Bf16),
        });
        let available: Vec<Level> = Isa::available().map(Isa::level).collect();
        let set =
            |level: Level| json!({ "name": level.name(), "available": available.contains(&level) });
        cpu["instruction_sets"] = Level::ALL.map(set).into_iter().collect();
        cpu["largest_preset"] = json!({
            "f32": name(self.largest(|fit| fit.fits_f32)),
            "bf16": name(self.largest(|fit| fit.fits_bf16)),
        });
        cpu["presets"] = json!(self.fits);
        let cuda = match &self.cuda {
            Ok(gpu) => {
                let mut device = json!(gpu);
                device["name"] = "cuda".into();
                device["available"] = true.into();
                device
            }
            Err(reason) => json!({ "name": "cuda", "available": false, "reason": reason }),
        };
        let devices: Vec<_> = std::iter::once(cpu).chain(self.gpus_json()).chain([cuda]).collect();
        let wrong = self.wrong.iter().map(|(device, wrong)| {
            let Wrong { variant, kernels, op, reason, .. } = wrong;
            json!({ "device": device, "left_out": variant, "kernels": kernels, "op": op, "reason": reason })
        });
        let wrong: Vec<_> = wrong.collect();
        json!({ "version": env!("CARGO_PKG_VERSION"), "devices": devices, "wrong_kernels": wrong })
    }

    /// The adapters, or one entry that says what to install.
    fn gpus_json(&self) -> Vec<serde_json::Value> {
        if self.gpus.is_empty() {
            return vec![json!({ "name": "wgpu", "available": false, "reason": NO_ADAPTER })];
        }
        let of = |(index, gpu): (usize, &Description)| {
            let mut device = json!({ "name": format!("wgpu:{index}"), "available": true });
            device["description"] = gpu.name.as_str().into();
            device["limits"] = json!(gpu);
            device
        };
        self.gpus.iter().enumerate().map(of).collect()
    }

    /// The findings for people.
    pub fn text(&self) -> String {
        let Machine {
            model,
            cores,
            cpu_quota,
            features,
            caches,
            memory_bytes,
            memory_free_bytes,
            memory_limits,
        } = &self.machine;
        let mut text = String::new();
        let mut line = |name: &str, value: &str| {
            // Writing to a String can't fail.
            let _ = writeln!(text, "{name:<11}{value}");
        };
        let bytes = |bytes: &Option<u64>| bytes.map_or_else(|| "unknown".to_owned(), human_bytes);
        line("cpu", &format!("{model}, {}", plural(*cores, "core", "cores")));
        if let Some(CpuQuota { source, cores }) = cpu_quota {
            line("", &format!("{cores:.2} cores at most, by {source}"));
        }
        line("", &self.device);
        line("", &features.join(" "));
        let shown: Vec<_> = caches
            .iter()
            .map(|cache| format!("L{}{} {}", cache.level, cache.kind, human_bytes(cache.bytes)))
            .collect();
        if !shown.is_empty() {
            line("caches", &shown.join(", "));
        }
        line("memory", &format!("{}, {} free", bytes(memory_bytes), bytes(memory_free_bytes)));
        // The machine's own is said already.
        for limit in memory_limits.iter().filter(|_| memory_limits.len() > 1) {
            line("", &limit.text());
        }
        let [f32, bf16] = [Element::F32, Element::Bf16].map(|element| self.kernel(element));
        line("kernels", &format!("matmuls: f32 {f32}, bf16 {bf16}"));
        for (index, gpu) in self.gpus.iter().enumerate() {
            line(&format!("wgpu:{index}"), &format!("{}, {}, {}", gpu.name, gpu.backend, gpu.kind));
            let (buffer, binding) = (human_bytes(gpu.buffer_bytes), human_bytes(gpu.binding_bytes));
            line("", &format!("buffers of {buffer}, bindings of {binding}"));
        }
        if self.gpus.is_empty() {
            line("wgpu", NO_ADAPTER);
        }
        line("cuda", &self.cuda.as_ref().map_or_else(String::clone, Nvidia::text));
        if let Some(timed) = self.cuda.as_ref().ok().and_then(Nvidia::timed) {
            line("", &timed);
        }
        for (device, wrong) in &self.wrong {
            line("wrong", &format!("{device}: {}", wrong.text()));
        }
        let largest = |fit: Option<&Fit>| fit.map_or("none", |fit| fit.preset);
        line(
            "fits",
            &format!(
                "{} in f32, {} in bf16: the largest presets for the free memory, at batch 1 of at most 4,096 tokens",
                largest(self.largest(|fit| fit.fits_f32)),
                largest(self.largest(|fit| fit.fits_bf16))
            ),
        );
        let _ = writeln!(
            text,
            "\n  {:<14}{:>10}  {:>12}  {:>12}",
            "preset", "parameters", "peak, f32", "peak, bf16"
        );
        for fit in &self.fits {
            let peak = |bytes: u64, fits: bool| {
                format!("{}{}", human_bytes(bytes), if fits { "  " } else { " ✗" })
            };
            let line = format!(
                "  {:<14}{:>10}  {:>12}  {:>12}",
                fit.preset,
                human_count(fit.parameters as f64),
                peak(fit.f32_bytes, fit.fits_f32),
                peak(fit.bf16_bytes, fit.fits_bf16)
            );
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_that_fits_has_room() {
        let device = devices::cpu(0).unwrap();
        let fit = Fit::new("tiny", &*device, Some(1 << 30)).unwrap();
        assert!(fit.fits_f32 && fit.fits_bf16 && fit.f32_bytes < 1 << 30);
        let none = Fit::new("tiny", &*device, Some(1 << 20)).unwrap();
        assert!(!none.fits_f32 && none.f32_bytes > 1 << 20 && none.f32_bytes <= fit.f32_bytes);
    }

    #[test]
    fn the_largest_that_fits_is_named() {
        let fit = |preset, parameters, fits_f32| Fit {
            preset,
            parameters,
            f32_bytes: 8 * parameters,
            bf16_bytes: 4 * parameters,
            fits_f32,
            fits_bf16: true,
        };
        let fits = vec![fit("a", 1, true), fit("c", 3, false), fit("b", 2, true)];
        let found = Findings {
            device: "cpu".to_owned(),
            isa: Isa::PORTABLE,
            machine: Machine::look(),
            gpus: vec![],
            cuda: Err("no driver".into()),
            wrong: vec![],
            fits,
        };
        let object = found.json();
        let cpu = &object["devices"][0];
        assert_eq!(
            (&cpu["largest_preset"]["f32"], &cpu["largest_preset"]["bf16"]),
            (&"b".into(), &"c".into())
        );
        assert_eq!(cpu["available"], true);
        assert_eq!(object["devices"][2]["available"], false);
        let text = found.text();
        assert!(text.contains("b in f32, c in bf16"), "{text}");
        assert_eq!(text.matches('✗').count(), 1, "{text}");
    }

    #[test]
    fn a_gpus_context_is_told_apart_from_what_is_free() {
        let (free, outside) = (Some(100 << 30), Some(512 << 20));
        let gpu = Nvidia {
            description: "cuda (H200)".to_owned(),
            memory_free_bytes: free,
            outside_bytes: outside,
            matmuls: "cuBLASLt 130002".to_owned(),
            timed: vec![
                Faster {
                    what: "matmuls",
                    by: BTreeMap::from([("the project's kernels", 3), ("cuBLASLt", 31)]),
                },
                Faster { what: "attention", by: BTreeMap::from([("warpgroups", 1), ("warps", 0)]) },
            ],
        };
        assert_eq!(
            gpu.text(),
            "cuda (H200), 100 GiB free for a plan, 512 MiB taken by its context; cuBLASLt 130002"
        );
        assert_eq!(
            gpu.timed().as_deref(),
            Some(
                "as timed: matmuls 31 by cuBLASLt and 3 by the project's kernels; \
                 attention 1 by warpgroups and 0 by warps"
            )
        );
    }
}
