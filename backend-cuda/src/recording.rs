//! A plan as launches with their arguments.

use tightrope_core::launch::{Launch, Limits, Place, Source};
use tightrope_core::{DeviceError, Node, Plan, Rule};

use crate::driver::{Dispatch, Driver, Loaded, Recorded};
use crate::source::{self, Kernel};

/// Most blocks of a launch along the first axis of its grid (CUDA C++ Programming Guide, compute capabilities).
const MOST_BLOCKS: u64 = (1 << 31) - 1;

/// All launches of a plan.
#[derive(Default)]
pub struct Recording {
    /// By program and step.
    pub steps: Vec<Vec<Vec<Dispatch>>>,
    /// All steps of each program, to be replayed as one.
    pub programs: Vec<Recorded>,
}

impl Recording {
    /// Compiles every launch of `plan`, whose arena begins at address `arena`, and records its programs.
    ///
    /// # Errors
    /// [`DeviceError::Compile`] where an op has no kernel, and those of the driver.
    pub fn new(
        driver: &mut dyn Driver,
        limits: &Limits,
        plan: &Plan,
        arena: u64,
    ) -> Result<Self, DeviceError> {
        let mut launches = vec![];
        for (index, program) in plan.graph.programs.iter().enumerate() {
            for (step, node) in program.nodes.iter().enumerate() {
                let made = launches_of(plan, node, limits)?;
                launches.extend(made.into_iter().map(|launch| (index, step, launch)));
            }
        }
        let kernels: Vec<Kernel> =
            launches.iter().map(|(.., launch)| kernel(launch)).collect::<Result<_, _>>()?;
        let loaded = driver.load(&kernels)?;
        let mut steps: Vec<Vec<Vec<Dispatch>>> = plan
            .graph
            .programs
            .iter()
            .map(|program| program.nodes.iter().map(|_| vec![]).collect())
            .collect();
        for ((program, step, launch), kernel) in launches.into_iter().zip(loaded) {
            let node = &plan.graph.programs[program].nodes[step];
            let scratch = plan.programs[program].steps[step].workspace;
            let bound = Bound { plan, node, scratch: scratch.map_or(0, |(at, _)| at), arena };
            steps[program][step].extend(bound.dispatches(launch, kernel));
        }
        let recorded = steps.iter().map(|program: &Vec<Vec<Dispatch>>| {
            let dispatches: Vec<&Dispatch> = program.iter().flatten().collect();
            driver.record(&dispatches)
        });
        let programs = recorded.collect::<Result<_, _>>()?;
        Ok(Self { steps, programs })
    }
}

/// The kernel of a launch.
pub fn kernel(launch: &Launch) -> Result<Kernel, DeviceError> {
    let label = format!("{}.{}", launch.kernel, launch.entry);
    Kernel::of(launch).map_err(|log| DeviceError::Compile { kernel: label, log })
}

fn launches_of(plan: &Plan, node: &Node, limits: &Limits) -> Result<Vec<Launch>, DeviceError> {
    let (inputs, outputs) = plan.graph.types(node);
    let launched = node.op.launch(limits, &inputs, &outputs);
    let launches =
        launched.map_err(|log| DeviceError::Compile { kernel: node.op.name().into(), log })?;
    Ok(launches.list)
}

/// A node with everything its launches are bound to.
struct Bound<'a> {
    plan: &'a Plan,
    node: &'a Node,
    scratch: u64,
    arena: u64,
}

impl Bound<'_> {
    fn address(&self, place: &Place) -> u64 {
        let offset = |tensor| self.plan.range(tensor).map_or(0, |(offset, _)| offset);
        let base = match place.source {
            Source::Input(index) => offset(self.node.inputs[index]),
            Source::Output(index) => offset(self.node.outputs[index]),
            Source::Scratch => self.scratch,
        };
        self.arena + base + place.bytes().0
    }

    /// A launch, in several where it has more blocks than one can.
    fn dispatches(&self, launch: Launch, kernel: Loaded) -> Vec<Dispatch> {
        let tensors: Vec<u8> = launch
            .operands
            .iter()
            .flat_map(|operand| [self.address(&operand.place), operand.place.elements])
            .flat_map(u64::to_le_bytes)
            .collect();
        let all = launch.groups.clone();
        let starts = (all.start..all.end).step_by(MOST_BLOCKS as usize);
        starts
            .map(|start| {
                let groups = start..all.end.min(start + MOST_BLOCKS);
                let blocks = (groups.end - groups.start) as u32;
                let part = Launch { groups, ..launch.clone() };
                let arguments = [source::parameters(&part), tensors.clone()].concat();
                Dispatch { kernel, arguments, blocks }
            })
            .collect()
    }
}
