//! What a model answers to held-out problems, and how often it's right.

use tightrope_data::Problem;
use tightrope_nn::Sampling;

use super::Run;
use crate::error::Result;

impl Run<'_> {
    /// The first `count` held-out problems, each with what the model answers; `None` where the data isn't problems.
    ///
    /// # Errors
    /// Sequences that no problem fits, and a device that is lost again and again.
    pub async fn answers_async(&mut self, count: u64) -> Result<Option<Vec<(Problem, String)>>> {
        let Some(problems) = self.data().problems(self.config())? else { return Ok(None) };
        let mut answers = vec![];
        for problem in (0..count).map(|index| problems.held_out(index)) {
            let (mut given, length) = (String::new(), problem.answer.len());
            let mut show = |piece: &str| {
                given += piece;
                true
            };
            let (asked, how) = (&problem.question, Sampling::GREEDY);
            self.generate_async(asked, length, &how, &mut show).await?;
            answers.push((problem, given));
        }
        Ok(Some(answers))
    }

    /// Part of the first `problems` held-out problems that is answered exactly, or of the first `images` held-out images that
    /// is told rightly; `None` where the data has no answers.
    ///
    /// # Errors
    /// As [`Run::answers_async`] and [`Run::evaluate_async`].
    pub async fn accuracy_async(&mut self, problems: u64, images: usize) -> Result<Option<f64>> {
        if let Some(answers) = self.answers_async(problems).await? {
            let right = answers.iter().filter(|(problem, given)| problem.answer == *given).count();
            return Ok(Some(right as f64 / answers.len().max(1) as f64));
        }
        if self.data().images().is_none() {
            return Ok(None);
        }
        let evaluation = self.evaluate_async(Some(images)).await?;
        Ok(evaluation.and_then(|it| it.metrics.get("accuracy").copied()))
    }
}
