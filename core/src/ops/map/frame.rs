//! The launches of one segment of a map.

use std::ops::Range;

use super::Map;
use crate::dialect::{self, Exact, Read};
use crate::launch::{Launch, Limits, Place};
use crate::ops::windows::gcd;
use crate::random::SHARD_KEY_WORDS;

/// One segment of a map with its tensors.
pub(super) struct Frame<'a> {
    pub(super) map: &'a Map,
    /// Formula input, its tensor, and its slot among the collected numbers.
    pub(super) inputs: Vec<(usize, Place, Option<usize>)>,
    pub(super) outputs: Vec<Place>,
    pub(super) key: Option<Place>,
    pub(super) collected: Option<Place>,
}

/// Threads of a workgroup where the device takes as many, and elements that each makes.
const THREADS: u32 = 64;
const PER_THREAD: u64 = 4;

/// Elements of a launch at most, so that kernels can count on from what stands for the first one's index.
const MOST: u64 = 1 << 31;

impl Frame<'_> {
    /// Launches over ranges of elements that a binding can hold.
    pub(super) fn launches(&self, limits: &Limits) -> Vec<Launch> {
        let elements = self.outputs[0].elements;
        let places = || self.inputs.iter().map(|(_, place, _)| place).chain(&self.outputs);
        let granule = places().map(Place::granule).max().unwrap_or(1);
        let held = places().map(|place| limits.binding_elements(place.dtype)).min();
        let step = (held.unwrap_or(MOST).min(MOST) / granule).max(1) * granule;
        let starts = (0..elements).step_by(usize::try_from(step).unwrap_or(usize::MAX));
        starts.map(|start| self.launch(limits, start..(start + step).min(elements))).collect()
    }

    /// What stands for the index of a launch's first element, in 32 bits where that's possible: what repeats is alike
    /// after a multiple of all periods. Random numbers need the index itself.
    fn first(&self, start: u64) -> u64 {
        if self.key.is_some() {
            return start;
        }
        let periods = self.inputs.iter().map(|(_, place, _)| place.elements.max(1));
        let repeated = periods.filter(|&period| period < self.outputs[0].elements);
        start % repeated.fold(1, |all, period| all / gcd(all, period) * period)
    }

    pub(super) fn launch(&self, limits: &Limits, range: Range<u64>) -> Launch {
        let (map, elements) = (self.map, self.outputs[0].elements);
        let workgroup = THREADS.min(limits.workgroup);
        let count = range.end - range.start;
        let groups = count.div_ceil(PER_THREAD * u64::from(workgroup));
        let mut launch = Launch::new("map", "elements", workgroup, groups)
            .param("elements", count)
            .param("first", self.first(range.start))
            .counting_to(self.first(range.start) + count);
        let mut reads = vec![];
        for &(index, place, slot) in &self.inputs {
            let name = format!("in{index}");
            let read = match slot {
                Some(slot) => Read::Collected { index, slot },
                None if place.elements == elements => {
                    launch = launch.bind_four(name, place.window(range.clone()), true);
                    Read::Each { index }
                }
                None if place.elements == 1 => {
                    launch = launch.bind(name, place);
                    Read::One { index }
                }
                None => {
                    let aligned = place.elements.is_multiple_of(PER_THREAD);
                    launch = launch
                        .bind_four(name, place, aligned)
                        .param(format!("period{index}"), place.elements);
                    Read::Repeated { index, aligned }
                }
            };
            reads.push(read);
        }
        let mut writes = vec![];
        for (index, place) in self.outputs.iter().enumerate() {
            let replaced = map.in_place.iter().find(|&&(output, _)| output == index);
            let name = match replaced {
                Some((_, input)) => format!("in{input}"),
                None => format!("out{index}"),
            };
            if replaced.is_none() {
                launch = launch.bind_four(name.clone(), place.window(range.clone()), true);
            }
            writes.push(name);
        }
        if let Some(numbers) = self.collected {
            launch = launch.bind("numbers", numbers);
        }
        // A browser's tab has no shards, and `infer` refuses their keys there.
        let of_shard = !cfg!(target_family = "wasm")
            && self.key.is_some_and(|key| key.elements == SHARD_KEY_WORDS as u64);
        if let Some(key) = self.key {
            launch = launch.bind("key", key);
        }
        if of_shard {
            launch = launch.param("shard", elements);
        }
        let steps: u64 = map.formulas.iter().map(|formula| formula.steps() as u64).sum();
        let mut launch = launch.costing(steps * count);
        let exact = Exact::of(self.outputs.iter().map(|place| place.dtype));
        let dialect = limits.dialect();
        launch.generated =
            dialect::print_map(&map.formulas, (&reads, &writes), of_shard, exact, dialect);
        launch
    }
}
