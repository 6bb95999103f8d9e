//! Names of modules that adapters are for, as PEFT tells them.

use std::collections::BTreeMap;

use super::{ALL_LINEAR, Lora, REGEX};
use crate::error::{Error, Result};

/// Tells which modules a [`Lora`] is for, with its patterns compiled.
pub(super) struct Matching<'a> {
    lora: &'a Lora,
    patterns: BTreeMap<String, Pattern>,
}

/// Rank and alpha of a module's adapter.
pub(super) type Numbers = (usize, f64);

impl<'a> Matching<'a> {
    /// Compiles the patterns of `lora`.
    ///
    /// # Errors
    /// [`Error::Setting`] for what is no regular expression.
    pub fn of(lora: &'a Lora) -> Result<Self> {
        let mut matching = Self { lora, patterns: BTreeMap::new() };
        let variant = &lora.variant;
        for (key, list) in [("lora.targets", &lora.targets), ("lora.exclude", &variant.exclude)] {
            for pattern in list.iter().filter_map(|name| name.strip_prefix(REGEX)) {
                matching.add(key, whole(pattern))?;
            }
        }
        for pattern in variant.ranks.keys() {
            matching.add("lora.rank_pattern", at_end(pattern))?;
        }
        for pattern in variant.alphas.keys() {
            matching.add("lora.alpha_pattern", at_end(pattern))?;
        }
        for name in &variant.saved {
            matching.add("lora.modules_to_save", part_of_path(name))?;
        }
        match variant.layers_pattern.as_slice() {
            [] => matching.add("lora.layers_pattern", ANY_LAYER.to_owned())?,
            list => {
                for name in list {
                    matching.add("lora.layers_pattern", layer_of(name))?;
                }
            }
        }
        Ok(matching)
    }

    fn add(&mut self, key: &'static str, pattern: String) -> Result<()> {
        let compiled = Pattern::new(&pattern).map_err(|problem| Error::Setting {
            key,
            problem: format!("`{pattern}`: {problem}"),
        })?;
        self.patterns.insert(pattern, compiled);
        Ok(())
    }

    fn matches(&self, pattern: &str, name: &str) -> bool {
        self.patterns.get(pattern).is_some_and(|compiled| compiled.is_match(name))
    }

    /// Entries of patterns and lists that are of no module: the settings, and the entries. `adapted` are the modules with adapters of `all`.
    pub fn unmatched(&self, all: &[&str], adapted: &[&str]) -> Vec<(&'static str, String)> {
        let variant = &self.lora.variant;
        let of_none = |pattern: &&String| {
            let pattern = at_end(pattern);
            !adapted.iter().any(|name| self.matches(&pattern, name))
        };
        let ranks = variant.ranks.keys().filter(of_none).map(|it| ("lora.rank_pattern", it));
        let alphas = variant.alphas.keys().filter(of_none).map(|it| ("lora.alpha_pattern", it));
        let excludes_none = |entry: &&String| {
            let list = std::slice::from_ref(*entry);
            !all.iter().any(|name| self.is_named(list, name, false))
        };
        let excluded = variant.exclude.iter().filter(excludes_none);
        let named = ranks.chain(alphas).chain(excluded.map(|it| ("lora.exclude", it)));
        let named = named.map(|(key, entry)| (key, entry.clone()));
        let missing =
            |layer: &&usize| !adapted.iter().any(|name| self.layer_of(name) == Some(**layer));
        let layers = variant.layers.iter().flatten().filter(missing);
        named.chain(layers.map(|layer| ("lora.layers", layer.to_string()))).collect()
    }

    /// True if the module `name` is trained whole and saved with the adapters: it, or one that it's in, has a name that ends so, in the midst of a word
    /// too.
    pub fn is_saved(&self, name: &str) -> bool {
        let dots = name.match_indices('.').map(|(at, _)| at).chain([name.len()]);
        let mut around = dots.map(|end| &name[..end]);
        around.any(|module| {
            self.lora.variant.saved.iter().any(|saved| module.ends_with(saved.as_str()))
        })
    }

    /// True if the module `name`, which is a linear layer and the model's head where `is_head`, has an adapter.
    pub fn is_adapted(&self, name: &str, is_head: bool) -> bool {
        let variant = &self.lora.variant;
        let saved = variant.saved.iter().any(|saved| self.matches(&part_of_path(saved), name));
        if saved || self.is_named(&variant.exclude, name, is_head) {
            return false;
        }
        self.is_named(&self.lora.targets, name, is_head) && self.is_of_a_chosen_layer(name)
    }

