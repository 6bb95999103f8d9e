//! The reason why a step wasn't finite: its passes are replayed op by op, without a change to weights or state.

use tightrope_core::{NonFinite, Tensor};

use super::parts::in_order;
use super::{Outcome, TrainError, Trainer};
use crate::inputs::Batch;

/// Why a step wasn't finite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The first output that isn't finite, at the loss scale of the step.
    Output {
        /// The output.
        output: NonFinite,
        /// The rank whose micro-batch it is of: the first, if several make it.
        rank: usize,
    },
    /// Every output of every pass is finite, so the sums over passes, ranks or squares of gradients overflow.
    Sums,
    /// Unknown: [`crate::TrainerConfig::consume_gradients`] has updated weights before the step was known not to be finite.
    Overwritten,
}

impl Trainer {
    /// Replays the passes of a step that wasn't updated, op by op, and says why it wasn't: at the loss scale of its `outcome`, before the
    /// step or after it. Weights, optimizer state, sums of gradients and the loss scale keep their bits. All ranks ask for the same.
    ///
    /// # Errors
    /// As [`Trainer::step`].
    pub async fn explain(
        &mut self,
        step: u64,
        batch: &Batch<'_>,
        outcome: &Outcome,
    ) -> Result<Cause, TrainError> {
        if self.config.consume_gradients {
            return Ok(Cause::Overwritten);
        }
        self.session.begin_look();
        let found = self.first_non_finite(step, batch, outcome).await;
        let ended = self.session.end_look();
        let found = found?;
        ended?;
        self.first_of_ranks(found)
    }

    /// The first output of this rank's passes that isn't finite. The session looks.
    async fn first_non_finite(
        &mut self,
        step: u64,
        batch: &Batch<'_>,
        outcome: &Outcome,
    ) -> Result<Option<Finding>, TrainError> {
        let (shorter, values) = self.of_length(batch)?;
        let ordered = self.by_pass(&values);
        let values = in_order(&values, &ordered);
        let factors = self.factors(shorter, &values)?;
        let noise = self.noise_of(shorter, batch)?;
        let handles = self.step_handles()?;
        let loss_sum = handles.loss_sum;
        let last = shorter.map_or(handles.update.ok, |index| self.shorter()[index].ok);
        // Sums of losses still hold what went wrong.
        let of_metrics = handles.metrics.iter().map(|&(_, sum)| sum);
        let sums: Vec<Tensor> = match loss_sum {
            Some(sum) => [sum].into_iter().chain(of_metrics).collect(),
            None => vec![],
        };
        let mut written: Vec<(Tensor, f32)> = sums.into_iter().map(|sum| (sum, 0.0)).collect();
        let scale = self.handles.loss_scale().zip(outcome.loss_scale);
        written.extend(scale.map(|(tensors, scale)| (tensors.scale, scale)));
        for (tensor, value) in written {
            self.session.keep(tensor).await?;
            self.session.write_values(tensor, &[value])?;
        }
        let program = self.pass_program(shorter, loss_sum.is_some())?;
        let mut found = None;
        for (pass, micro) in self.own_passes().enumerate() {
            self.write_pass(step, (shorter, &values), (&factors, &noise), micro)?;
            let of_pass = self.session.first_non_finite_at(program, last).await?;
            let at = |output: &NonFinite| [pass, self.position(program, output)];
            found = found.or(of_pass.map(|output| Finding { at: at(&output), output }));
            // Other ranks go on to the end, and may exchange on the way.
            if found.is_some() && self.config.ranks == 1 {
                break;
            }
        }
        Ok(found)
    }

    /// The position in a program of the op that made an output.
    fn position(&self, program: usize, output: &NonFinite) -> usize {
        let graph = &self.session.plan().graph;
        let nodes = &graph.programs[program].nodes;
        let is_made = |tensor: &Tensor| graph.info(*tensor).name == output.tensor;
        nodes.iter().position(|node| node.outputs.iter().any(is_made)).unwrap_or(nodes.len())
    }

    /// The first finding of all ranks: what one of them receives was made before.
    fn first_of_ranks(&mut self, own: Option<Finding>) -> Result<Cause, TrainError> {
        #[cfg(not(target_family = "wasm"))]
        if self.config.ranks > 1 {
            let said = own.as_ref().map_or_else(String::new, Finding::said);
            let all = self.bytes_of_ranks("where a step isn't finite", said.into_bytes())?;
            let heard = all.iter().enumerate();
            let heard = heard.filter_map(|(rank, bytes)| Some((rank, Finding::heard(bytes)?)));
            let first = heard.min_by_key(|(rank, finding)| (finding.at, *rank));
            let cause = |(rank, Finding { output, .. })| Cause::Output { output, rank };
            return Ok(first.map_or(Cause::Sums, cause));
        }
        let rank = self.rank;
        Ok(own.map_or(Cause::Sums, |Finding { output, .. }| Cause::Output { output, rank }))
    }
}

/// An output that isn't finite, and the pass and op that made it.
struct Finding {
    #[cfg_attr(
        target_family = "wasm",
        expect(dead_code, reason = "a browser's tab has no other ranks")
    )]
    at: [usize; 2],
    output: NonFinite,
}

#[cfg(not(target_family = "wasm"))]
impl Finding {
    /// Bytes that the other ranks receive.
    fn said(&self) -> String {
        let Self { at: [pass, node], output: NonFinite { op, tensor, element } } = self;
        format!("{pass}\n{node}\n{element}\n{op}\n{tensor}")
    }

    /// The finding of another rank; `None` if it found nothing.
    fn heard(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let mut parts = text.splitn(5, '\n');
        let mut number = || parts.next()?.parse().ok();
        let (pass, node, element) = (number()?, number()?, number()?);
        let (op, tensor) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        Some(Self { at: [pass, node], output: NonFinite { op, tensor, element } })
    }
}
