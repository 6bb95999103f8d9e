//! `Target`: what a plan has to know of the device it's for.

use crate::ops::Op;
use crate::types::Type;

/// What a plan has to know of the device it's for.
pub trait Target {
    /// Alignment of every tensor, bytes.
    fn alignment(&self) -> u64;

    /// Scratch that one run of `op` needs, bytes; the planner places it for that step alone.
    fn workspace(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64;

    /// Whether outputs of `op` may share storage with inputs where [`Rule::may_overwrite`](crate::Rule::may_overwrite) allows it.
    fn in_place(&self, op: &Op) -> bool;

    /// Bytes that the device keeps for one use of `op` from the start to the end of a run, besides tensors:
    /// the parameters of its launches.
    fn parameters(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        let _ = (op, inputs, outputs);
        0
    }

    /// Bytes that the device keeps for moving data to and from it.
    fn staging(&self) -> u64 {
        0
    }

    /// Most bytes of one allocation. Where the arena is larger, no tensor lies across a multiple of it.
    fn buffer_bytes(&self) -> u64 {
        u64::MAX
    }

    /// Most tensors that one map may read and write; fusion keeps to it.
    fn operands(&self) -> usize {
        usize::MAX
    }

    /// Whether kernels of matmuls and norms do in their own pass what is done with each element after them; fusion then
    /// makes it a part of them.
    fn epilogues(&self) -> bool {
        false
    }

    /// Whether an activation has the same bits wherever it's made: by itself from the stored matmul, as where it's recomputed, or
    /// in the matmul's own pass.
    fn exact_activations(&self) -> bool {
        true
    }

    /// Whether copies between the device and the host overlap its programs.
    fn copy_queues(&self) -> bool {
        false
    }

    /// Whether it exchanges with the devices of other ranks itself, while other ops run.
    fn links_overlap(&self) -> bool {
        false
    }
}

/// A device around another, planned for as that is: what tests and pages put between a run and its device.
pub trait PlannedAs {
    /// The device inside.
    fn planned_as(&self) -> &dyn Target;

    /// Whether copies between the device and the host overlap its programs, with what is around it.
    fn overlaps_copies(&self) -> bool {
        self.planned_as().copy_queues()
    }
}

impl<T: PlannedAs> Target for T {
    fn alignment(&self) -> u64 {
        self.planned_as().alignment()
    }

    fn workspace(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        self.planned_as().workspace(op, inputs, outputs)
    }

    fn in_place(&self, op: &Op) -> bool {
        self.planned_as().in_place(op)
    }

    fn parameters(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        self.planned_as().parameters(op, inputs, outputs)
    }

    fn staging(&self) -> u64 {
        self.planned_as().staging()
    }

    fn buffer_bytes(&self) -> u64 {
        self.planned_as().buffer_bytes()
    }

    fn operands(&self) -> usize {
        self.planned_as().operands()
    }

    fn epilogues(&self) -> bool {
        self.planned_as().epilogues()
    }

    fn exact_activations(&self) -> bool {
        self.planned_as().exact_activations()
    }

    fn copy_queues(&self) -> bool {
        self.overlaps_copies()
    }

    fn links_overlap(&self) -> bool {
        self.planned_as().links_overlap()
    }
}
