//! A plan as tasks of a device.

use std::sync::Arc;

use tightrope_core::launch::{Boxed, Launch, Limits, Place, Source};
use tightrope_core::{DeviceError, Node, Plan, Rule};

use crate::driver::{Dispatch, Driver, Loaded, Recorded, Task};
use crate::products::{Contest, Problem, Products};
use crate::source::{self, Kernel};

/// Most blocks of a launch along the first axis of its grid (CUDA C++ Programming Guide, compute capabilities).
const MOST_BLOCKS: u64 = (1 << 31) - 1;

/// All tasks of a plan.
#[derive(Default)]
pub struct Recording {
    /// By program and step.
    pub steps: Vec<Vec<Vec<Task>>>,
    /// All steps of each program, to be replayed as one.
    pub programs: Vec<Recorded>,
}

/// A launch, or the launches of a product together.
struct Unit<'a> {
    bound: Bound<'a>,
    launches: Vec<Launch>,
    kernels: Vec<Kernel>,
    /// Where the library may make the product instead.
    contest: Option<Contest>,
}

impl Recording {
    /// Compiles every launch of `plan`, whose arena begins at address `arena`, and records its programs. Where there's a
    /// library, its products take the place of launches.
    ///
    /// # Errors
    /// [`DeviceError::Compile`] where an op has no kernel, and those of the driver.
    pub fn new(
        driver: &mut dyn Driver,
        limits: &Limits,
        products: Option<&mut Products>,
        plan: &Plan,
        arena: u64,
    ) -> Result<Self, DeviceError> {
        let mut units = vec![];
        for (index, program) in plan.graph.programs.iter().enumerate() {
            for (step, node) in program.nodes.iter().enumerate() {
                let scratch = plan.programs[index].steps[step].workspace.map_or(0, |(at, _)| at);
                let bound = Bound { plan, program: index, step, node, scratch, arena };
                units.extend(bound.units(limits, products.as_deref())?);
            }
        }
        // What is known to be the library's needs no kernels.
        let by_library = |unit: &Unit<'_>| {
            let known = products.as_deref().zip(unit.contest.as_ref());
            known
                .is_some_and(|(products, contest)| matches!(products.known(contest), Some(Some(_))))
        };
        units.iter_mut().filter(|unit| by_library(unit)).for_each(|unit| unit.launches.clear());
        let with_launches = units.iter_mut().filter(|unit| !unit.launches.is_empty());
        let kernels: Vec<Kernel> =
            with_launches.flat_map(|unit| std::mem::take(&mut unit.kernels)).collect();
        let mut loaded = driver.load(&kernels)?.into_iter();
        drop(kernels);
        let mut tasks: Vec<(&Unit<'_>, Vec<Task>)> = vec![];
        for unit in &units {
            let mut own = vec![];
            for launch in &unit.launches {
                let kernel = loaded.next().expect("a kernel for each launch");
                own.extend(unit.bound.dispatches(driver, launch, kernel)?);
            }
            tasks.push((unit, own));
        }
        if let Some(products) = products {
            let contests: Vec<(&Contest, &[Task])> = tasks
                .iter()
                .filter_map(|(unit, own)| Some((unit.contest.as_ref()?, own.as_slice())))
                .collect();
            products.time(driver, &contests)?;
            for (unit, tasks) in &mut tasks {
                let known = unit.contest.as_ref().and_then(|contest| products.known(contest));
                if let Some(task) = known.flatten() {
                    *tasks = vec![task];
                }
            }
        }
        let programs = plan.graph.programs.iter();
        let mut steps: Vec<Vec<Vec<Task>>> =
            programs.map(|program| program.nodes.iter().map(|_| vec![]).collect()).collect();
        for (unit, tasks) in tasks {
            steps[unit.bound.program][unit.bound.step].extend(tasks);
        }
        let recorded = steps.iter().map(|program: &Vec<Vec<Task>>| {
            let tasks: Vec<&Task> = program.iter().flatten().collect();
            driver.record(&tasks)
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

/// A node with everything its launches are bound to.
#[derive(Clone, Copy)]
struct Bound<'a> {
    plan: &'a Plan,
    program: usize,
    step: usize,
    node: &'a Node,
    scratch: u64,
    arena: u64,
}

impl<'a> Bound<'a> {
    /// The node's launches, those of a product together.
    fn units(
        self,
        limits: &Limits,
        products: Option<&Products>,
    ) -> Result<Vec<Unit<'a>>, DeviceError> {
        let Self { plan, node, .. } = self;
        let (inputs, outputs) = plan.graph.types(node);
        let refused = |log| DeviceError::Compile { kernel: node.op.name().into(), log };
        let launches = node.op.launch(limits, &inputs, &outputs).map_err(refused)?;
        let workspace = products.map(|products| products.scratch(&launches).1);
        let together = |a: &Launch, b: &Launch| match (&a.product, &b.product) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        let unit = |launches: &[Launch]| {
            let kernels: Vec<Kernel> = launches.iter().map(kernel).collect::<Result<_, _>>()?;
            let product = launches[0].product.as_ref().zip(workspace);
            let contest = product.and_then(|(product, workspace)| {
                let address = |place: &Place| self.address(place);
                let (problem, at) = Problem::of(product, limits.tf32, address)?;
                let workspace = self.arena + self.scratch + workspace;
                Some(Contest::new(problem, at, workspace, &kernels))
            });
            Ok(Unit { bound: self, launches: launches.to_vec(), kernels, contest })
        };
        launches.list.chunk_by(together).map(unit).collect()
    }

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
    fn dispatches(
        &self,
        driver: &dyn Driver,
        launch: &Launch,
        kernel: Loaded,
    ) -> Result<Vec<Task>, DeviceError> {
        let most = launch.most_groups.unwrap_or(u32::MAX);
        let all = launch.groups.clone();
        let starts = (all.start..all.end).step_by(MOST_BLOCKS as usize);
        starts
            .map(|start| {
                let groups = start..all.end.min(start + MOST_BLOCKS);
                let blocks = most.min((groups.end - groups.start) as u32);
                let part = Launch { groups, ..launch.clone() };
                let map = |boxed: &Boxed, address| driver.tensor_map(boxed, address);
                let arguments = source::arguments(&part, |place| self.address(place), map)?;
                Ok(Task::Kernel(Dispatch { kernel, arguments, blocks }))
            })
            .collect()
    }
}
