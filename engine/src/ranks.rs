//! The processes that train one model together: how a run finds the others, and what all must have alike.

use std::time::Duration;

#[cfg(unix)]
use std::{num::NonZeroUsize, process::Command, sync::atomic::AtomicBool};

use anyhow::anyhow;
use tightrope_core::{Backend, Link, Linked, Ranks, all_overlap, link};
use tightrope_ranks::{AgreeError, Connected, Launched, agree, connect};

use crate::error::{Error, Help as _, Result};
use crate::recipe::{Planned, Recipe};
use crate::settings::Settings;
use crate::units::human_bytes;

#[cfg(unix)]
pub use tightrope_ranks::Ended;
pub use tightrope_ranks::exit;
#[cfg(unix)]
pub use tightrope_ranks::{GUARDED, stand_by};

/// Help where a rank doesn't answer.
const ANSWERS: &str = "see what the rank says that is named, or wait longer with --rank-timeout";

/// The ranks that this process was launched with, and its place among them.
pub struct Together {
    ranks: Box<dyn Ranks>,
    launched: Launched,
    /// Connections that this rank has ignored while ranks met; `None` if there were none.
    pub note: Option<String>,
}

impl Together {
    /// Connects with the ranks that this process was launched with, and waits for them as long as the settings say; nothing where it was
    /// launched alone.
    ///
    /// # Errors
    /// An environment that contradicts itself, no MPI, and ranks that can't be reached or are of another version.
    pub fn connect(settings: &Settings) -> Result<Option<Self>> {
        const HELP: &str = "launch every rank alike: mpirun -n 4 tightrope train …";
        let launched = Launched::from_env().help(HELP)?;
        let time_out = Duration::from_secs(settings.run.rank_timeout);
        let connected = connect(time_out, settings.run.insecure_ranks).help(HELP)?;
        let together = |(Connected { ranks, note }, launched)| Self { ranks, launched, note };
        Ok(connected.zip(launched).map(together))
    }

    /// Whether this is the rank that speaks, and that writes files.
    pub fn is_first(&self) -> bool {
        self.launched.rank == 0
    }

    /// Puts into the settings how many ranks there are.
    ///
    /// # Errors
    /// Settings that name another number of ranks.
    pub fn describe(&self, settings: &mut Settings) -> Result<()> {
        let (count, said) = (self.launched.count, settings.run.ranks);
        if settings.is_said("run.ranks") && said != count {
            let message = format!("`run.ranks` is {said}, and {count} processes were launched");
            return Err(Error::usage(anyhow!(message), "leave `run.ranks` out"));
        }
        settings.run.ranks = count;
        Ok(())
    }

    /// Holds that all ranks have the same settings and data.
    ///
    /// # Errors
    /// What differs, and on which rank.
    pub fn agree(&mut self, recipe: &Recipe) -> Result<()> {
        let facts = recipe.facts()?;
        let facts: Vec<(&str, &str)> =
            facts.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.compare(&facts, "give every rank the same settings and files")
    }

    /// Has no rank plan to exchange beside other ops where the device of one can't.
    ///
    /// # Errors
    /// A rank that doesn't answer.
    pub fn agree_on_overlap(&mut self, recipe: &mut Recipe, device: &dyn Backend) -> Result<()> {
        let all = all_overlap(device, &mut *self.ranks);
        if !all.help(ANSWERS)? {
            recipe.step.config.options.overlap = false;
        }
        Ok(())
    }

    /// Holds that all ranks have made the same plan.
    ///
    /// # Errors
    /// A rank whose plan is another one.
    pub fn agree_on_plan(&mut self, planned: &Planned) -> Result<()> {
        const HELP: &str = "give every rank the same --memory: devices have not equally much free";
        let (choices, bytes) =
            (planned.json()?["choices"].to_string(), planned.step.plan.peak_bytes());
        let shared = planned.step.config().context_ranks;
        let plan = format!("{choices} of contexts of {shared} ranks in {bytes} bytes");
        self.compare(&[("plan", &plan)], HELP)
    }

    /// Holds that all ranks have the same facts; `help` is for ranks that differ.
    fn compare(&mut self, facts: &[(&str, &str)], help: &str) -> Result<()> {
        agree(&mut *self.ranks, facts).map_err(|error| match error {
            AgreeError::Differ(error) => Error::failed(error, help),
            AgreeError::Ranks(error) => Error::failed(error, ANSWERS),
        })
    }

    /// Links the devices of all ranks, so that they send to each other by themselves, where each can; what there is to tell of it.
    ///
    /// # Errors
    /// A rank that doesn't answer.
    pub fn link(&mut self, device: &mut dyn Backend) -> Result<Option<String>> {
        let found = link(device, &mut *self.ranks).help(ANSWERS)?;
        Ok(match found {
            Link::Devices(Linked { carrier, bytes, .. }) => {
                let bytes = bytes.map_or(String::new(), |bytes| {
                    format!(", and holds {} of each besides the plan", human_bytes(bytes))
                });
                Some(format!("{carrier} carries what ranks exchange from GPU to GPU{bytes}"))
            }
            Link::Hosts(why) => why
                .map(|why| format!("the hosts carry what ranks exchange, and not the GPUs: {why}")),
        })
    }

    /// The way to the others, for [`crate::run::Parts::ranks`].
    pub fn into_ranks(self) -> Box<dyn Ranks> {
        self.ranks
    }
}

/// Runs a command as so many ranks on this machine, by the `mpirun` that is found, and waits for them. When `stop` is set, they are asked
/// to end, and have `grace` to.
///
/// # Errors
/// No `mpirun`, and one that can't be started.
#[cfg(unix)]
pub fn launch(
    ranks: NonZeroUsize,
    command: &Command,
    grace: Duration,
    stop: &AtomicBool,
) -> Result<Ended> {
    const HELP: &str = "put the mpirun of Open MPI or MPICH 5 on PATH";
    let launch = tightrope_ranks::Launch::find(None).help(HELP)?;
    launch.run(ranks.get(), command, grace, stop).help(HELP)
}

/// Refuses settings of several ranks where there is only this process.
///
/// # Errors
/// Where they are of several.
pub fn refuse_alone(settings: &Settings) -> Result<()> {
    match settings.run.ranks {
        1 => Ok(()),
        ranks => {
            let message = format!("`run.ranks` is {ranks}, and this process was launched alone");
            let help = format!("launch it with: mpirun -n {ranks} tightrope train …");
            Err(Error::usage(anyhow!(message), help))
        }
    }
}
