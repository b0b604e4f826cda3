//! Canonical bytes: the same message has the same bytes in every process.
//!
//! prost writes protobuf fields in the order of their numbers, so only maps vary: `envoy-types`
//! keeps them in `HashMap`s, whose order changes with every process (one RBAC encoded 1,000 times
//! gave 24 byte strings). On the wire, each map entry is a field of its own, so sorting the entries
//! by key permutes bytes and changes no length. This module sorts them in place, through every
//! nested message and every `Any` (docs/decisions/0001). Most fields lead to neither a map nor an
//! `Any`; a table made of the message descriptors says which do (`plans`), and the others are
//! skipped.

#[cfg(test)]
pub(crate) mod tests;

use std::sync::LazyLock;

use crate::plans::{Plan, Plans, Step};
use crate::record::{AnyParts, Record};

pub(crate) const FIELDS: &str = include_str!("canonical/fields.txt");

static PLANS: LazyLock<Plans> = LazyLock::new(|| Plans::parse(FIELDS));

/// The error that bytes are not a message of their declared type.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a well-formed {0}")]
pub(crate) struct Malformed(String);

/// Sorts the entries of all maps in the encoded message `bytes` of the type with this full name. A
/// message of an unknown type stays as it is.
pub(crate) fn canonicalize(name: &str, bytes: &mut [u8]) -> Result<(), Malformed> {
    let malformed = || Malformed(name.to_owned());
    PLANS.of(name).map_or(Ok(()), |plan| order(plan, bytes).ok_or_else(malformed))
}

/// Sorts the maps of a message by its plan; `None` if the bytes are no such message.
fn order(plan: &Plan, bytes: &mut [u8]) -> Option<()> {
    let fields = match plan {
        Plan::Any => return order_any(bytes),
        Plan::Message(fields) => fields,
    };
    let mut at = 0;
    while at < bytes.len() {
        let record = Record::read(bytes, at)?;
        at = match fields.step(record.number) {
            None | Some(Step::Name(_)) => record.end,
            Some(Step::Into(inner)) => {
                order(PLANS.at(*inner)?, bytes.get_mut(record.range())?)?;
                record.end
            }
            Some(Step::Map(inner)) => {
                let run = bytes.get_mut(at..run_end(bytes, &record)?)?;
                if let Some(inner) = inner {
                    order_entries(PLANS.at(*inner)?, run)?;
                }
                sort_entries(run)?;
                at + run.len()
            }
        };
    }
    Some(())
}

/// Sorts the maps of the message in an `Any`. A message of an unknown type stays as it is.
fn order_any(bytes: &mut [u8]) -> Option<()> {
    let AnyParts { type_name, value } = AnyParts::read(bytes)?;
    match (type_name.and_then(|name| PLANS.of(name)), value) {
        (Some(inner), Some(value)) => order(inner, bytes.get_mut(value)?),
        _ => Some(()),
    }
}

/// Sorts the maps within each entry of a run of map entries.
fn order_entries(entry: &Plan, run: &mut [u8]) -> Option<()> {
    let mut at = 0;
    while at < run.len() {
        let record = Record::read(run, at)?;
        order(entry, run.get_mut(record.range())?)?;
        at = record.end;
    }
    Some(())
}

/// Returns the end of the run of entries that begins with `first`.
fn run_end(bytes: &[u8], first: &Record) -> Option<usize> {
    let mut end = first.end;
    while end < bytes.len() {
        let next = Record::read(bytes, end)?;
        if next.number != first.number {
            break;
        }
        end = next.end;
    }
    Some(end)
}

/// Sorts a run of map entries by key.
fn sort_entries(run: &mut [u8]) -> Option<()> {
    let (mut entries, mut at) = (Vec::new(), 0);
    while at < run.len() {
        let record = Record::read(run, at)?;
        let entry = run.get(record.range())?;
        // The key is field 1; an empty or zero key is omitted.
        let key = match Record::read(entry, 0) {
            Some(field) if field.number == 1 => entry.get(field.range())?,
            _ => &[],
        };
        entries.push((key, run.get(at..record.end)?));
        at = record.end;
    }
    if !entries.is_sorted() {
        entries.sort();
        let sorted: Vec<u8> = entries.into_iter().flat_map(|(_, entry)| entry).copied().collect();
        run.copy_from_slice(&sorted);
    }
    Some(())
}
