//! The schema as a JSON schema, by which editors complete and check policy files.
//!
//! It declares draft-07 and uses only keywords of draft 4, which taplo supports, the TOML language server of
//! most editors. It accepts all documents that the loader accepts, and rejects most documents with a wrong
//! structure. Only the loader checks references between objects.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::{Form, KINDS, Kind, PORT, Shape, WhenOmitted};

/// The pattern of a name: one DNS label.
const NAME: &str = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$";

/// The JSON schema of a policy document.
pub fn json_schema() -> Value {
    let kinds = KINDS.iter().map(|kind| (kind.kind.key().to_owned(), objects(kind)));
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Ironmesh policy",
        "description": "A document of a policy folder. `ironmesh policy check` checks the whole folder.",
        "type": "object",
        "properties": kinds.collect::<Map<_, _>>(),
        "additionalProperties": false,
    })
}

fn objects(kind: &Kind) -> Value {
    json!({ "description": kind.about, "type": "array", "items": table(&kind.shape) })
}

fn table(shape: &Shape) -> Value {
    let mut properties = Map::new();
    let (mut required, mut any_of, mut one_of) = (Vec::new(), Vec::new(), Vec::new());
    for key in shape.keys {
        let mut value = form(&key.form);
        let mut about = key.about.to_owned();
        match key.left_out {
            WhenOmitted::Required => required.push(key.name),
            WhenOmitted::OneRequired => any_of.push(json!({ "required": [key.name] })),
            WhenOmitted::ExactlyOneRequired => one_of.push(json!({ "required": [key.name] })),
            WhenOmitted::Text(text) => value = with(value, "default", json!(text)),
            WhenOmitted::Number(number) => value = with(value, "default", json!(number)),
            // Writing to a string does not fail.
            WhenOmitted::Means(words) => {
                let _ = write!(about, " Default: {words}.");
            }
        }
        properties.insert(key.name.to_owned(), with(value, "description", json!(about)));
    }
    let table = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    let table = if any_of.is_empty() { table } else { with(table, "anyOf", json!(any_of)) };
    let table = if one_of.is_empty() { table } else { with(table, "oneOf", json!(one_of)) };
    // Draft 4 takes no empty list here.
    if required.is_empty() { table } else { with(table, "required", json!(required)) }
}

/// The object with one more entry.
fn with(mut object: Value, word: &str, value: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.insert(word.to_owned(), value);
    }
    object
}

fn form(form: &Form) -> Value {
    match form {
        Form::Name => json!({ "type": "string", "pattern": NAME }),
        Form::Word(words) => json!({ "type": "string", "enum": words() }),
        Form::Text { pattern: "", .. } => json!({ "type": "string" }),
        Form::Text { pattern, .. } => json!({ "type": "string", "pattern": pattern }),
        Form::Integer(range) => {
            json!({ "type": "integer", "minimum": range.start(), "maximum": range.end() })
        }
        Form::PortRange => json!({ "anyOf": [
            self::form(&PORT),
            { "type": "string", "pattern": "^[0-9]{1,5}(-[0-9]{1,5})?$" },
        ] }),
        Form::PortOrName => json!({ "anyOf": [self::form(&PORT), self::form(&Form::Name)] }),
        Form::StatusRange => json!({ "anyOf": [
            { "type": "integer", "minimum": 200, "maximum": 599 },
            { "type": "string", "pattern": "^[2-5][0-9]{2}(-[2-5][0-9]{2})?$" },
        ] }),
        Form::Percent => {
            json!({ "type": "number", "minimum": 0, "maximum": 100, "multipleOf": 0.0001 })
        }
        Form::Boolean => json!({ "type": "boolean" }),
        Form::List(item) => json!({ "type": "array", "items": self::form(item) }),
        Form::AtLeastOne(item) => {
            json!({ "type": "array", "items": self::form(item), "minItems": 1 })
        }
        Form::Table(shape) => table(shape),
        Form::Map { pattern, value, .. } => json!({
            "type": "object",
            "patternProperties": { *pattern: self::form(value) },
            "additionalProperties": false,
            "minProperties": 1,
        }),
        Form::OneOrMore(one) => {
            let one = self::form(one);
            json!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
        }
        Form::WordOrTable(words, shape) => {
            json!({ "anyOf": [self::form(&Form::Word(*words)), table(shape)] })
        }
    }
}
