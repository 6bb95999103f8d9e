//! The kernels of ops, to check them, and those that others stand in for.

use std::hash::{DefaultHasher, Hash, Hasher};

use tightrope_core::launch::{CudaLimits, Launch};
use tightrope_core::{KernelUse, Op, Rule as _, Type, Variants};

use crate::library::{Layout, Problem};
use crate::{Cuda, kernels_of, source};

/// Matmuls by Hopper's warpgroups, of blocks that bring each other what both read.
const CLUSTERS: &str = "matmul_wgmma in clusters";
/// Matmuls by Hopper's warpgroups.
const WGMMA: &str = "matmul_wgmma";
/// Matmuls on tensor cores by warps.
const MATMUL_MMA: &str = "matmul_mma";
/// Attention by warpgroups, its gradient, and what readies that.
const ATTENTION_WGMMA: &str = "attention_wgmma";
const OF_ATTENTION_WGMMA: [&str; 3] =
    [ATTENTION_WGMMA, "attention_wgmma_grad", "attention_ordered"];
/// Attention on tensor cores by warps.
const ATTENTION_MMA: &str = "attention_mma";
/// What is done with a matmul in its own pass.
const EPILOGUES: &str = "epilogues";
/// Matmuls by NVIDIA's library.
pub const LIBRARY: &str = "cuBLASLt";

/// In the order in which they're left out: each is replaced by what comes after it, the last by plain kernels.
const ALL: [&str; 7] =
    [LIBRARY, CLUSTERS, WGMMA, MATMUL_MMA, ATTENTION_WGMMA, ATTENTION_MMA, EPILOGUES];

/// Multiprocessors that are taken where they're to be few.
const FEW: u32 = 4;

fn few(own: &mut CudaLimits) {
    own.wgmma = own.wgmma.map(|all| all.min(FEW));
}

fn hashed(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// A matmul of the library as one of its kind, whatever its extents: with the same types, layouts and epilogue.
fn kind(problem: &Problem) -> Problem {
    let of = |layout: Layout| Layout { rows: 0, columns: 0, leading: 0, stride: 0, ..layout };
    let Problem { a, b, d, batch, .. } = *problem;
    Problem { a: of(a), b: of(b), d: of(d), batch: batch.min(2), k: 0, ..*problem }
}

impl Cuda {
    /// The kinds of matmuls that the library may make of these launches.
    fn of_library(&self, launches: &[Launch]) -> Vec<KernelUse> {
        let Some(matmuls) = &self.planning.matmuls else { return vec![] };
        let tf32 = self.planning.limits.cuda().tf32;
        let problems = launches.iter().filter_map(|launch| {
            Problem::of(launch.matmul.as_deref()?, tf32, |_| 0).map(|(problem, _)| kind(&problem))
        });
        let mut uses: Vec<KernelUse> = vec![];
        for problem in problems {
            let label = format!("{LIBRARY} {problem}");
            if uses.iter().all(|known| known.label != label) {
                let text = hashed((&label, &matmuls.library.version));
                uses.push(KernelUse { label, text, variants: vec![LIBRARY], of_library: true });
            }
        }
        uses
    }
}

impl Variants for Cuda {
    fn identity(&self) -> String {
        let files = source::digest();
        format!("{}, {}, kernels {files:016x}", self.driver.name(), self.driver.versions())
    }

    fn kernels(
        &self,
        of_few: bool,
        op: &Op,
        inputs: &[&Type],
        outputs: &[&Type],
    ) -> Result<Vec<KernelUse>, String> {
        let limits = self.planning.limits.clone();
        let limits = &if of_few { limits.with_cuda(few) } else { limits };
        let launches = op.launch(limits, inputs, outputs)?.list;
        let kernels = kernels_of(&launches, self.driver.argument_bytes());
        let kernels = kernels.map_err(|error| error.to_string())?;
        let fused = matches!(op, Op::FusedMatMul(_));
        let uses = kernels.into_iter().map(|kernel| {
            let file = kernel.label.split('.').next().unwrap_or_default();
            let file = if OF_ATTENTION_WGMMA.contains(&file) { ATTENTION_WGMMA } else { file };
            let own = [WGMMA, MATMUL_MMA, ATTENTION_WGMMA, ATTENTION_MMA];
            let own = own.into_iter().filter(|name| *name == file);
            let fused = (fused && file.starts_with("matmul")).then_some(EPILOGUES);
            let clusters = (kernel.cluster > 1).then_some(CLUSTERS);
            let variants = clusters.into_iter().chain(own).chain(fused).collect();
            KernelUse { text: hashed(&kernel), label: kernel.label, variants, of_library: false }
        });
        let mut all = self.of_library(&launches);
        all.extend(uses);
        Ok(all)
    }

    fn take_few(&mut self) {
        self.restrict(few);
    }

    fn compile(&mut self, uses: &[(&Op, Vec<&Type>, Vec<&Type>)]) {
        let launches = uses.iter().filter_map(|(op, inputs, outputs)| {
            op.launch(&self.planning.limits, inputs, outputs).ok()
        });
        let bytes = self.driver.argument_bytes();
        let kernels = launches.filter_map(|launches| kernels_of(&launches.list, bytes).ok());
        let kernels: Vec<_> = kernels.flatten().collect();
        // What is wrong with one is said where it's used.
        let _ = self.driver.load(&kernels);
    }

    fn leave_out(&mut self, variant: &str) {
        match variant {
            LIBRARY => self.planning.matmuls = None,
            CLUSTERS => self.restrict(|own| own.clusters = false),
            WGMMA => self.restrict(|own| own.wgmma = None),
            MATMUL_MMA => self.restrict(|own| own.plain_matmuls = true),
            ATTENTION_WGMMA => self.restrict(|own| own.warp_attention = true),
            ATTENTION_MMA => self.restrict(|own| own.plain_attention = true),
            EPILOGUES => self.restrict(|own| own.epilogues = false),
            _ => {}
        }
    }

    fn known(&self) -> &'static [&'static str] {
        &ALL
    }
}
