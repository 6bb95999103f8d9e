//! The list of settings as a JSON schema, for editors and other programs.

use serde_json::{Map, Value as Json, json};

use super::kind::{Form, Kind, Range};
use super::retired::RETIRED;
use super::setting::Setting;
use super::write::json as plain;

/// The JSON schema (draft 2020-12) of settings files that hold the settings of `list`.
pub fn json_schema(list: &[Setting]) -> Json {
    let mut tables = Map::new();
    for setting in list {
        let table = tables.entry(setting.table()).or_insert_with(
            || json!({ "type": "object", "additionalProperties": false, "properties": {} }),
        );
        let mut property = of_kind(setting.kind);
        property.insert("description".into(), setting.describe().into());
        if let Some(default) = setting.default() {
            property.insert("default".into(), plain(default));
        }
        for old in setting.old_keys {
            let mut property = property.clone();
            property.insert("deprecated".into(), true.into());
            table["properties"][old.split('.').next_back().unwrap_or(old)] = property.into();
        }
        table["properties"][setting.name()] = property.into();
    }
    for retired in RETIRED {
        let (table, name) = retired.key.split_once('.').unwrap_or_default();
        if let Some(table) = tables.get_mut(table) {
            table["properties"][name] =
                json!({ "deprecated": true, "description": "Does nothing any more" });
        }
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Settings of Tightrope",
        "type": "object",
        "additionalProperties": false,
        "properties": tables,
    })
}

fn of_kind(kind: Kind) -> Map<String, Json> {
    let schema = match kind {
        Kind::Text | Kind::Path => json!({ "type": "string", "minLength": 1 }),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Word(words) => json!({ "enum": words() }),
        Kind::OneOf(values) => json!({ "enum": values }),
        Kind::Whole(least, most) => {
            json!({ "type": "integer", "minimum": least, "maximum": most })
        }
        Kind::Number(Range::Positive) => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Kind::Number(Range::NotNegative) => json!({ "type": "number", "minimum": 0 }),
        Kind::Number(Range::Fraction) => {
            json!({ "type": "number", "minimum": 0, "exclusiveMaximum": 1 })
        }
        Kind::Number(Range::Share) => json!({ "type": "number", "minimum": 0, "maximum": 1 }),
        Kind::Form(form) => json!({ "anyOf": of_form(form) }),
        Kind::List(item) => json!({ "type": "array", "items": of_kind(*item) }),
    };
    match schema {
        Json::Object(schema) => schema,
        _ => Map::new(),
    }
}

/// The ways to write a value with a notation of its own.
fn of_form(form: &Form) -> Vec<Json> {
    let words = (!form.words.is_empty()).then(|| json!({ "enum": form.words }));
    let pattern = form.pattern.map(|pattern| json!({ "type": "string", "pattern": pattern }));
    let whole = form.whole.then(|| json!({ "type": "integer", "minimum": 1 }));
    let list = form.list.then(|| json!({ "type": "array", "items": { "type": "string" } }));
    [words, pattern, whole, list].into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::LIST;

    #[test]
    fn a_property_for_each_key() {
        let schema = json_schema(LIST);
        for setting in LIST {
            let property = &schema["properties"][setting.table()]["properties"][setting.name()];
            assert_eq!(property["description"], setting.describe(), "{}", setting.key);
        }
        let property = |table: &str, name: &str| &schema["properties"][table]["properties"][name];
        assert_eq!(property("train", "schedule")["enum"], json!(["cosine", "linear", "constant"]));
        assert_eq!(property("train", "clip")["default"], 1.0);
        assert_eq!(property("memory", "offload")["items"]["enum"][0], "optimizer");
        assert_eq!(property("memory", "checkpoint")["deprecated"], true);
        assert_eq!(property("memory", "attention_chunk")["deprecated"], true);
    }
}
