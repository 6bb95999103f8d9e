//! What NVIDIA's compilers make of every kernel, held against the tables `kernels.tsv` and `nvcc.tsv` of backend-cuda; and how much of
//! a GPU's peak the machine code of hot kernels allows, against `bounds.tsv`. Needs
//! no GPU: `cargo xtask kernels` brings the compilers, of the versions that the tables were made with.
//! After a change that is meant, `UPDATE_SNAPSHOTS=1 cargo xtask kernels` rewrites the tables, and their difference is
//! reviewed with the change.
//!
//! A row of a table ends with a hash of all that its kernels are made of: texts, options and compilers. A row with the hash that is
//! stored says what it said then, so its kernels are not compiled again, but for a few rows drawn by the date.

mod bounds;
mod sass;
mod table;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use bounds::{Block, Iteration, MULTIPROCESSORS, Turns};
use conformance::draw::Draw;
use conformance::parallel;
use sass::Listing;
use table::{Stored, hash};
use tightrope_backend_cuda::driver::{Emulated, nvrtc::Nvrtc};
use tightrope_backend_cuda::source::{self, Kernel, MOST_ARGUMENT_BYTES};
use tightrope_backend_cuda::{Cuda, kernels_of, limits};
use tightrope_core::launch::{Launch, Limits};
use tightrope_core::ops::Case;
use tightrope_core::{DType, Op, Rule, Type};
use tightrope_nn::{ModelConfig, Planned, Precision, TrainerConfig};

/// GPUs that run the same kernels.
struct Generation {
    /// As compilers name them.
    architectures: &'static [&'static str],
    /// The same for nvcc, which reads a text once for all that have the instructions of the oldest.
    generate: &'static [&'static str],
    /// What their tensor cores multiply.
    tensor_cores: &'static [DType],
    /// Multiprocessors of one, where they multiply for warpgroups.
    wgmma: Option<u32>,
    /// In which models are trained.
    narrow: Precision,
    /// Whether their kernels begin before those before them have ended.
    early: bool,
}

/// Turing; then Ampere of data centres and of desks, and Ada; then Hopper with the instructions that only it has; then Blackwell of data
/// centres and of desks.
static GENERATIONS: [Generation; 4] = [
    Generation {
        architectures: &["sm_75"],
        generate: &["--generate-code=arch=compute_75,code=sm_75"],
        tensor_cores: &[DType::F16],
        wgmma: None,
        narrow: Precision::F16,
        early: false,
    },
    Generation {
        architectures: &["sm_80", "sm_86", "sm_89"],
        generate: &["--generate-code=arch=compute_80,code=[sm_80,sm_86,sm_89]"],
        tensor_cores: &[DType::BF16, DType::F16],
        wgmma: None,
        narrow: Precision::BF16,
        early: false,
    },
    Generation {
        architectures: &["sm_90a"],
        generate: &["--generate-code=arch=compute_90a,code=sm_90a"],
        tensor_cores: &[DType::BF16, DType::F16],
        wgmma: Some(132),
        narrow: Precision::BF16,
        early: true,
    },
    Generation {
        architectures: &["sm_100", "sm_120"],
        generate: &[
            "--generate-code=arch=compute_100,code=sm_100",
            "--generate-code=arch=compute_120,code=sm_120",
        ],
        tensor_cores: &[DType::BF16, DType::F16],
        wgmma: None,
        narrow: Precision::BF16,
        early: true,
    },
];

impl Generation {
    fn limits(&self) -> Limits {
        limits().with_cuda(|own| (own.tensor_cores, own.wgmma) = (self.tensor_cores, self.wgmma))
    }

    fn multiplies_tf32(&self) -> bool {
        self.tensor_cores.contains(&DType::BF16)
    }
}

