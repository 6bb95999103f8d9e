//! What plans depend on, of a GPU that is here or not.

use std::sync::OnceLock;

use tightrope_core::launch::{BINDING_ALIGNMENT, Limits};
use tightrope_core::plan::Target;
use tightrope_core::{DType, Op, Rule as _, Type};

use crate::matmuls::Matmuls;
use crate::recording;

/// What launches are made for, and who makes matmuls: the kernels where nobody else does.
pub(crate) struct Planning {
    pub limits: Limits,
    pub matmuls: Option<Matmuls>,
    /// Whether it finds what exchanges with the GPUs of other ranks, asked once it matters.
    links: (OnceLock<bool>, fn() -> bool),
}

impl Planning {
    /// For these launches, all of them kernels of the engine. `finds_links` says whether there is what exchanges with other ranks' GPUs.
    pub fn new(limits: Limits, finds_links: fn() -> bool) -> Self {
        Self { limits, matmuls: None, links: (OnceLock::new(), finds_links) }
    }

    /// Lets matmuls of f32 round their operands to TF32, on the GPU of this `name`.
    ///
    /// # Errors
    /// In words, where the GPU's tensor cores don't multiply it.
    pub fn round_to_tf32(&mut self, name: &str) -> Result<(), String> {
        // They came with Ampere's, as bf16 did.
        if !self.limits.cuda().tensor_cores.contains(&DType::BF16) {
            return Err(format!("the tensor cores of {name} multiply neither TF32 nor bf16"));
        }
        self.limits = self.limits.clone().with_cuda(|own| own.tf32 = true);
        Ok(())
    }
}

impl Target for Planning {
    fn alignment(&self) -> u64 {
        BINDING_ALIGNMENT
    }

    fn workspace(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        // What has no kernel is refused when the plan is prepared.
        op.launch(&self.limits, inputs, outputs).map_or(0, |launches| {
            let Some(matmuls) = &self.matmuls else { return launches.scratch_bytes };
            let apart = recording::apart(op, &self.limits, inputs, outputs);
            let beside = recording::beside(op, &self.limits, inputs, outputs);
            let of_beside = beside.map_or(0, |beside| beside.scratch_bytes);
            matmuls.scratch(&launches, apart.as_ref()).0.max(of_beside)
        })
    }

    fn in_place(&self, op: &Op) -> bool {
        // Kernels read each element before they write it. But the loss's gradient of x is made before that of its
        // head, which reads x.
        !matches!(op, Op::LinearCrossEntropyGrad(_) | Op::LinearDistillationGrad(_))
    }

    fn operands(&self) -> usize {
        self.limits.bindings
    }

    fn epilogues(&self) -> bool {
        self.limits.cuda().epilogues
    }

    fn exact_activations(&self) -> bool {
        // The library applies an activation to sums that are not rounded yet.
        self.matmuls.is_none()
    }

    fn copy_queues(&self) -> bool {
        true
    }

    fn links_overlap(&self) -> bool {
        let (found, finds) = &self.links;
        *found.get_or_init(finds)
    }
}
