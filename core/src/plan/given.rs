//! What a search for plans is given, and what doesn't depend on how fast ops are.

use super::chunks::{self, Chunk, Levels};
use super::outline::Outline;
use super::{Checkpoint, Options, Target, remat};
use crate::error::Result;
use crate::fuse;
use crate::graph::{Graph, Life, Node, Phase, Program};

/// A graph, and what its plans have in common.
pub struct Given<'a> {
    /// Its maps are fused.
    pub graph: Graph,
    /// The same with every activation made by the matmul that it reads, where plans do that as far as there's room.
    pub fused: Option<Graph>,
    /// Of which the checkpoint is what is searched.
    pub options: Options,
    pub target: &'a dyn Target,
    /// The program with a backward pass.
    pub program: usize,
    pub outline: Outline,
    /// Positions of its losses.
    pub losses: Vec<usize>,
    /// Rows of logits at a time: as the graph was built, then fewer where they're free.
    pub chunks: Vec<Chunk>,
    /// Blocks of the longest segments that are worth a try.
    pub longest: usize,
    /// Bytes that no plan takes fewer of.
    pub least_bytes: u64,
    /// Bytes of what is there besides transients and parameters.
    fixed: u64,
}

impl<'a> Given<'a> {
    /// Of `graph` on `target`; rows of logits are those of the graph, or where `free_chunk`, fewer.
    ///
    /// # Errors
    /// As [`super::Plan::new`].
    pub fn new(
        graph: Graph,
        options: &Options,
        free_chunk: bool,
        target: &'a dyn Target,
    ) -> Result<Self> {
        let graph = super::fused(graph, options, target)?;
        let backward = |program: &Program| program.nodes.iter().any(|n| n.phase == Phase::Backward);
        let program = graph.programs.iter().position(backward).unwrap_or(0);
        let mut outlines = Outline::all(&graph, options, target);
        let chunks = Chunk::all(&graph, &outlines, program, free_chunk, target);
        let outline = match program < outlines.len() {
            true => outlines.swap_remove(program),
            false => Outline::default(),
        };
        let align = |bytes: usize| (bytes as u64).next_multiple_of(target.alignment());
        let kept = graph.tensors.iter().filter(|info| info.life == Life::Persistent);
        let kept = kept.filter(|info| info.replaces.is_none());
        let persistent: u64 = kept.map(|info| align(info.ty.bytes())).sum();
        let fixed = persistent + target.staging();
        let (mut losses, mut longest) = (vec![], 1);
        if let Some(program) = graph.programs.get(program) {
            losses = chunks::losses(program);
            longest = self::longest(&graph, program, &outline)?;
        }
        let with_activations = || {
            let mut fused = graph.clone();
            fuse::activations_into_matmuls(&mut fused, program, |_, _| true);
            fused
        };
        let fused = (super::fuses_activations(options, target) && !graph.programs.is_empty())
            .then(with_activations);
        let options = options.clone();
        let least_bytes = 0;
        let mut given = Self {
            graph,
            fused,
            options,
            target,
            program,
            outline,
            losses,
            chunks,
            longest,
            least_bytes,
            fixed,
        };
        given.least_bytes = given.least()?;
        Ok(given)
    }

    /// Bytes that no plan takes fewer of.
    fn least(&self) -> Result<u64> {
        let Self { graph, program, outline, losses, chunks, longest, .. } = self;
        let Some(program) = graph.programs.get(*program) else { return Ok(0) };
        // The longest segments drop all that any plan does.
        let droppable = remat::chosen(graph, program, &segments_of(*longest), false)?;
        let levels = Levels::least(outline, &droppable, losses);
        let of = |chunk| self.bytes(&levels, chunk);
        Ok((0..chunks.len()).map(of).min().unwrap_or(0))
    }

    /// Bytes of all besides the parameters of what runs again, with these levels and this number of rows of logits.
    pub fn bytes(&self, levels: &Levels, chunk: usize) -> u64 {
        let Chunk { scratch, others, parameters, .. } = &self.chunks[chunk];
        self.fixed + parameters + levels.most(scratch).max(*others)
    }

    /// The nodes of the program with a backward pass.
    pub fn nodes(&self) -> &[Node] {
        self.graph.programs.get(self.program).map_or(&[], |program| &program.nodes)
    }

    /// Bytes that every plan takes besides transients and the parameters of what runs again.
    pub fn base(&self) -> u64 {
        self.fixed + self.chunks.iter().map(|chunk| chunk.parameters).min().unwrap_or(0)
    }

    /// Bytes and seconds of the forward ops of blocks, the fewest seconds for their bytes first, where nodes take these
    /// `seconds`.
    pub fn droppable(&self, seconds: &[f64]) -> Vec<(f64, f64)> {
        let ops = self.nodes().iter().zip(seconds);
        let forward = ops.filter(|(node, _)| node.phase == Phase::Forward && node.block.is_some());
        let made = forward.filter_map(|(node, &seconds)| {
            let stored =
                node.outputs.iter().map(|tensor| self.outline.tensors[tensor.index()].bytes);
            let bytes: u64 = stored.sum();
            (bytes > 0).then_some((bytes as f64, seconds))
        });
        let mut made: Vec<(f64, f64)> = made.collect();
        made.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        made
    }
}

/// Blocks of the longest segments that are worth a try. With L blocks of which each holds B bytes and begins with I,
/// segments of n take about n·B + I·L/n, which is least at √(L·I/B); what is beside them may move that by one.
fn longest(graph: &Graph, program: &Program, outline: &Outline) -> Result<usize> {
    let dropped = remat::chosen(graph, program, &Checkpoint::Block, false)?;
    let (mut blocks, mut held, mut begins) = (0, 0, 0);
    for node in program.nodes.iter().filter(|node| node.phase == Phase::Forward) {
        let Some(block) = node.block else { continue };
        blocks = blocks.max(block + 1);
        for tensor in &node.outputs {
            let bytes = outline.tensors[tensor.index()].bytes;
            *if dropped[tensor.index()] { &mut held } else { &mut begins } += bytes;
        }
    }
    let enough = |n: &usize| (n * n) as u64 * held >= blocks as u64 * begins;
    Ok((1..=blocks).find(enough).map_or(1, |n| blocks.min(n + 1)))
}

/// Segments of so many blocks.
pub fn segments_of(length: usize) -> Checkpoint {
    if length == 1 { Checkpoint::Block } else { Checkpoint::Every(length) }
}
