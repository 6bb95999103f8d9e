//! Finding settings by name, and suggesting the one that was meant.

use super::list::{LIST, TABLES};
use super::setting::Setting;

/// The setting of this key, also of one that it had in an earlier version.
pub fn find(key: &str) -> Option<&'static Setting> {
    LIST.iter().find(|setting| setting.key == key || setting.old_keys.contains(&key))
}

/// The names of the keys of `table`, in order.
pub(super) fn names(table: &str) -> impl Iterator<Item = &'static str> {
    LIST.iter().filter(move |setting| setting.table() == table).map(Setting::name)
}

/// The first setting with this name, in whatever table.
pub(super) fn of_name(name: &str) -> Option<&'static Setting> {
    LIST.iter().find(|setting| setting.name() == name)
}

/// The names of the tables, in order.
pub(super) fn tables() -> impl Iterator<Item = &'static str> {
    TABLES.iter().map(|(table, _)| *table)
}

/// The candidate that `word` most likely means, if any is near.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let word = word.to_lowercase().replace('-', "_");
    let elsewhere = LIST.iter().find(|setting| setting.elsewhere.iter().any(|name| *name == word));
    let meant = elsewhere.map_or(word.as_str(), |setting| setting.name());
    let near = candidates.into_iter().filter_map(|candidate| {
        let distance = strsim::damerau_levenshtein(meant, candidate);
        // A third of the letters wrong still reads as the word; more is a guess.
        let length = meant.chars().count().max(candidate.len());
        (distance <= (length / 3).max(1) && distance < length).then_some((distance, candidate))
    });
    near.min_by_key(|(distance, _)| *distance).map(|(_, candidate)| candidate)
}

/// What to do about the unknown key `key`.
pub(super) fn help_for(key: &str) -> String {
    let (table, name) = key.split_once('.').unwrap_or(("", key));
    let known_table = tables().any(|known| known == table);
    let near = match (nearest(name, names(table)), nearest(table, tables())) {
        (Some(near), _) => Some(format!("{table}.{near}")),
        (None, Some(near_table)) if !known_table => {
            nearest(name, names(near_table)).map(|name| format!("{near_table}.{name}"))
        }
        _ => nearest(name, LIST.iter().map(Setting::name))
            .and_then(of_name)
            .map(|setting| setting.key.to_owned()),
    };
    let takes = if known_table {
        format!("`{table}` takes {}", names(table).collect::<Vec<_>>().join(", "))
    } else {
        tables_help()
    };
    match near {
        Some(near) => format!("did you mean `{near}`? {takes}"),
        None => takes,
    }
}

/// What to do about the unknown table `name`, or about a key of this name outside of a table.
pub(super) fn help_for_table(name: &str) -> String {
    if let Some(near) = nearest(name, tables()) {
        return format!("did you mean `[{near}]`?");
    }
    match nearest(name, LIST.iter().map(Setting::name)).and_then(of_name) {
        Some(setting) => {
            format!("did you mean `{}` in `[{}]`?", setting.name(), setting.table())
        }
        None => tables_help(),
    }
}

fn tables_help() -> String {
    format!("the tables are {}", tables().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestions() {
        let train = || names("train");
        assert_eq!(nearest("lrr", train()), Some("lr"));
        assert_eq!(nearest("min-lr", train()), Some("min_lr"));
        assert_eq!(nearest("stpes", train()), Some("steps"));
        assert_eq!(nearest("learning_rate", train()), Some("lr"));
        assert_eq!(nearest("Weight_Decay", train()), Some("weight_decay"));
        assert_eq!(nearest("colour", train()), None);
        assert_eq!(nearest("x", train()), None);
    }

    #[test]
    fn old_keys_are_found() {
        assert_eq!(find("memory.checkpoint").unwrap().key, "memory.recompute");
        assert_eq!(find("run.checkpoint_every").unwrap().key, "run.save_every");
        assert!(find("memory.check").is_none());
    }
}
