//! `Variables`: an environment, and which of its variables a launcher that isn't known may have set.

use std::collections::BTreeMap;
use std::env;

use super::LaunchedError;

/// The variables of an environment, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Variables(BTreeMap<String, String>);

/// Pairs of endings of names: of a rank, and of the number of ranks, after the same beginning.
const PAIRS: [(&str, &[&str]); 5] = [
    ("_RANK", &["_SIZE", "_WORLD_SIZE", "_COUNT", "_RANKS", "_NRANKS", "_NPROCS", "_NUM_RANKS"]),
    ("_WORLD_RANK", &["_WORLD_SIZE", "_SIZE"]),
    ("_RANKID", &["_SIZE", "_WORLD_SIZE", "_NRANKS"]),
    ("_PROCID", &["_NTASKS", "_NPROCS", "_SIZE", "_WORLD_SIZE"]),
    ("_PROCESS_ID", &["_NUM_PROCESSES", "_PROCESS_COUNT"]),
];

/// Ends of names that nothing but launchers uses, so that one of them alone tells of several processes.
const ALONE: [&str; 4] = ["_WORLD_RANK", "_RANKID", "PMI_RANK", "PMIX_RANK"];

/// The end of the name of how many processes there are, which tells of several where it's more than 1.
const WORLD: &str = "_WORLD_SIZE";

/// Parts of names that count something else than all processes: of Slurm, those of a job that no `srun` has started.
const PARTIAL: [&str; 7] = ["LOCAL", "NODE", "GROUP", "ROLE", "CROSS", "TIGHTROPE", "SLURM"];

impl Variables {
    /// The variables of this process that are text.
    pub(crate) fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(env::vars_os().filter_map(text).collect())
    }

    #[cfg(test)]
    pub(crate) fn new(variables: &[(&str, &str)]) -> Self {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        Self(variables.iter().map(owned).collect())
    }

    /// A variable; `None` where it isn't set, or is empty as a job's template leaves it.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// A variable as a number.
    pub(super) fn number(&self, name: &'static str) -> Option<Result<usize, LaunchedError>> {
        let value = self.get(name)?;
        let wrong = |_| LaunchedError::Number { name, value: value.to_owned() };
        Some(value.parse().map_err(wrong))
    }

    /// The number of ranks that a variable says: a number, or entries of a list.
    pub(super) fn count(&self, name: &str) -> Option<usize> {
        let value = self.get(name)?;
        Some(value.parse().unwrap_or_else(|_| value.split(',').count()))
    }

    /// Variables with their values, for people.
    pub(super) fn shown<'a>(&self, names: impl Iterator<Item = &'a str>) -> String {
        let set = names.filter_map(|name| Some(format!("{name}={}", self.get(name)?)));
        set.collect::<Vec<_>>().join(", ")
    }

    /// Variables by which a launcher that isn't known says that this process is one of several.
    pub(super) fn unknown(&self) -> Option<String> {
        let mut counted = self.0.keys().filter_map(|name| self.one_of_several(name));
        counted.next()
    }

    /// A variable, with how many there are, where it says which of several processes this is.
    fn one_of_several(&self, name: &str) -> Option<String> {
        let number = |name: &str| self.get(name)?.parse::<usize>().ok();
        number(name).filter(|_| !PARTIAL.iter().any(|part| name.contains(part)))?;
        let pairs = PAIRS.iter().filter_map(|(rank, counts)| {
            let beginning = name.strip_suffix(rank)?;
            counts
                .iter()
                .map(|count| format!("{beginning}{count}"))
                .find(|size| number(size).is_some())
        });
        if let Some(size) = pairs.into_iter().next() {
            let several = number(&size)? > 1;
            return several.then(|| self.shown([name, &size].into_iter()));
        }
        let of_launchers = ALONE.iter().any(|end| name.ends_with(end));
        let world = name.ends_with(WORLD) && number(name)? > 1;
        (of_launchers || world).then(|| self.shown([name].into_iter()))
    }
}
