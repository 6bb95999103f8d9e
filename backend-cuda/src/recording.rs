//! A plan as tasks of a device.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use tightrope_core::launch::{Boxed, Launch, Launches, Limits, Place, Source, operations};
use tightrope_core::ops::Direction;
use tightrope_core::plan::Event;
use tightrope_core::{DeviceError, Node, Op, Plan, Rule, Type};

use crate::collective::Moves;
use crate::driver::{Dispatch, Driver, Loaded, Recorded, Task};
use crate::library::{Addresses, Problem};
use crate::matmuls::{self, Contest, Matmuls, Winner};
use crate::source::{self, Kernel};

/// Most blocks of a launch along the first axis of its grid (CUDA C++ Programming Guide, compute capabilities).
const MOST_BLOCKS: u64 = (1 << 31) - 1;

/// All tasks of a plan.
#[derive(Default)]
pub struct Recording {
    /// By program and step.
    pub steps: Vec<Vec<Vec<Task>>>,
    /// Steps of a program that run without a transfer between them, in pieces that are replayed as one.
    pieces: HashMap<(usize, Range<usize>), Vec<Piece>>,
}

/// Steps of a program that a device does in some tenths of a second at most, unless one takes longer.
#[derive(Clone, Debug)]
pub struct Piece {
    /// The steps.
    pub steps: Range<usize>,
    /// Their recording; `None` where they are launched one by one.
    pub recorded: Option<Recorded>,
    /// Operations that they count as.
    pub operations: u64,
}

/// A launch, or launches that are made or left out together.
struct Unit<'a> {
    bound: Bound<'a>,
    own: Part,
    /// Other ways to do the same: the library's, or other kernels'.
    ways: Vec<Way>,
    /// Where the library's workspace begins.
    workspace: u64,
    /// What is timed of it is kept under this.
    key: String,
}

/// Launches, with their kernels until those are loaded.
#[derive(Default)]
struct Part {
    /// Those of each kernel together, in their order.
    launches: Vec<Vec<Launch>>,
    kernels: Vec<Kernel>,
}

/// A matmul for the library and the launches that come after it, or launches of other kernels alone.
struct Way {
    matmul: Option<(Problem, Addresses)>,
    after: Part,
}

impl Part {
    fn new(launches: &[Launch], argument_bytes: usize) -> Result<Self, DeviceError> {
        let (launches, kernels) = together(launches, argument_bytes)?.into_iter().unzip();
        Ok(Self { launches, kernels })
    }
}

/// Launches by what runs them: those that may run at once and have the same kernel are one, as far as so many bytes have room for
/// their arguments.
///
/// # Errors
/// As `kernel`.
pub fn together(
    launches: &[Launch],
    argument_bytes: usize,
) -> Result<Vec<(Vec<Launch>, Kernel)>, DeviceError> {
    let mut all = vec![];
    for together in launches.chunk_by(|_, next| next.concurrent) {
        let mut found: Vec<(Vec<Launch>, Kernel)> = vec![];
        for launch in together {
            let kernel = kernel(launch)?;
            match found.iter_mut().find(|(_, other)| *other == kernel) {
                Some((list, _)) => list.push(launch.clone()),
                None => found.push((vec![launch.clone()], kernel)),
            }
        }
        let plain = |list: &[Launch]| list.iter().all(|launch| launch.boxed.is_empty());
        all.extend(found.into_iter().flat_map(|(list, kernel)| {
            let of_several = kernel.clone().for_several(list.len(), argument_bytes);
            if list.len() > 1 && plain(&list) && of_several.several > 1 {
                return vec![(list, of_several)];
            }
            list.into_iter().map(|launch| (vec![launch], kernel.clone())).collect()
        }));
    }
    Ok(all)
}

