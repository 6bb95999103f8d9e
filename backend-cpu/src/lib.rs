//! Tightrope on the CPU: a plan replayed over one arena.
//!
//! | module | does |
//! |---|---|
//! | [`arena`] | the one allocation, and typed views of its ranges |
//! | [`tape`] | maps: formulas over blocks of elements |
//! | [`overrides`] | which ops have a fast path, and the scratch it needs |
//! | [`fast`] | the fast paths: pure functions on slices |
//! | [`isa`] | instruction sets: the data of each, and which this processor has |
//!
//! Ops without a fast path run core's reference. Work is split over a thread pool in ways that depend on
//! shapes alone, so results don't depend on the number of threads.

pub mod arena;
#[cfg(test)]
mod draws;
pub mod fast;
pub mod isa;
pub mod overrides;
#[cfg(not(target_family = "wasm"))]
pub mod peak;
pub mod tape;
mod threads;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
#[cfg(not(target_family = "wasm"))]
use std::time::Instant;

use tightrope_core::ops::{Array, Indices};
use tightrope_core::plan::Target;
use tightrope_core::{
    Backend, Cancel, DeviceError, DeviceKind, Node, Op, Plan, Reading, Rule, Tensor, Type,
};

use arena::{ALIGNMENT, Arena, View};
use isa::Isa;
use overrides::Scratch;
use tape::Tape;
use threads::Pool;

/// The processor as a device.
pub struct Cpu {
    pool: Pool,
    isa: Isa,
    loaded: Option<Loaded>,
    references: bool,
    /// Names of ops that the reference ran, since no fast path takes their types.
    slow: Mutex<BTreeSet<&'static str>>,
}

/// A plan with its arena.
struct Loaded {
    plan: Arc<Plan>,
    arena: Arena,
    /// Compiled maps by program and step.
    tapes: Vec<Vec<Option<Tape>>>,
}

impl Cpu {
    /// A device of `threads` threads; 0 takes as many as the process may use. Ops run by the widest instruction set that the
    /// processor has, or by the one that [`isa::VARIABLE`] forces.
    ///
    /// # Errors
    /// [`DeviceError::Lost`] where the system refuses the threads, and [`DeviceError::Input`] where the processor lacks what is
    /// forced.
    pub fn new(threads: usize) -> Result<Self, DeviceError> {
        let isa = Isa::chosen().map_err(|error| DeviceError::Input(error.to_string()))?;
        let (pool, slow) = (Pool::new(threads)?, Mutex::default());
        Ok(Self { pool, isa, loaded: None, references: false, slow })
    }

    /// The same device with ops by the instruction set `isa`.
    pub fn with_isa(mut self, isa: Isa) -> Self {
        self.isa = isa;
        self
    }

    /// The same device without fast paths: every op runs core's reference. To bisect a wrong number.
    pub fn with_references(mut self) -> Self {
        self.references = true;
        self
    }

    /// Names of the ops that ran so far by core's reference, a hundred times slower, since no fast path takes their types.
    pub fn slow_ops(&self) -> Vec<&'static str> {
        self.slow.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    /// The instruction set that runs ops.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads of the pool.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Refuses a plan that has less scratch for an op than this device needs.
    fn check_scratch(&self, plan: &Plan) -> Result<(), DeviceError> {
        for (program, steps) in plan.graph.programs.iter().zip(&plan.programs) {
            for step in &steps.steps {
                let node = &program.nodes[step.node];
                let (inputs, outputs) = plan.graph.types(node);
                let need = self.workspace(&node.op, &inputs, &outputs);
                let has = step.workspace.map_or(0, |(_, bytes)| bytes);
                if has < need {
                    return Err(DeviceError::Input(format!(
                        "op {} ({}) needs {need} bytes of scratch on {}, and the plan has {has}: \
                         plan on the device that runs it",
                        step.node,
                        node.op.name(),
                        self.name()
                    )));
                }
            }
        }
        Ok(())
    }

    fn loaded(&self) -> &Loaded {
        self.loaded.as_ref().expect("a plan was prepared before it's used")
    }

    /// Replays steps, and calls `tick` before the first one and after each.
    fn replay(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
        mut tick: impl FnMut() + Send,
    ) -> Result<(), DeviceError> {
        let Loaded { plan, arena, tapes } = self.loaded();
        let nodes = &plan.graph.programs[program].nodes;
        let view = |tensor: Tensor| {
            let (offset, _) = plan.range(tensor).expect("tensors of a program have a place");
            arena.view(offset, plan.graph.ty(tensor))
        };
        let replay = || {
            tick();
            for step in &plan.programs[program].steps[steps] {
                cancel.check()?;
                let node = &nodes[step.node];
                let inputs: Vec<View<'_>> = node.inputs.iter().map(|&t| view(t)).collect();
                let outputs: Vec<View<'_>> = node.outputs.iter().map(|&t| view(t)).collect();
                check_ids(&node.op, &inputs, |i| plan.graph.info(node.inputs[i]).name.clone())?;
                if let Some(tape) = &tapes[program][step.node] {
                    // SAFETY: steps run one after the other; the plan shares storage as the map allows.
                    unsafe { tape.run(self.isa, &inputs, &outputs) };
                    tick();
                    continue;
                }
                let scratch = match step.workspace {
                    // SAFETY: the plan gives a step's scratch to nothing else during that step.
                    Some((at, bytes)) => unsafe { arena.scratch(at, bytes) },
                    None => &mut [],
                };
                let scratch = Scratch { bytes: scratch, isa: self.isa, threads: self.threads() };
                // SAFETY: steps run one after the other, and the plan gives every tensor of a step a range
                // of its own but for in-place pairs, which the overrides know.
                let done = !self.references
                    && unsafe { overrides::run(&node.op, &inputs, &outputs, scratch) };
                if !done {
                    self.slow.lock().unwrap_or_else(PoisonError::into_inner).insert(node.op.name());
                    // SAFETY: only this thread touches the arena now.
                    unsafe { reference(&node.op, &inputs, &outputs) };
                }
                tick();
            }
            // The last op may have been left unfinished.
            cancel.check()?;
            Ok(())
        };
        self.pool.run(cancel, replay)
    }
}

