//! What each of several ranks gives of a checkpoint: of a tensor that ranks hold shards of its own, and of one that all hold an equal part.

use std::ops::Range;

use tightrope_core::{Graph, Shards, Tensor};

use crate::handles::Handles;
use crate::programs::Planned;
use crate::saved::{Place, SavedTensor, saved_states, saved_weights};
use crate::trainer::{Of, PIECE, TrainError, Trainer};
use crate::weights::Weights;
use crate::{Parameter, Shard};

/// Elements of a tensor that all ranks hold which one of them gives at least: a small one is the first rank's.
const GRANULE: usize = 1 << 12;

/// How a tensor of a checkpoint is cut among ranks, each of which gives its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// How what the device holds is cut.
    shards: Shards,
    /// Which of its elements the tensor is made of.
    stored: Range<usize>,
    /// Columns of the device's rows, where those of the file are these: it's stored transposed.
    columns: Option<usize>,
}

/// Elements that are read at once.
struct Piece {
    /// In what the device holds.
    held: Vec<Range<usize>>,
    /// Where each is in the file's order, of those of a transposed tensor.
    order: Option<Vec<usize>>,
}

impl Cut {
    fn of(
        (weights, handles): (&Weights, &Handles),
        graph: &Graph,
        ranks: usize,
        saved: &SavedTensor,
    ) -> Self {
        let whole = |tensor: Tensor| graph.whole(tensor).elements();
        let of = |description: &Parameter, part: usize| {
            let (columns, part) = (description.columns(), &description.parts[part]);
            let stored = part.rows.start * columns..part.rows.end * columns;
            (stored, part.transposed.then_some(columns))
        };
        // What has a shard decides: a master's, of a weight that all ranks hold in 16 bits.
        let (tensors, (stored, columns)) = match saved.place {
            Place::Trained { parameter, part } => {
                let (descriptions, tensors) = weights.trained();
                let remainder = handles.remainders().get(parameter).copied();
                (vec![Some(tensors[parameter]), remainder], of(&descriptions[parameter], part))
            }
            Place::Frozen { parameter, part } => {
                let tensor = weights.tensors()[parameter];
                (vec![Some(tensor)], of(&weights.parameters()[parameter], part))
            }
            Place::State(index) => {
                let tensor = handles.states()[index].tensor;
                (vec![Some(tensor)], (0..whole(tensor), None))
            }
            Place::Updates(updates) => (vec![Some(updates)], (0..1, None)),
        };
        let mut tensors = tensors.into_iter().flatten();
        let held = tensors.clone().find_map(|tensor| graph.sharded.get(&tensor));
        let shards = match held {
            Some(sharded) => sharded.shards.clone(),
            None => Shards::of(tensors.next().map_or(0, whole), ranks, GRANULE),
        };
        Self { shards, stored, columns }
    }

    /// Elements of the device's that a rank gives, counted from the first of the tensor's.
    fn given(&self, rank: usize) -> Vec<Range<usize>> {
        let from = self.stored.start;
        let runs = self.shards.held(rank, &self.stored).into_iter();
        runs.map(|run| run.whole - from..run.whole - from + run.len).collect()
    }

    /// Elements of the file's tensor that a rank gives, in their order.
    pub fn runs(&self, rank: usize) -> Vec<Range<usize>> {
        let given = self.given(rank);
        let Some(columns) = self.columns else { return given };
        let rows = self.stored.len() / columns.max(1);
        let mut runs: Vec<Range<usize>> = vec![];
        for column in 0..columns {
            for rows_of in given.iter().map(|run| rows_of(run, columns, column)) {
                let run = column * rows + rows_of.start..column * rows + rows_of.end;
                match runs.last_mut() {
                    Some(last) if last.end == run.start => last.end = run.end,
                    _ if run.is_empty() => {}
                    _ => runs.push(run),
                }
            }
        }
        runs
    }

    /// Elements that a rank gives.
    pub fn given_by(&self, rank: usize) -> usize {
        self.given(rank).iter().map(Range::len).sum()
    }

    /// What a rank reads to give its elements, in the file's order.
    fn pieces(&self, rank: usize) -> Vec<Piece> {
        let (given, from) = (self.given(rank), self.stored.start);
        let Some(columns) = self.columns else {
            let pieces = given.into_iter().flat_map(|run| {
                let starts = run.clone().step_by(PIECE);
                starts.map(move |start| from + start..from + run.end.min(start + PIECE))
            });
            return pieces.map(|run| Piece { held: vec![run], order: None }).collect();
        };
        let rows: usize = given.iter().map(|run| run.len().div_ceil(columns.max(1)) + 1).sum();
        let width = (PIECE / rows.max(1)).max(1);
        let of_columns = |left: usize| {
            let right = columns.min(left + width);
            let (mut held, mut first) = (vec![], vec![]);
            let mut count = 0;
            for run in &given {
                for row in run.start / columns..run.end.div_ceil(columns) {
                    let start = run.start.max(row * columns + left);
                    let end = run.end.min(row * columns + right);
                    if start < end {
                        held.push(from + start..from + end);
                        first.push((start, count));
                        count += end - start;
                    }
                }
            }
            // The file's rows are the device's columns.
            let mut order = Vec::with_capacity(count);
            for column in left..right {
                for (range, &(start, at)) in held.iter().zip(&first) {
                    let element = start / columns * columns + column;
                    if (start..start + range.len()).contains(&element) {
                        order.push(at + element - start);
                    }
                }
            }
            Piece { held, order: Some(order) }
        };
        (0..columns).step_by(width).map(of_columns).collect()
    }
}