    /// True if the list names the module, or one of its regular expressions matches all of its name.
    pub fn is_named(&self, list: &[String], name: &str, is_head: bool) -> bool {
        list.iter().any(|target| match target.strip_prefix(REGEX) {
            Some(pattern) => self.matches(&whole(pattern), name),
            None if target == ALL_LINEAR => !is_head,
            None => name
                .strip_suffix(target.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.ends_with('.')),
        })
    }

    fn is_of_a_chosen_layer(&self, name: &str) -> bool {
        let Some(layers) = &self.lora.variant.layers else { return true };
        self.layer_of(name).is_some_and(|layer| layers.contains(&layer))
    }

    /// The number of the layer that a module is of, if it's of one.
    fn layer_of(&self, name: &str) -> Option<usize> {
        match self.lora.variant.layers_pattern.as_slice() {
            [] => self.layer(ANY_LAYER, name),
            list => list.iter().find_map(|pattern| self.layer(&layer_of(pattern), name)),
        }
    }

    fn layer(&self, pattern: &str, name: &str) -> Option<usize> {
        self.patterns.get(pattern)?.index(name)
    }

    /// Rank and alpha of the adapter of the module `name`.
    ///
    /// # Errors
    /// [`Error::Setting`] where two patterns match and say different numbers: which of them comes first isn't known.
    pub fn numbers(&self, name: &str) -> Result<Numbers> {
        let Lora { rank, alpha, variant, .. } = self.lora;
        let rank = self.one_of("lora.rank_pattern", &variant.ranks, name)?.unwrap_or(*rank);
        let alpha = self.one_of("lora.alpha_pattern", &variant.alphas, name)?.unwrap_or(*alpha);
        Ok((rank, alpha))
    }

    fn one_of<T: Copy + PartialEq>(
        &self,
        key: &'static str,
        patterns: &BTreeMap<String, T>,
        name: &str,
    ) -> Result<Option<T>> {
        let mut found = patterns.iter().filter(|(it, _)| self.matches(&at_end(it), name));
        let Some((first, &number)) = found.next() else { return Ok(None) };
        match found.find(|(_, other)| **other != number) {
            None => Ok(Some(number)),
            Some((second, _)) => Err(Error::Setting {
                key,
                problem: format!(
                    "`{first}` and `{second}` both match `{name}`, with other numbers"
                ),
            }),
        }
    }
}

/// The first numbered part of a name that has a part before it and one behind.
const ANY_LAYER: &str = r"^.*?\.[^.]*\.(?P<idx>\d+)\.";

/// Matches all of a name, as `re.fullmatch` does.
fn whole(pattern: &str) -> String {
    format!(r"^(?:{pattern})$")
}

/// Matches the last parts of a name.
fn at_end(pattern: &str) -> String {
    format!(r"^(.*\.)?({pattern})$")
}

/// Matches a part of a name, with what lies before and behind it.
fn part_of_path(name: &str) -> String {
    format!(r"^(?:.*\.)?{name}(?:$|\..*)")
}

/// The number behind a part of a name.
fn layer_of(pattern: &str) -> String {
    format!(r"^(?:.*?\.)?{pattern}\.(?P<idx>\d+)\.")
}

/// A compiled regular expression of Python's syntax.
#[cfg(not(target_family = "wasm"))]
struct Pattern(fancy_regex::Regex);

#[cfg(not(target_family = "wasm"))]
impl Pattern {
    fn new(pattern: &str) -> std::result::Result<Self, String> {
        fancy_regex::Regex::new(pattern)
            .map(Self)
            .map_err(|error| format!("no regular expression that is known here ({error})"))
    }

    /// A pattern that takes too long to match doesn't.
    fn is_match(&self, name: &str) -> bool {
        self.0.is_match(name).unwrap_or(false)
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.0.captures(name).ok()??.name("idx")?.as_str().parse().ok()
    }
}

/// A page has no regular expressions.
#[cfg(target_family = "wasm")]
struct Pattern;

#[cfg(target_family = "wasm")]
impl Pattern {
    fn new(pattern: &str) -> std::result::Result<Self, String> {
        match pattern {
            // Read by adapters of chosen layers alone.
            ANY_LAYER => Ok(Self),
            _ => Err("patterns of adapters aren't read in a browser".to_owned()),
        }
    }

    fn is_match(&self, _: &str) -> bool {
        false
    }

    fn index(&self, _: &str) -> Option<usize> {
        None
    }
}
