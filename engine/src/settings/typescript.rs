//! The list of settings in TypeScript, for the page.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};
use tightrope_nn::ModelFamily;

use super::kind::{Form, Kind, Range};
use super::list::TABLES;
use super::setting::{PageField, Reads, Setting};
use super::write::json as plain;

/// Largest whole number that JavaScript tells from the next one.
const LARGEST_EXACT: i64 = (1 << 53) - 1;

const TYPES: &str = r#"/** What a setting accepts; `expected` follows "must be". */
export type Rule = { expected: string } & (
  | { type: "switch" }
  | { type: "choice"; choices: readonly (string | number)[] }
  | { type: "integer"; min: number; max: number }
  | { type: "number"; min: number; above?: true; below?: number }
  | { type: "form"; words: readonly string[]; pattern?: string; whole?: true }
  | { type: "text" }
  | { type: "list"; choices?: readonly string[] }
);

/** One line of the list of settings. */
export interface Setting {
  table: Table;
  key: string;
  /** Keys of earlier versions. */
  old: readonly string[];
  help: string;
  rule: Rule;
  /** Absent where the setting needs no value. */
  default?: string | number | boolean | readonly string[];
  /** Whether it may be `null`, which leaves it to the engine. */
  none?: true;
  /** What the models read that it is a setting of; absent where it is one of every model. */
  reads?: Reads;
  /** Under which the form shows it; settings without one have a control of their own. */
  label?: string;
  /** Whether the form folds it away. */
  more?: true;
  /** What an empty input means. */
  empty?: string;
}
"#;

/// A module with the settings of `list` that the page shows: their types, limits, defaults and descriptions.
pub fn typescript(list: &[Setting]) -> String {
    let shown = || list.iter().filter_map(|setting| Some((setting, setting.page?)));
    let tables: Vec<_> = TABLES
        .iter()
        .map(|(table, _)| *table)
        .filter(|table| shown().any(|(setting, _)| setting.table() == *table))
        .collect();
    let mut text =
        "// Made from the list of settings, engine/src/settings/list.rs: don't edit.\n\n"
            .to_owned();
    text += "/** The settings that the page shows. `null` leaves a value to the engine. */\n";
    text += "export interface Settings {\n";
    for table in &tables {
        let _ = writeln!(text, "  {table}: {{");
        for (setting, page) in shown().filter(|(setting, _)| setting.table() == *table) {
            let none = if may_be_none(setting, page) { " | null" } else { "" };
            let ty = type_of(setting.kind, page);
            let _ =
                writeln!(text, "    /** {} */\n    {}: {ty}{none};", setting.help, setting.name());
        }
        text += "  };\n";
    }
    text += "}\n\n";
    let _ = writeln!(text, "export const TABLES = {} as const;", json!(tables));
    text += "export type Table = (typeof TABLES)[number];\n\n";
    text += "/** What a model of each family reads. */\n";
    let reads =
        |family: &ModelFamily| format!("{}: {:?}", family.name(), Reads::of(*family).name());
    let reads: Vec<_> = ModelFamily::ALL.iter().map(reads).collect();
    let _ = writeln!(text, "export const READS = {{ {} }} as const;", reads.join(", "));
    text += "export type Reads = (typeof READS)[keyof typeof READS];\n\n";
    text += TYPES;
    text += "\nexport const SETTINGS: readonly Setting[] = [\n";
    for (setting, page) in shown() {
        let _ = writeln!(text, "  {},", line(setting, page));
    }
    text += "];\n";
    text
}

/// Whether the page may leave it to the engine.
fn may_be_none(setting: &Setting, page: PageField) -> bool {
    setting.default().is_none() && (page.empty.is_some() || page.label.is_none())
}

