//! Tables of fields, by which `ironmesh-xds-wire` walks over encoded messages without the descriptors.
//!
//! A line has a message's full name and its fields that need work or lead to some, by number: `4>17` contains the
//! message of line 17 (lines count from 0), `2*` is a map whose values lead nowhere, `2*17` one whose entries are
//! the message of line 17, and `1=Cluster` is the name of a cluster. `1=Secret?2` is one only where the message
//! has field 2. Messages without such a field are not in a table, and their bytes are not looked into.

use std::collections::{HashMap, HashSet};

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};

const ANY: &str = "google.protobuf.Any";

/// The table for these descriptors. `needs_work` selects the fields that need work by themselves; others lead to
/// them, or to an `Any`, which may contain every message. `word` writes a field, with the line of the message that
/// it contains; `None` if nothing is to be written.
pub(super) fn table(
    pool: &DescriptorPool,
    needs_work: impl Fn(&FieldDescriptor) -> bool,
    word: impl Fn(&FieldDescriptor, Option<usize>) -> Option<String>,
) -> String {
    let mut messages: Vec<_> = pool.all_messages().collect();
    messages.sort_by(|one, other| one.full_name().cmp(other.full_name()));
    let leading = leading(&messages, needs_work);
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
            if let Some(word) = word(&field, line) {
                table.push(' ');
                table.push_str(&word);
            }
        }
        table.push('\n');
    }
    table
}

/// The names of the messages that have a field with work, or lead to one or to an `Any`.
fn leading(
    messages: &[MessageDescriptor],
    needs_work: impl Fn(&FieldDescriptor) -> bool,
) -> HashSet<&str> {
    let mut leading = HashSet::from([ANY]);
    loop {
        let before = leading.len();
        for message in messages {
            let leads = |field: FieldDescriptor| {
                needs_work(&field)
                    || inner(&field).is_some_and(|one| leading.contains(one.full_name()))
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