impl Target for Cpu {
    fn alignment(&self) -> u64 {
        ALIGNMENT
    }

    fn workspace(&self, op: &Op, inputs: &[&Type], outputs: &[&Type]) -> u64 {
        if self.references {
            return 0;
        }
        overrides::scratch_bytes(op, inputs, outputs, self.isa.level(), self.threads()) as u64
    }

    fn in_place(&self, op: &Op) -> bool {
        // The fast paths of other families take slices, of which two may not overlap.
        matches!(
            op,
            Op::Map(_)
                | Op::Transfer(_)
                | Op::Rope(_)
                | Op::Reshape(_)
                | Op::LayerNormGrad(_)
                | Op::RmsNormGrad(_)
                | Op::LinearCrossEntropyGrad(_)
                | Op::LinearDistillationGrad(_)
                | Op::CrossEntropyGrad(_)
        )
    }
}

impl Backend for Cpu {
    fn kind(&self) -> DeviceKind {
        DeviceKind::Cpu
    }

    fn name(&self) -> String {
        let isa = self.isa.name();
        let threads = self.threads();
        let noun = if threads == 1 { "thread" } else { "threads" };
        format!("cpu ({threads} {noun}, {isa})")
    }

    fn prepare(&mut self, plan: Arc<Plan>) -> Result<(), DeviceError> {
        self.loaded = None;
        self.check_scratch(&plan)?;
        let refused = || DeviceError::OutOfMemory {
            need: plan.arena_bytes,
            have: None,
            tensor: None,
            device: "cpu".into(),
        };
        let arena = Arena::new(plan.arena_bytes).ok_or_else(refused)?;
        let tapes = plan
            .graph
            .programs
            .iter()
            .map(|program| {
                let compile = |node: &Node| match &node.op {
                    Op::Map(map) if !self.references => {
                        let types = node.inputs.iter().map(|&input| plan.graph.ty(input));
                        Tape::compile(map, &types.collect::<Vec<_>>())
                    }
                    _ => None,
                };
                program.nodes.iter().map(compile).collect()
            })
            .collect();
        self.loaded = Some(Loaded { plan, arena, tapes });
        Ok(())
    }

    fn allocated_bytes(&self) -> u64 {
        self.loaded.as_ref().map_or(0, |loaded| loaded.arena.bytes())
    }

    fn write(&mut self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        let arena = &self.loaded().arena;
        // SAFETY: `self` is borrowed mutably, so nothing runs.
        unsafe { arena.scratch(at, data.len() as u64) }.copy_from_slice(data);
        Ok(())
    }

    fn run(
        &mut self,
        program: usize,
        steps: Range<usize>,
        cancel: &Cancel,
    ) -> Result<(), DeviceError> {
        self.replay(program, steps, cancel, || ())
    }

    #[cfg(not(target_family = "wasm"))]
    fn run_timed(
        &mut self,
        program: usize,
        steps: Range<usize>,
    ) -> Result<Option<Vec<f64>>, DeviceError> {
        let mut moments = Vec::with_capacity(steps.len() + 1);
        self.replay(program, steps, &Cancel::default(), || moments.push(Instant::now()))?;
        let seconds = |pair: &[Instant]| (pair[1] - pair[0]).as_secs_f64();
        Ok(Some(moments.windows(2).map(seconds).collect()))
    }

    fn read(&mut self, ranges: &[Range<u64>]) -> Reading<'_> {
        let arena = &self.loaded().arena;
        let mut bytes = vec![];
        for range in ranges {
            // SAFETY: `self` is borrowed mutably, so nothing runs.
            let part = unsafe { arena.scratch(range.start, range.end - range.start) };
            bytes.extend_from_slice(part);
        }
        Box::pin(std::future::ready(Ok(bytes)))
    }
}

/// # Safety
/// Only this thread uses the tensors meanwhile.
unsafe fn reference<'a>(op: &Op, inputs: &[View<'a>], outputs: &[View<'a>]) {
    // SAFETY: passed on.
    let array = |view: &View<'a>| unsafe { Array::new(view.ty(), view.cells()) };
    let inputs: Vec<Array<'a>> = inputs.iter().map(array).collect();
    let outputs: Vec<Array<'a>> = outputs.iter().map(array).collect();
    op.reference(&inputs, &outputs);
}

/// Ids come from outside the graph: a bad one is an error and must not become an address.
fn check_ids(
    op: &Op,
    inputs: &[View<'_>],
    name: impl Fn(usize) -> String,
) -> Result<(), DeviceError> {
    let types: Vec<&Type> = inputs.iter().map(View::ty).collect();
    op.indices(&types).into_iter().try_for_each(|Indices { input, end, negative }| {
        // SAFETY: no step runs, so nothing writes.
        let ids = unsafe { inputs[input].slice::<i32>() };
        let outside = |&id: &i32| i64::from(id) >= end as i64 || (id < 0 && !negative);
        match ids.iter().position(outside) {
            None => Ok(()),
            Some(at) => Err(DeviceError::Input(format!(
                "`{}` holds {} at position {at}; ids must be below {end}{}",
                name(input),
                ids[at],
                if negative { "" } else { " and not negative" }
            ))),
        }
    })
}