fn line(setting: &Setting, page: PageField) -> Json {
    let old: Vec<_> =
        setting.old_keys.iter().filter_map(|key| key.split('.').next_back()).collect();
    let mut line = json!({
        "table": setting.table(),
        "key": setting.name(),
        "old": old,
        "help": setting.describe(),
        "rule": rule(setting.kind, page),
    });
    if let Some(default) = setting.default() {
        line["default"] = plain(default);
    }
    if may_be_none(setting, page) {
        line["none"] = true.into();
    }
    if let Some(reads) = setting.reads {
        line["reads"] = reads.name().into();
    }
    if let Some(label) = page.label {
        line["label"] = label.into();
    }
    if page.more {
        line["more"] = true.into();
    }
    if let Some(empty) = page.empty {
        line["empty"] = empty.into();
    }
    line
}

fn rule(kind: Kind, page: PageField) -> Json {
    let mut rule = match (kind, page.words) {
        (_, Some(words)) => {
            return json!({ "type": "choice", "choices": words, "expected": format!("one of {}", words.join(", ")) });
        }
        (Kind::Switch, _) => json!({ "type": "switch" }),
        (Kind::Word(words), _) => json!({ "type": "choice", "choices": words() }),
        (Kind::OneOf(values), _) => json!({ "type": "choice", "choices": values }),
        (Kind::Whole(least, most), _) => {
            json!({ "type": "integer", "min": least, "max": most.min(LARGEST_EXACT) })
        }
        (Kind::Number(Range::Positive), _) => json!({ "type": "number", "min": 0, "above": true }),
        (Kind::Number(Range::NotNegative), _) => json!({ "type": "number", "min": 0 }),
        // The page only trains, for which something must be left.
        (Kind::Number(Range::Fraction | Range::Share), _) => {
            json!({ "type": "number", "min": 0, "below": 1 })
        }
        (Kind::Form(form), _) => form_rule(form),
        (Kind::Text | Kind::Path, _) => json!({ "type": "text" }),
        (Kind::List(item), _) => match item.words() {
            Some(words) => json!({ "type": "list", "choices": words }),
            None => json!({ "type": "list" }),
        },
    };
    rule["expected"] = kind.expected().into();
    rule
}

/// Where whole numbers are accepted, the page has no other notation but words.
fn form_rule(form: &Form) -> Json {
    match form.pattern {
        _ if form.whole => json!({ "type": "form", "words": form.words, "whole": true }),
        Some(pattern) => json!({ "type": "form", "words": form.words, "pattern": pattern }),
        None => json!({ "type": "form", "words": form.words }),
    }
}

fn type_of(kind: Kind, page: PageField) -> String {
    let quoted = |word: &&str| format!("{word:?}");
    let union = |words: &[&str]| words.iter().map(quoted).collect::<Vec<_>>().join(" | ");
    match (kind, page.words) {
        (_, Some(words)) => union(words),
        (Kind::Switch, _) => "boolean".to_owned(),
        (Kind::Word(words), _) => union(&words()),
        (Kind::OneOf(values), _) => {
            values.iter().map(i64::to_string).collect::<Vec<_>>().join(" | ")
        }
        (Kind::Whole(..) | Kind::Number(_), _) => "number".to_owned(),
        (Kind::Text | Kind::Path, _) => "string".to_owned(),
        (Kind::List(item), _) => match item.words() {
            Some(words) => format!("readonly ({})[]", union(&words)),
            None => "readonly string[]".to_owned(),
        },
        (Kind::Form(form), _) if form.whole => ["number".to_owned()]
            .into_iter()
            .chain(form.words.iter().map(quoted))
            .collect::<Vec<_>>()
            .join(" | "),
        // What a pattern matches is any text to TypeScript.
        (Kind::Form(Form { pattern: Some(_), .. }), _) => "string".to_owned(),
        (Kind::Form(form), _) => union(form.words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LIST;

    /// The page is built from this file. `UPDATE_SNAPSHOTS=1 cargo test -p tightrope typescript` writes it.
    #[test]
    fn the_page_has_the_list() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../web/page/src/settings.ts");
        let made = typescript(LIST);
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(path, &made).unwrap();
        }
        let found = std::fs::read_to_string(path).unwrap();
        assert!(
            found == made,
            "web/page/src/settings.ts isn't that of the list: run with UPDATE_SNAPSHOTS=1"
        );
    }
}
