//! The schema has exactly the keys that the readers read. Every example uses every key, since the test would
//! not notice a table that no reader reads.

use std::collections::{BTreeMap, BTreeSet};

use toml::Value;

use super::examples;
use crate::load_documents;
use crate::schema::{Form, KINDS, Shape};
use crate::table::key_log::{self, KeysRead};

#[test]
fn policy_readers_use_exactly_the_keys_of_the_schema() {
    key_log::take();
    load_documents(examples());
    let mut known = KeysRead::new();
    for kind in KINDS {
        note(&kind.shape, &mut known);
    }
    assert_eq!(
        key_log::take(),
        known,
        "left: what the readers in config/language/src/policy ask for; right: config/language/src/schema"
    );
}

#[test]
fn every_example_uses_every_key_of_its_kind() {
    for kind in KINDS {
        let example: toml::Table = kind.example.parse().unwrap();
        assert_eq!(example.keys().collect::<Vec<_>>(), [kind.kind.key()], "one kind to an example");
        let mut used = BTreeMap::new();
        for object in example[kind.kind.key()].as_array().unwrap() {
            use_keys(&kind.shape, object, &mut used);
        }
        let mut known = KeysRead::new();
        note(&kind.shape, &mut known);
        assert_eq!(
            used,
            known,
            "left: what config/language/src/schema/examples/{}.toml uses",
            kind.kind.key()
        );
    }
}

#[test]
fn tables_with_different_keys_have_different_names() {
    fn visit(shape: &'static Shape, seen: &mut BTreeMap<&str, BTreeSet<&str>>) {
        let keys: BTreeSet<&str> = shape.keys.iter().map(|key| key.name).collect();
        let known = seen.entry(shape.what).or_insert_with(|| keys.clone());
        assert_eq!(*known, keys, "{} is two things", shape.what);
        for inner in shape.keys.iter().filter_map(|key| below(&key.form)) {
            visit(inner, seen);
        }
    }
    let mut seen = BTreeMap::new();
    for kind in KINDS {
        visit(&kind.shape, &mut seen);
    }
}

/// The keys of a shape and of all below it.
fn note(shape: &Shape, known: &mut KeysRead) {
    known.entry(shape.what).or_default().extend(shape.keys.iter().map(|key| key.name));
    for inner in shape.keys.iter().filter_map(|key| below(&key.form)) {
        note(inner, known);
    }
}

/// The keys of a shape that `value` uses, and those below it.
fn use_keys(shape: &Shape, value: &Value, used: &mut KeysRead) {
    let table = value.as_table().unwrap();
    // (A table may have no keys, as that of a TCP probe.)
    used.entry(shape.what).or_default();
    for key in shape.keys {
        let Some(value) = table.get(key.name) else { continue };
        used.entry(shape.what).or_default().insert(key.name);
        let Some(inner) = below(&key.form) else { continue };
        match value {
            Value::Array(items) => {
                for item in items {
                    use_keys(inner, item, used);
                }
            }
            // (Of a word there are no keys.)
            Value::String(_) => {}
            _ => use_keys(inner, value, used),
        }
    }
}

/// The table that a form is of.
pub(super) fn below(form: &'static Form) -> Option<&'static Shape> {
    match form {
        Form::Table(shape) | Form::WordOrTable(_, shape) => Some(shape),
        Form::List(item) | Form::AtLeastOne(item) | Form::OneOrMore(item) => below(item),
        Form::Name
        | Form::Word(_)
        | Form::Text { .. }
        | Form::Integer(_)
        | Form::Percent
        | Form::PortRange
        | Form::PortOrName
        | Form::StatusRange
        | Form::Boolean
        | Form::Map { .. } => None,
    }
}