fn launches(limits: &Limits, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> Vec<Launch> {
    op.launch(limits, inputs, outputs).map_or(vec![], |launches| launches.list)
}

/// Launches of the core's cases.
fn of_cases(limits: &Limits) -> Vec<Launch> {
    let of_case = |case: &Case| {
        let inputs: Vec<&Type> = case.inputs.iter().map(|sample| &sample.ty).collect();
        let outputs = case.op.infer(&inputs).expect("cases are valid");
        launches(limits, &case.op, &inputs, &outputs.iter().collect::<Vec<_>>())
    };
    Op::all_cases().iter().flat_map(of_case).collect()
}

/// Launches of a training step of a model, which has wider tiles and heads than cases have.
fn of_model(limits: &Limits, model: ModelConfig, precision: Precision) -> Vec<Launch> {
    let config = TrainerConfig {
        precision,
        batch: 16,
        micro_batch: 8,
        ..TrainerConfig::new(model.build(model.context.min(1024)).expect("a model"))
    };
    let device = Cuda::new(Box::new(Emulated::new(env!("CARGO_TARGET_TMPDIR"), 0)));
    let plan = Planned::new(&config, &device).expect("a plan").plan;
    let nodes = plan.graph.programs.iter().flat_map(|program| &program.nodes);
    let of_node = |node| {
        let (inputs, outputs) = plan.graph.types(node);
        launches(limits, &node.op, &inputs, &outputs)
    };
    nodes.flat_map(of_node).collect()
}

fn gpt2() -> ModelConfig {
    tightrope_nn::preset("gpt2").expect("a preset")
}

/// Llama with heads of 128 channels, as its larger models have.
fn llama() -> ModelConfig {
    let llama = tightrope_nn::preset("llama-1.1b").expect("a preset");
    ModelConfig { heads: llama.channels / 128, ..llama }
}

/// Launches of models as they are trained.
fn of_models(generation: &Generation) -> Vec<Launch> {
    let exact = generation.limits();
    let rounded =
        generation.multiplies_tf32().then(|| exact.clone().with_cuda(|own| own.tf32 = true));
    [
        of_model(&exact, gpt2(), Precision::F32),
        rounded.map_or(vec![], |limits| of_model(&limits, gpt2(), Precision::F32)),
        of_model(&exact, gpt2(), generation.narrow),
        of_model(&exact, llama(), generation.narrow),
    ]
    .concat()
}

/// A kernel, and whether training spends its time in such.
struct Tried {
    kernel: Kernel,
    hot: bool,
}

/// Different kernels, by file and entry.
fn kernels(generation: &Generation) -> Vec<Tried> {
    let mut seen = HashSet::new();
    let mut kernels = vec![];
    // Those of models first: a case's that is the same is hot.
    for (hot, launches) in [(true, of_models(generation)), (false, of_cases(&generation.limits()))]
    {
        for kernel in kernels_of(&launches, MOST_ARGUMENT_BYTES).expect("kernels") {
            if seen.insert(kernel.clone()) {
                kernels.push(Tried { kernel, hot });
            }
        }
    }
    kernels.sort_by(|a, b| a.kernel.label.cmp(&b.kernel.label));
    kernels
}

/// What the assembler says of a kernel, or the most of several.
#[derive(Clone, Copy, Default)]
struct Use {
    registers: u64,
    shared: u64,
    stack: u64,
    spilled: u64,
}

impl Use {
    fn of(log: &str) -> Self {
        Self {
            registers: before(log, " registers"),
            shared: before(log, " bytes smem"),
            stack: before(log, " bytes stack frame"),
            spilled: before(log, " bytes spill stores"),
        }
    }

    fn most(self, other: Self) -> Self {
        Self {
            registers: self.registers.max(other.registers),
            shared: self.shared.max(other.shared),
            stack: self.stack.max(other.stack),
            spilled: self.spilled.max(other.spilled),
        }
    }
}

/// The number before `unit` in the assembler's words.
fn before(log: &str, unit: &str) -> u64 {
    let numbers = log.match_indices(unit).filter_map(|(at, _)| {
        let start = log[..at].rfind(|c: char| !c.is_ascii_digit()).map_or(0, |before| before + 1);
        log[start..at].parse().ok()
    });
    numbers.max().unwrap_or(0)
}

/// The variants of an entry that are compiled with the same options.
struct Row<'a> {
    generation: &'static Generation,
    /// Architectures, as the table names them.
    architecture: String,
    label: &'a str,
    variants: Vec<&'a Tried>,
    hash: String,
}

impl Row<'_> {
    fn key(&self) -> String {
        format!("{}\t{}", self.architecture, self.label)
    }
}

/// The rows of a table, of the kernels of each generation. `targets` gives the architectures that a compiler is run for, and its
/// options.
fn rows(
    of_generations: &[Vec<Tried>],
    targets: impl Fn(&Generation) -> Vec<(String, String)>,
) -> Vec<Row<'_>> {
    let compilers = std::env::var("CUDA_WHEELS").expect("CUDA_WHEELS names the compilers");
    let mut rows = vec![];
    for (generation, tried) in GENERATIONS.iter().zip(of_generations) {
        for (architecture, options) in targets(generation) {
            // Kernels of an entry are neighbours.
            for variants in tried.chunk_by(|a, b| a.kernel.label == b.kernel.label) {
                let origin = |Tried { kernel, hot }: &Tried| {
                    format!("{hot} {}", source::for_device(&[kernel], generation.early))
                };
                let mut origins: Vec<String> = variants.iter().map(origin).collect();
                origins.sort();
                let hash = hash([&compilers, &options].into_iter().chain(&origins));
                rows.push(Row {
                    generation,
                    architecture: architecture.clone(),
                    label: &variants[0].kernel.label,
                    variants: variants.iter().collect(),
                    hash,
                });
            }
        }
    }
    rows
}