impl Unit<'_> {
    /// Which ways are the library's.
    fn of_library(&self) -> Vec<bool> {
        self.ways.iter().map(|way| way.matmul.is_some()).collect()
    }

    /// Leaves out the launches that nobody will run: those of ways that lose, once it's known who wins.
    fn settle(&mut self, winner: Option<Winner>) {
        if winner.is_some() {
            self.own = Part::default();
        }
        for (index, way) in self.ways.iter_mut().enumerate() {
            if winner.is_none_or(|winner| winner.way != index) {
                way.after = Part::default();
            }
        }
    }

    /// All launches that have to be loaded.
    fn parts(&mut self) -> impl Iterator<Item = &mut Part> {
        std::iter::once(&mut self.own).chain(self.ways.iter_mut().map(|way| &mut way.after))
    }

    /// The unit's tasks, of kernels that were loaded in the order of [`Unit::parts`], each with how many launches it makes.
    fn contest(
        self,
        driver: &dyn Driver,
        loaded: &mut impl Iterator<Item = (Loaded, usize)>,
    ) -> Result<Contest, DeviceError> {
        let bound = self.bound;
        let mut tasks = |part: Part| -> Result<Vec<Task>, DeviceError> {
            let mut tasks = vec![];
            for launches in &part.launches {
                let kernel = loaded.next().expect("a kernel for each launch");
                let dispatches = bound.dispatches(driver, launches, kernel)?;
                tasks.extend(dispatches.into_iter().map(Task::Kernel));
            }
            Ok(tasks)
        };
        let own = tasks(self.own)?;
        let ways = self
            .ways
            .into_iter()
            .map(|Way { matmul, after }| Ok(matmuls::Way { matmul, after: tasks(after)? }));
        let ways = ways.collect::<Result<_, DeviceError>>()?;
        Ok(Contest { own, ways, workspace: self.workspace, key: self.key })
    }
}