/// Rows of which a run of elements in rows of `columns` has the one in `column`.
fn rows_of(run: &Range<usize>, columns: usize, column: usize) -> Range<usize> {
    let from = |element: usize| element.saturating_sub(column).div_ceil(columns);
    from(run.start)..from(run.end).max(from(run.start))
}

impl Trainer {
    /// How a tensor of a checkpoint is cut among the ranks.
    pub fn cut(&self, saved: &SavedTensor) -> Cut {
        let graph = &self.session.plan().graph;
        Cut::of((&self.weights, &self.handles), graph, self.config().ranks, saved)
    }

    /// Gives `take` the values that this rank gives of a tensor of a checkpoint, in the order of [`Cut::runs`] and piece by piece. No other
    /// rank is asked.
    ///
    /// # Errors
    /// What `take` fails with, and those of the device.
    pub async fn give_values<E: From<TrainError>>(
        &mut self,
        saved: &SavedTensor,
        mut take: impl FnMut(&[f32]) -> Result<(), E>,
    ) -> Result<(), E> {
        for Piece { held, order } in self.cut(saved).pieces(self.rank()) {
            let values = self.held_of(saved.place, &held, Of::Own).await?;
            match order {
                None => take(&values)?,
                Some(order) => {
                    let values: Vec<f32> = order.into_iter().map(|at| values[at]).collect();
                    take(&values)?;
                }
            }
        }
        Ok(())
    }
}

impl Planned {
    /// Bytes of the tensors of a checkpoint of this run that one rank writes, the most of any: all of them, where ranks hold no shards.
    pub fn given_bytes(&self) -> u64 {
        let (graph, ranks) = (&self.plan.graph, self.config().ranks);
        if self.config().sharded() == Shard::Nothing {
            return self.checkpoint_bytes();
        }
        let mut given = vec![0; ranks];
        let states = saved_states(&self.weights, &self.handles, graph);
        for saved in saved_weights(&self.weights, &self.handles).iter().chain(&states) {
            let cut = Cut::of((&self.weights, &self.handles), graph, ranks, saved);
            for (rank, given) in given.iter_mut().enumerate() {
                *given += (cut.given_by(rank) * saved.ty.dtype.size()) as u64;
            }
        }
        given.into_iter().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(shards: Shards, stored: Range<usize>, columns: Option<usize>) -> Cut {
        Cut { shards, stored, columns }
    }

    /// Whichever way a tensor is stored and cut, each element of its file is given once, and read in the order that it's written in.
    #[test]
    fn every_element_is_given_once_and_in_order() {
        for (elements, ranks, granule) in
            [(60, 3, 4), (60, 4, 7), (60, 1, 1), (60, 7, 16), (60, 2, 64)]
        {
            for stored in [0..60, 12..48, 24..60, 0..6] {
                for columns in [None, Some(6), Some(3), Some(2), Some(1)] {
                    let cut = cut(Shards::of(elements, ranks, granule), stored.clone(), columns);
                    let mut found = vec![0; stored.len()];
                    for rank in 0..ranks {
                        let runs = cut.runs(rank);
                        assert!(runs.windows(2).all(|two| two[0].end < two[1].start), "{runs:?}");
                        let written: Vec<usize> = runs.into_iter().flatten().collect();
                        assert_eq!(written.len(), cut.given_by(rank));
                        written.iter().for_each(|&element| found[element] += 1);
                        let mut read = vec![];
                        for Piece { held, order } in cut.pieces(rank) {
                            let held: Vec<usize> = held.into_iter().flatten().collect();
                            let order = order.unwrap_or_else(|| (0..held.len()).collect());
                            read.extend(order.into_iter().map(|at| held[at] - stored.start));
                        }
                        // Where an element of the device's is in the file.
                        let place = |element: usize| match columns {
                            None => element,
                            Some(columns) => {
                                element % columns * (stored.len() / columns) + element / columns
                            }
                        };
                        let read: Vec<usize> = read.into_iter().map(place).collect();
                        assert_eq!(read, written, "{cut:?}, rank {rank}");
                    }
                    assert!(found.iter().all(|&times| times == 1), "{cut:?}: {found:?}");
                }
            }
        }
    }
}
