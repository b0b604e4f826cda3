//! Plans: the fields of each message that lead to a map or to an `Any`. They come from
//! `fields.txt`, whose form `xtask/src/descriptors/canonical_fields.rs` describes: the descriptors
//! themselves would take 17 MB of memory.

use std::collections::HashMap;
use std::sync::OnceLock;

const FIELDS: &str = include_str!("fields.txt");

const ANY: &str = "google.protobuf.Any";

/// The work for one message. A message without work has no plan.
#[derive(Debug)]
pub(super) enum Plan {
    /// The message is an `Any`.
    Any,
    /// Some fields of the message need work.
    Message(Fields),
}

/// The fields that need work, by their numbers.
#[derive(Debug)]
pub(super) struct Fields(Box<[(u32, Step)]>);

/// The work for a field, with the index of the plan for its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Apply the plan to the message in the field.
    Into(usize),
    /// Sort the map entries, after applying the plan, if there is one, to each.
    Map(Option<usize>),
}

impl Fields {
    /// Returns the work for the field with this number.
    pub(super) fn step(&self, number: u32) -> Option<&Step> {
        let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.0.get(at).map(|(_, step)| step)
    }
}

/// Returns the plan of the message with this full name; `None` if there is no work, or the type is
/// unknown.
pub(super) fn plan_of(name: &str) -> Option<&'static Plan> {
    at(*plans().by_name.get(name)?)
}

/// Returns the plan with this index.
pub(super) fn at(place: usize) -> Option<&'static Plan> {
    plans().all.get(place)
}

#[derive(Debug)]
struct Plans {
    all: Vec<Plan>,
    by_name: HashMap<&'static str, usize>,
}

fn plans() -> &'static Plans {
    static PLANS: OnceLock<Plans> = OnceLock::new();
    PLANS.get_or_init(|| {
        let names = FIELDS.lines().filter_map(|line| line.split(' ').next());
        Plans {
            all: FIELDS.lines().map(plan).collect(),
            by_name: names.enumerate().map(|(place, name)| (name, place)).collect(),
        }
    })
}

/// Parses a line of the table.
fn plan(line: &str) -> Plan {
    let mut words = line.split(' ');
    if words.next() == Some(ANY) {
        return Plan::Any;
    }
    // The table is part of the binary; the test below checks that every line is valid.
    Plan::Message(Fields(words.filter_map(step).collect()))
}

fn step(word: &str) -> Option<(u32, Step)> {
    let (number, step) = if let Some((number, line)) = word.split_once('>') {
        (number, Step::Into(line.parse().ok()?))
    } else {
        let (number, line) = word.split_once('*')?;
        (number, Step::Map(if line.is_empty() { None } else { Some(line.parse().ok()?) }))
    };
    Some((number.parse().ok()?, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_the_table_is_a_step_to_a_plan() {
        assert!(FIELDS.lines().count() > 500);
        let words = FIELDS.lines().flat_map(|line| line.split(' ').skip(1));
        for word in words {
            match step(word) {
                Some((_, Step::Into(place) | Step::Map(Some(place)))) => {
                    assert!(at(place).is_some(), "{word}");
                }
                Some((_, Step::Map(None))) => {}
                None => panic!("`{word}` is no step"),
            }
        }
    }
}