/// Rows that are compiled: those that aren't known, and so many of the others, drawn by the date.
fn compiled<'a>(stored: &Stored, rows: &'a [Row<'a>], drawn: usize) -> Vec<&'a Row<'a>> {
    let is_known = |row: &&Row<'_>| stored.row(&row.key(), &row.hash).is_some();
    let (known, mut compiled): (Vec<_>, Vec<_>) = rows.iter().partition(is_known);
    println!("{} of {} rows of {stored} are known", known.len(), rows.len());
    compiled.extend(Draw::of_today().some("known rows", known, drawn));
    compiled
}

/// Known rows that are compiled again each day, by NVRTC and by nvcc.
const DRAWN: [usize; 2] = [6, 3];

#[test]
#[ignore = "needs NVRTC: `cargo xtask kernels` brings it"]
fn nvrtc_makes_of_kernels_what_the_table_says() {
    let nvrtc = Nvrtc::open().expect("NVRTC");
    let (major, minor) = nvrtc.version();
    let stored = Stored::open(
        "kernels.tsv",
        format!(
            "# NVRTC {major}.{minor}; the largest of each entry's variants\n\
             architecture\tkernel\tvariants\tthreads\tregisters\tshared bytes\tstack bytes\tspilled bytes\thash"
        ),
    );
    let tried = GENERATIONS.each_ref().map(kernels);
    let rows = rows(&tried, |generation| {
        let target = |name: &&str| ((*name).to_owned(), Nvrtc::options(name).join(" "));
        generation.architectures.iter().map(target).collect()
    });
    let of_row = |row| {
        let Row { variants, .. }: &Row<'_> = row;
        variants.iter().map(move |tried| (row, *tried))
    };
    let jobs: Vec<_> = compiled(&stored, &rows, DRAWN[0]).into_iter().flat_map(of_row).collect();
    let uses =
        parallel::map(&jobs, |(Row { architecture, generation, .. }, Tried { kernel, .. })| {
            let compiled =
                nvrtc.compile(&source::for_device(&[kernel], generation.early), architecture);
            compiled.map_err(|log| format!("{} for {architecture}: {log}", kernel.label))
        });
    let mut most_of: BTreeMap<String, (u32, Use)> = BTreeMap::new();
    let mut spilling = String::new();
    for ((row, Tried { kernel, hot }), compiled) in jobs.iter().zip(uses) {
        let log = compiled.unwrap_or_else(|words| panic!("{words}")).log;
        // Of matmuls that wait for each other, or registers that no thread gets.
        assert!(!log.contains("Performance Loss") && !log.contains("setmaxnreg"), "{log}");
        let said = Use::of(&log);
        let of_variant = Use { shared: said.shared + u64::from(kernel.shared_bytes), ..said };
        let (threads, most) = most_of.entry(row.key()).or_default();
        (*threads, *most) = ((*threads).max(kernel.threads), most.most(of_variant));
        if *hot && of_variant.spilled > 0 {
            let Kernel { label, text, .. } = kernel;
            let constants = text.lines().take_while(|line| line.starts_with("constexpr"));
            let constants = constants.collect::<Vec<_>>().join("\n  ");
            writeln!(spilling, "{label} for {}:\n  {constants}", row.architecture)
                .expect("a String");
        }
    }
    assert!(spilling.is_empty(), "registers spill in\n{spilling}");
    let line = |row: &Row<'_>| {
        let (key, count) = (row.key(), row.variants.len());
        let Some((threads, most)) = most_of.get(&key) else {
            return stored.row(&key, &row.hash).expect("what isn't compiled is known").to_owned();
        };
        let Use { registers, shared, stack, spilled } = most;
        let hash = &row.hash;
        format!("{key}\t{count}\t{threads}\t{registers}\t{shared}\t{stack}\t{spilled}\t{hash}")
    };
    stored.compare(rows.iter().map(line).collect());
}

