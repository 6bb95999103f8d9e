//! Tensors that are alive at the peak, those that all blocks have as one.

use std::collections::BTreeMap;

use serde::Serialize;
use tightrope_core::plan::Alive;

/// Tensors of one type that are the same of every block.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Group {
    /// With `*` for the number of the block, where there are several.
    pub name: String,
    /// Dtype and shape.
    #[serde(rename = "type")]
    pub ty: String,
    /// Class of each.
    pub class: &'static str,
    /// How many there are.
    pub count: usize,
    /// Bytes of all together.
    pub bytes: u64,
}

/// The tensors by what they are in their block, those that take the most first.
pub fn grouped(alive: &[Alive]) -> Vec<Group> {
    let mut groups: BTreeMap<(String, &str, &str), Group> = BTreeMap::new();
    for Alive { name, ty, class, bytes } in alive {
        let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit());
        let words: Vec<&str> =
            name.split('.').map(|word| if is_number(word) { "*" } else { word }).collect();
        let pattern = words.join(".");
        let group = groups.entry((pattern.clone(), ty, class)).or_insert_with(|| Group {
            name: name.clone(),
            ty: ty.clone(),
            class,
            count: 0,
            bytes: 0,
        });
        if group.count == 1 {
            group.name = pattern;
        }
        group.count += 1;
        group.bytes += bytes;
    }
    let mut groups: Vec<Group> = groups.into_values().collect();
    groups.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    groups
}