impl Recording {
    /// Compiles every launch of `plan`, whose arena begins at address `arena`, and records its programs. Where there's a
    /// library, its matmuls take the place of launches.
    ///
    /// # Errors
    /// [`DeviceError::Compile`] where an op has no kernel, and those of the driver.
    pub fn new(
        driver: &mut dyn Driver,
        limits: &Limits,
        matmuls: Option<&mut Matmuls>,
        plan: &Plan,
        arena: u64,
    ) -> Result<Self, DeviceError> {
        let mut units = vec![];
        for (index, program) in plan.graph.programs.iter().enumerate() {
            for (step, node) in program.nodes.iter().enumerate() {
                let scratch = plan.programs[index].steps[step].workspace.map_or(0, |(at, _)| at);
                let argument_bytes = driver.argument_bytes();
                let bound =
                    Bound { plan, program: index, step, node, scratch, arena, argument_bytes };
                units.extend(bound.units(limits, matmuls.as_deref())?);
            }
        }
        for unit in units.iter_mut().filter(|unit| !unit.ways.is_empty()) {
            let known = matmuls.as_deref().and_then(|p| p.known(&unit.key, &unit.of_library()));
            if let Some(winner) = known {
                unit.settle(winner);
            }
        }
        let kernels: Vec<Kernel> = units
            .iter_mut()
            .flat_map(Unit::parts)
            .flat_map(|part| std::mem::take(&mut part.kernels))
            .collect();
        let several: Vec<usize> = kernels.iter().map(|kernel| kernel.several).collect();
        let mut loaded = driver.load(&kernels)?.into_iter().zip(several);
        drop(kernels);
        let contests = units
            .into_iter()
            .map(|unit| Ok((unit.bound, unit.contest(driver, &mut loaded)?)))
            .collect::<Result<Vec<(Bound<'_>, Contest)>, DeviceError>>()?;
        let with_library = matmuls.map(|matmuls| {
            let open = contests.iter().map(|(_, contest)| contest);
            let open: Vec<&Contest> = open.filter(|contest| !contest.ways.is_empty()).collect();
            matmuls.time(driver, &open, plan.arena_bytes).map(|()| &*matmuls)
        });
        let matmuls = with_library.transpose()?;
        let programs = plan.graph.programs.iter();
        let mut steps: Vec<Vec<Vec<Task>>> =
            programs.map(|program| program.nodes.iter().map(|_| vec![]).collect()).collect();
        for (bound, contest) in contests {
            let known = matmuls.and_then(|p| p.known(&contest.key, &contest.of_library()));
            steps[bound.program][bound.step].extend(contest.tasks_of(known.flatten()));
        }
        let link = driver.linked().map(|linked| (linked.rank, linked.count));
        if let Some(place) = link {
            exchanges(plan, arena, place, &mut steps)?;
        }
        let mut pieces = HashMap::new();
        for (index, program) in plan.programs.iter().enumerate() {
            for range in program.uninterrupted(link.is_some()) {
                // An exchange of ranks is begun and waited for in one replay.
                let most = if link.is_some() { u64::MAX } else { driver.replay_operations() };
                let mut cut = cut(plan, index, &range, most);
                for piece in &mut cut {
                    let tasks: Vec<&Task> =
                        steps[index][piece.steps.clone()].iter().flatten().collect();
                    // Less than two tasks begin as soon by themselves. But what ranks exchange all of them record, or none.
                    let exchanges = tasks.iter().any(|task| matches!(task, Task::Exchange(..)));
                    if tasks.len() > 1 || exchanges {
                        piece.recorded = Some(driver.record(&tasks)?);
                    }
                }
                pieces.insert((index, range), cut);
            }
        }
        Ok(Self { steps, pieces })
    }

    /// The pieces of these steps of a program: one a step for a range that wasn't recorded.
    pub fn pieces(&self, program: usize, steps: &Range<usize>) -> Vec<Piece> {
        let one = |step| Piece { steps: step..step + 1, recorded: None, operations: 0 };
        let recorded = self.pieces.get(&(program, steps.clone()));
        recorded.map_or_else(|| steps.clone().map(one).collect(), Clone::clone)
    }
}

/// Steps of a program in pieces of at most `most` operations, unless a step has more.
fn cut(plan: &Plan, program: usize, steps: &Range<usize>, most: u64) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = vec![];
    for step in steps.clone() {
        let node = &plan.graph.programs[program].nodes[step];
        let (inputs, outputs) = plan.graph.types(node);
        let own = operations(node.op.cost(&inputs, &outputs));
        match pieces.last_mut() {
            Some(piece) if piece.operations.saturating_add(own) <= most => {
                piece.steps.end = step + 1;
                piece.operations += own;
            }
            _ => pieces.push(Piece { steps: step..step + 1, recorded: None, operations: own }),
        }
    }
    pieces
}

/// Adds what this rank, of so many, does for each collective of a plan: begins it where the plan says, and has others wait for it.
fn exchanges(
    plan: &Plan,
    arena: u64,
    place: (usize, usize),
    steps: &mut [Vec<Vec<Task>>],
) -> Result<(), DeviceError> {
    for ((program, planned), steps) in plan.graph.programs.iter().zip(&plan.programs).zip(steps) {
        let mut before: Vec<Vec<Task>> = steps.iter().map(|_| vec![]).collect();
        let mut begun = HashSet::new();
        for &(at, event) in &planned.events {
            match event {
                Event::Begin(Direction::Across, step) => {
                    let node = &program.nodes[step];
                    let Some(collective) = node.op.collective() else { continue };
                    let address =
                        |tensor| arena + plan.range(tensor).map_or(0, |(offset, _)| offset);
                    let moves = Moves::new(collective, node, plan, address, place);
                    let moves = moves.map_err(DeviceError::Input)?;
                    if !moves.is_empty() {
                        before[at].push(Task::Exchange(step, Box::new(moves)));
                        begun.insert(step);
                    }
                }
                Event::End(Direction::Across, step) if begun.contains(&step) => {
                    before[at].push(Task::Exchanged(step));
                }
                _ => {}
            }
        }
        for (tasks, before) in steps.iter_mut().zip(before) {
            tasks.splice(0..0, before);
        }
    }
    Ok(())
}