/// Kernels that nvcc compiles together, so that what comes before them is read once.
const TOGETHER: usize = 32;
const NVCC_OPTIONS: [&str; 3] = ["--std=c++17", "--fatbin", "--ptxas-options=-v"];

#[test]
#[ignore = "needs nvcc: `cargo xtask kernels` brings it"]
fn nvcc_compiles_every_kernel() {
    let home = std::env::var_os("NVCC_HOME").expect("NVCC_HOME is the folder of nvcc's bin");
    let nvcc = PathBuf::from(home).join("bin/nvcc");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("nvcc");
    std::fs::create_dir_all(&folder).expect("a folder");
    let stored = Stored::open(
        "nvcc.tsv",
        "# What nvcc compiles, and without spilling registers where training runs it\n\
         architectures\tkernel\tvariants\thash"
            .to_owned(),
    );
    let tried = GENERATIONS.each_ref().map(kernels);
    let rows = rows(&tried, |generation| {
        let options = [&NVCC_OPTIONS[..], generation.generate].concat();
        vec![(generation.architectures.join(","), options.join(" "))]
    });
    let mut groups: Vec<(&Generation, Vec<&Tried>)> = vec![];
    let compiled = compiled(&stored, &rows, DRAWN[1]);
    for generation in &GENERATIONS {
        let of_generation = compiled.iter().filter(|row| std::ptr::eq(row.generation, generation));
        let (hot, cold): (Vec<&Tried>, Vec<&Tried>) =
            of_generation.flat_map(|row| &row.variants).partition(|tried| tried.hot);
        for tried in [hot, cold] {
            groups.extend(tried.chunks(TOGETHER).map(|group| (generation, group.to_vec())));
        }
    }
    let groups: Vec<_> = groups.iter().enumerate().collect();
    let problems = parallel::map(&groups, |(index, (generation, group))| {
        let kernels: Vec<&Kernel> = group.iter().map(|tried| &tried.kernel).collect();
        let text = folder.join(format!("{index}.cu"));
        std::fs::write(&text, source::for_device(&kernels, generation.early)).expect("a file");
        let output = Command::new(&nvcc)
            .args(NVCC_OPTIONS)
            .args(generation.generate)
            .args([Path::new("--output-file"), &text.with_extension("fatbin"), &text])
            .output()
            .expect("nvcc");
        let said = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return said.into_owned();
        }
        // So begins what the assembler says of one kernel for one architecture.
        let of_kernels: Vec<&str> = said.split("Compiling entry function").skip(1).collect();
        assert_eq!(of_kernels.len(), group.len() * generation.architectures.len(), "{said}");
        let spills = |of_kernel: &&str| group[0].hot && Use::of(of_kernel).spilled > 0;
        let words = of_kernels.into_iter().filter(spills);
        words.map(|words| format!("registers spill in {}:{words}", text.display())).collect()
    });
    assert!(problems.iter().all(String::is_empty), "{}", problems.concat());
    let line = |row: &Row<'_>| format!("{}\t{}\t{}", row.key(), row.variants.len(), row.hash);
    stored.compare(rows.iter().map(line).collect());
}

/// Kernels whose bounds are of interest, and constants that tell their variants apart.
const HOT: [(&str, &[&str]); 8] = [
    ("attention_mma.", &["HEAD_DIM"]),
    ("attention_wgmma.", &["HEAD_DIM"]),
    ("attention_wgmma_grad.", &["HEAD_DIM"]),
    ("cross_entropy.normalise", &["GRADIENT"]),
    ("matmul_mma.mma", &["TILE_M", "TILE_N", "TILE_K", "LHS_TRANSPOSED", "RHS_TRANSPOSED"]),
    (
        "matmul_wgmma.wgmma",
        &[
            "TILE_M",
            "TILE_N",
            "TILE_K",
            "LHS_TRANSPOSED",
            "RHS_TRANSPOSED",
            "SUMS_LHS",
            "CLUSTER",
            "OUT_BOXED",
            "EPILOGUE",
        ],
    ),
    ("norm.layer_forward", &["COLUMNS"]),
    ("norm.layer_gradients", &["COLUMNS"]),
];

/// A constant of a kernel's text.
fn constant<'a>(kernel: &'a Kernel, name: &str) -> Option<&'a str> {
    let line = format!("constexpr unsigned {name} = ");
    let rest = kernel.text.lines().find_map(|text| text.strip_prefix(&line))?;
    Some(rest.trim_end_matches(';'))
}

