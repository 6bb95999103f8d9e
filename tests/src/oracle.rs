//! A backend that runs each step of a plan through its reference, in an arena laid out as planned. It shows
//! that a plan computes what its graph means, and it is what the conformance suite itself is tried on.

use std::cell::Cell;
use std::future::ready;
use std::ops::Range;
use std::sync::Arc;

use tightrope_core::ops::Array;
use tightrope_core::plan::Target;
use tightrope_core::{
    Backend, Cancel, DeviceError, DeviceKind, Op, Plan, Reading, Rule, Tensor, Type,
};

/// References over an arena.
#[derive(Default)]
pub struct Oracle {
    plan: Option<Arc<Plan>>,
    arena: Vec<Cell<u8>>,
    epilogues: bool,
}

impl Oracle {
    /// One for which maps become parts of matmuls.
    pub fn with_epilogues() -> Self {
        Self { epilogues: true, ..Self::default() }
    }
}

impl Target for Oracle {
    fn alignment(&self) -> u64 {
        64
    }

    fn workspace(&self, _op: &Op, _inputs: &[&Type], _outputs: &[&Type]) -> u64 {
        0
    }

    fn in_place(&self, _op: &Op) -> bool {
        true
    }

    fn epilogues(&self) -> bool {
        self.epilogues
    }
}

fn unprepared() -> DeviceError {
    DeviceError::Input("no plan was prepared: call `prepare` first".into())
}

impl Backend for Oracle {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cpu
    }

    fn name(&self) -> String {
        "references".into()
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.arena = vec![Cell::new(0); plan.arena_bytes as usize];
        self.plan = Some(plan);
        Ok(())
    }

    fn allocated_bytes(&self) -> u64 {
        self.arena.len() as u64
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        let cells = &self.arena[at as usize..][..data.len()];
        cells.iter().zip(data).for_each(|(cell, &byte)| cell.set(byte));
        Ok(())
    }

    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError> {
        let plan = self.plan.as_ref().ok_or_else(unprepared)?;
        for step in &plan.programs[program].steps[steps] {
            cancel.check()?;
            let node = &plan.graph.programs[program].nodes[step.node];
            let arrays = |tensors: &[Tensor]| -> Vec<Array<'_>> {
                let of = |&tensor: &Tensor| {
                    let (offset, bytes) = plan.range(tensor).expect("the plan places its steps");
                    let cells = &self.arena[offset as usize..][..bytes as usize];
                    Array::new(plan.graph.ty(tensor), cells)
                };
                tensors.iter().map(of).collect()
            };
            node.op.reference(&arrays(&node.inputs), &arrays(&node.outputs));
        }
        Ok(())
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        let cells = ranges.iter().flat_map(|r| &self.arena[r.start as usize..r.end as usize]);
        Box::pin(ready(Ok(cells.map(Cell::get).collect())))
    }
}