/// The kernel of a launch.
pub fn kernel(launch: &Launch) -> Result<Kernel, DeviceError> {
    let label = format!("{}.{}", launch.kernel, launch.entry);
    Kernel::of(launch).map_err(|log| DeviceError::Compile { kernel: label, log })
}

/// The launches of an op that does something with its matmul, one part after the other.
pub fn apart(op: &Op, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Option<Launches> {
    let alone = limits.clone().with_cuda(|own| own.epilogues = false);
    let fused = matches!(op, Op::FusedMatMul(_));
    fused.then(|| op.launch(&alone, inputs, outputs).ok()).flatten()
}

/// The launches of attention by warps, where it's made by warpgroups.
pub fn beside(op: &Op, limits: &Limits, inputs: &[&Type], outputs: &[&Type]) -> Option<Launches> {
    let by_warps = limits.clone().with_cuda(|own| own.warp_attention = true);
    let is_attention = matches!(op, Op::Attention(_) | Op::AttentionGrad(_));
    let is_other = limits.cuda().wgmma.is_some() && !limits.cuda().warp_attention && is_attention;
    let [own, other] = [limits, &by_warps]
        .map(|limits| is_other.then(|| op.launch(limits, inputs, outputs).ok()).flatten());
    other.filter(|other| own.is_some_and(|own| own.list != other.list))
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
    /// Most bytes of a kernel's arguments.
    argument_bytes: usize,
}

impl<'a> Bound<'a> {
    /// The node's launches, those of a matmul together.
    fn units(
        self,
        limits: &Limits,
        matmuls: Option<&Matmuls>,
    ) -> Result<Vec<Unit<'a>>, DeviceError> {
        let Self { plan, node, argument_bytes, .. } = self;
        let (inputs, outputs) = plan.graph.types(node);
        let refused = |log| DeviceError::Compile { kernel: node.op.name().into(), log };
        let mut launches = node.op.launch(limits, &inputs, &outputs).map_err(refused)?;
        let place = |launch: &Launch, operand: usize| self.address(&launch.operands[operand].place);
        launches.list.retain(|launch| !launch.identity || place(launch, 0) != place(launch, 1));
        let apart = apart(&node.op, limits, &inputs, &outputs);
        let workspace = matmuls.map(|matmuls| matmuls.scratch(&launches, apart.as_ref()).1);
        // Launches of one matmul, or that may run at once.
        let same_matmul = |a: &Launch, b: &Launch| match (&a.matmul, &b.matmul) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        };
        let joined = |a: &Launch, b: &Launch| same_matmul(a, b) || b.concurrent;
        let way = |list: &[Launch]| -> Result<Option<Way>, DeviceError> {
            let Some(matmul) = list.first().and_then(|launch| launch.matmul.as_ref()) else {
                return Ok(None);
            };
            let address = |place: &Place| self.address(place);
            let Some((problem, at)) = Problem::of(matmul, limits.cuda().tf32, address) else {
                return Ok(None);
            };
            let after = list.iter().position(|launch| !same_matmul(launch, &list[0]));
            let after = Part::new(&list[after.unwrap_or(list.len())..], argument_bytes)?;
            Ok(Some(Way { matmul: Some((problem, at)), after }))
        };
        let unit = |launches: &[Launch]| {
            let own = Part::new(launches, argument_bytes)?;
            let mut ways = vec![];
            if workspace.is_some() {
                ways.extend(way(launches)?);
                // Of an op with parts, all of them.
                ways.extend(apart.as_ref().map_or(Ok(None), |apart| way(&apart.list))?);
            }
            let problems = ways.iter().filter_map(|way| way.matmul.as_ref());
            let key = matmuls::key(problems.map(|(problem, _)| problem), &own.kernels);
            let workspace = self.arena + self.scratch + workspace.unwrap_or(0);
            Ok(Unit { bound: self, own, ways, workspace, key })
        };
        if let Some(beside) =
            beside(&node.op, limits, &inputs, &outputs).filter(|_| workspace.is_some())
        {
            let [own, after] =
                [&launches.list, &beside.list].map(|list| Part::new(list, argument_bytes));
            let (own, after) = (own?, after?);
            let extents: Vec<&[usize]> = inputs.iter().map(|ty| &ty.shape[..]).collect();
            let key = matmuls::key_of_kernels(&own.kernels, &after.kernels, extents);
            let ways = vec![Way { matmul: None, after }];
            return Ok(vec![Unit { bound: self, own, ways, workspace: 0, key }]);
        }
        match apart {
            Some(_) => Ok(vec![unit(&launches.list)?]),
            None => launches.list.chunk_by(joined).map(unit).collect(),
        }
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

    /// Launches of one kernel: together as far as there's room for their arguments, and one in several where it has more
    /// blocks than one can.
    fn dispatches(
        &self,
        driver: &dyn Driver,
        launches: &[Launch],
        (kernel, several): (Loaded, usize),
    ) -> Result<Vec<Dispatch>, DeviceError> {
        let parts: Vec<Launch> = launches.iter().flat_map(parts).collect();
        let mut dispatches = vec![];
        let mut rest = &parts[..];
        while !rest.is_empty() {
            // Ends of as many as have room, and no more blocks together than one launch can.
            let ends = rest.iter().take(several).scan(0, |end, launch| {
                *end += launch.groups.end - launch.groups.start;
                Some(*end)
            });
            let ends: Vec<u64> = ends.take_while(|&end| end <= MOST_BLOCKS).collect();
            let (now, later) = rest.split_at(ends.len());
            rest = later;
            let most = now[0].most_groups.unwrap_or(u32::MAX);
            let blocks = most.min(ends.last().copied().unwrap_or(0) as u32);
            let arguments = match several {
                1 => self.arguments(driver, &now[0], 0)?,
                _ => self.arguments_of_several(driver, now, &ends, several)?,
            };
            dispatches.push(Dispatch { kernel, arguments, blocks });
        }
        Ok(dispatches)
    }

    /// As `Several` declares them.
    fn arguments_of_several(
        &self,
        driver: &dyn Driver,
        launches: &[Launch],
        ends: &[u64],
        room: usize,
    ) -> Result<Vec<u8>, DeviceError> {
        let starts = std::iter::once(0).chain(ends.iter().copied());
        let mut bytes = vec![];
        for (launch, start) in launches.iter().zip(starts) {
            bytes.extend(self.arguments(driver, launch, start)?);
        }
        let each = bytes.len() / launches.len();
        bytes.resize(room * each, 0);
        let ends = ends.iter().map(|&end| end as u32).chain(std::iter::repeat(u32::MAX));
        bytes.extend(ends.take(room).flat_map(u32::to_le_bytes));
        bytes.resize(bytes.len().next_multiple_of(size_of::<u64>()), 0);
        Ok(bytes)
    }

    /// A launch's arguments where its first block is number `start` of all.
    fn arguments(
        &self,
        driver: &dyn Driver,
        launch: &Launch,
        start: u64,
    ) -> Result<Vec<u8>, DeviceError> {
        let map = |boxed: &Boxed, address| driver.tensor_map(boxed, address);
        let mut bytes = source::arguments(launch, |place| self.address(place), map)?;
        // The first of the numbers, to which a kernel adds that of its block, modulo 2³².
        let first = (launch.groups.start as u32).wrapping_sub(start as u32);
        bytes[..size_of::<u32>()].copy_from_slice(&first.to_le_bytes());
        Ok(bytes)
    }
}

/// A launch, in several where it has more blocks than one can.
fn parts(launch: &Launch) -> impl Iterator<Item = Launch> {
    let all = launch.groups.clone();
    let starts = (all.start..all.end).step_by(MOST_BLOCKS as usize);
    starts.map(move |start| Launch {
        groups: start..all.end.min(start + MOST_BLOCKS),
        ..launch.clone()
    })
}
