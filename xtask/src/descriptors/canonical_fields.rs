//! Makes `xds/wire/src/canonical/fields.txt`: which fields of Envoy's messages lead to a map or to an `Any`.
//!
//! The control plane sorts map entries by this table (docs/decisions/0001), so that it does not need the
//! descriptors at run time. Messages without such a field are not in it, and their bytes are not looked into.
//!
//! A line has a message's full name and its fields, by number: `4>17` contains the message of line 17 (lines
//! count from 0), `2*` is a map whose values lead nowhere, and `2*17` one whose entries are the message of
//! line 17.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

const ANY: &str = "google.protobuf.Any";

/// The table for these descriptors.
pub(super) fn table(pool: &DescriptorPool) -> String {
    let mut messages: Vec<_> = pool.all_messages().collect();
    messages.sort_by(|one, other| one.full_name().cmp(other.full_name()));
    let leading = leading(&messages);
    let messages = messages.iter().filter(|message| leading.contains(message.full_name()));
    let messages: Vec<_> = messages.collect();
    let lines = messages.iter().enumerate().map(|(line, message)| (message.full_name(), line));
    let lines: HashMap<_, _> = lines.collect();
    let mut table = String::new();
    for message in &messages {
        table.push_str(message.full_name());
        // What an `Any` contains is named by itself.
        let fields = message.fields().filter(|_| message.full_name() != ANY);
        let mut fields: Vec<_> = fields.collect();
        fields.sort_by_key(FieldDescriptor::number);
        for field in fields {
            let line = inner(&field).and_then(|inner| lines.get(inner.full_name()).copied());
            // (Writing to a string does not fail.)
            let _ = match (field.is_map(), line) {
                (true, None) => write!(table, " {}*", field.number()),
                (true, Some(line)) => write!(table, " {}*{line}", field.number()),
                (false, Some(line)) => write!(table, " {}>{line}", field.number()),
                (false, None) => Ok(()),
            };
        }
        table.push('\n');
    }
    table
}

/// The names of the messages that lead to a map or to an `Any`.
fn leading(messages: &[MessageDescriptor]) -> HashSet<&str> {
    let mut leading = HashSet::from([ANY]);
    loop {
        let before = leading.len();
        for message in messages {
            let leads = |field: FieldDescriptor| {
                field.is_map() || inner(&field).is_some_and(|one| leading.contains(one.full_name()))
            };
            if message.fields().any(leads) {
                leading.insert(message.full_name());
            }
        }
        // Messages refer to each other in circles: until nothing is added.
        if leading.len() == before {
            return leading;
        }
    }
}

fn inner(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.kind() {
        Kind::Message(inner) => Some(inner),
        _ => None,
    }
}