/// The constants that tell a hot kernel from its other variants.
fn variant(kernel: &Kernel) -> Option<String> {
    let (_, names) = HOT.iter().find(|(label, _)| kernel.label.starts_with(label))?;
    let value = |name: &&str| Some(format!("{}={}", name.to_lowercase(), constant(kernel, name)?));
    Some(names.iter().filter_map(value).collect::<Vec<_>>().join(" "))
}

/// How matmuls by warpgroups make tiles with the fewest summed indices that GPT-2 124M has, its channels. Gradients of weights sum over
/// many more, the batch's rows.
fn turns(kernel: &Kernel) -> Option<Turns> {
    let number = |name| constant(kernel, name)?.parse::<u64>().ok();
    if !kernel.label.starts_with("matmul_wgmma") || number("LHS_TRANSPOSED") != Some(0) {
        return None;
    }
    let stages = number("STAGES")?;
    let iterations = gpt2().channels as u64 / number("TILE_K")?;
    Some(Turns { iterations, ahead: stages / 2 })
}

/// The machine code of a kernel, as the disassembler prints it.
fn disassembled(code: &[u8], index: usize) -> Listing {
    let disassembler = std::env::var_os("NVDISASM").expect("NVDISASM is the disassembler");
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{index}.cubin"));
    std::fs::write(&file, code).expect("a file");
    let output = Command::new(disassembler).arg("-c").arg(&file).output().expect("nvdisasm");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Listing::of(&String::from_utf8(output.stdout).expect("text"))
}

#[test]
#[ignore = "needs NVRTC and nvdisasm: `cargo xtask kernels` brings them"]
fn machine_code_of_hot_kernels_has_the_bounds_of_the_table() {
    let nvrtc = Nvrtc::open().expect("NVRTC");
    let stored = Stored::open(
        "bounds.tsv",
        format!(
            "# One iteration of hot kernels' inner loop, of GPT-2 124M in bf16, and of attention with heads of 128 channels: a warp's instructions and bytes, a multiprocessor's cycles \
             for four warps, and the most of the peak that follows; tiles are whole ones of 768 summed indices. These are bounds, not measurements.\n\
             architecture\tkernel\tvariant\t{}\thash",
            bounds::COLUMNS
        ),
    );
    let compilers = std::env::var("CUDA_WHEELS").expect("CUDA_WHEELS names the compilers");
    let disassembler = std::env::var("NVDISASM_WHEEL").expect("NVDISASM_WHEEL names its version");
    // How machine code is read decides what a row says, too.
    let readers = [include_str!("sass.rs"), include_str!("bounds.rs")].map(str::to_owned);
    let mut jobs = BTreeMap::new();
    for multiprocessor in &MULTIPROCESSORS {
        let architecture = multiprocessor.architecture;
        let is_its = |of: &&Generation| of.architectures.contains(&architecture);
        let generation = GENERATIONS.iter().find(is_its).expect("a generation");
        let mut launches = of_model(&generation.limits(), gpt2(), generation.narrow);
        let mut wider = of_model(&generation.limits(), llama(), generation.narrow);
        wider.retain(|launch| launch.kernel.starts_with("attention_"));
        launches.append(&mut wider);
        for kernel in kernels_of(&launches, MOST_ARGUMENT_BYTES).expect("kernels") {
            let Some(variant) = variant(&kernel) else { continue };
            let text = source::for_device(&[&kernel], generation.early);
            let hash = hash([&compilers, &disassembler, &text].into_iter().chain(&readers));
            let key = format!("{architecture}\t{}\t{variant}", kernel.label);
            // Of those that differ in nothing that is told, the first.
            jobs.entry(key).or_insert((multiprocessor, kernel, text, hash));
        }
    }
    let jobs: Vec<_> = jobs.into_iter().enumerate().collect();
    let rows = parallel::map(&jobs, |(index, (key, (multiprocessor, kernel, text, hash)))| {
        if let Some(row) = stored.row(key, hash) {
            return row.to_owned();
        }
        let compiled = nvrtc.compile(text, multiprocessor.architecture);
        let compiled = compiled.unwrap_or_else(|log| panic!("{key}: {log}"));
        let listing = disassembled(&compiled.code, *index);
        let said = Use::of(&compiled.log);
        let block = Block {
            threads: kernel.threads.into(),
            registers: said.registers,
            shared: said.shared + u64::from(kernel.shared_bytes),
        };
        let (iteration, around) =
            (Iteration::of(&listing.iteration()), Iteration::around(&listing));
        let row = iteration.row(&around, turns(kernel), block, multiprocessor);
        format!("{key}\t{row}\t{hash}")
    });
    stored.compare(rows);
}
