//! Plans: which fields of each message lead to a map or to an `Any`. They are read from `fields.txt`, whose form
//! `xtask/src/descriptors/canonical_fields.rs` describes: the descriptors themselves take 17 MB of memory.

use std::collections::HashMap;
use std::sync::OnceLock;

const FIELDS: &str = include_str!("fields.txt");

const ANY: &str = "google.protobuf.Any";

/// What there is to do in a message. Messages in which there is nothing to do have none.
#[derive(Debug)]
pub(super) enum Plan {
    /// It holds a message of the type that it names.
    Any,
    /// Some of its fields lead somewhere.
    Message(Fields),
}

/// The fields that lead somewhere, by their numbers.
#[derive(Debug)]
pub(super) struct Fields(Box<[(u32, Step)]>);

/// What there is to do with a field, with the place of the plan of what is inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Its message is to be put in order.
    Into(usize),
    /// Its entries are to be sorted, and where they have a plan each of them put in order before.
    Map(Option<usize>),
}

impl Fields {
    /// What there is to do with the field of this number.
    pub(super) fn step(&self, number: u32) -> Option<&Step> {
        let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.0.get(at).map(|(_, step)| step)
    }
}

/// The plan of the message of this full name; none where there is nothing to do, or nothing is known.
pub(super) fn plan_of(name: &str) -> Option<&'static Plan> {
    at(*plans().by_name.get(name)?)
}

/// The plan at a place that a step names.
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

/// The plan that a line of the table is.
fn plan(line: &str) -> Plan {
    let mut words = line.split(' ');
    if words.next() == Some(ANY) {
        return Plan::Any;
    }
    // The table is part of the binary; that all of it can be read is tested below.
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
