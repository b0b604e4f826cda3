//! Plans: which fields of each message a walk over encoded bytes visits. They come from tables that
//! `cargo xtask descriptors` makes of the descriptors (`xtask/src/descriptors/fields.rs` describes their form):
//! the descriptors themselves would take 17 MB of memory.

use std::collections::HashMap;

use crate::resource::ResourceType;

const ANY: &str = "google.protobuf.Any";

/// The work for one message. A message without work has no plan.
#[derive(Debug)]
pub(crate) enum Plan {
    /// The message is an `Any`.
    Any,
    /// Some fields of the message need work.
    Message(Fields),
}

/// The fields that need work, by their numbers.
#[derive(Debug)]
pub(crate) struct Fields(Box<[(u32, Step)]>);

/// The work for a field, with the index of the plan for its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Apply the plan to the message in the field.
    Into(usize),
    /// Sort the map entries, after applying the plan, if there is one, to each.
    Map(Option<usize>),
    /// The field is the name of another resource.
    Name(NameField),
}

/// A field that is the name of another resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameField {
    pub(crate) of: ResourceType,
    /// The field of the same message without which the name is of no resource.
    pub(crate) source: Option<u32>,
}

impl Fields {
    /// Returns the work for the field with this number.
    pub(crate) fn step(&self, number: u32) -> Option<&Step> {
        let at = self.0.binary_search_by_key(&number, |(number, _)| *number).ok()?;
        self.0.get(at).map(|(_, step)| step)
    }
}

/// The plans of one walk.
#[derive(Debug)]
pub(crate) struct Plans {
    all: Vec<Plan>,
    by_name: HashMap<&'static str, usize>,
}

impl Plans {
    /// Parses a table.
    pub(crate) fn parse(table: &'static str) -> Self {
        let names = table.lines().filter_map(|line| line.split(' ').next());
        Self {
            all: table.lines().map(plan).collect(),
            by_name: names.enumerate().map(|(place, name)| (name, place)).collect(),
        }
    }

    /// Returns the plan of the message with this full name; `None` if there is no work, or the type
    /// is unknown.
    pub(crate) fn of(&self, name: &str) -> Option<&Plan> {
        self.at(*self.by_name.get(name)?)
    }

    /// Returns the plan with this index.
    pub(crate) fn at(&self, place: usize) -> Option<&Plan> {
        self.all.get(place)
    }
}

/// Parses a line of a table.
fn plan(line: &str) -> Plan {
    let mut words = line.split(' ');
    if words.next() == Some(ANY) {
        return Plan::Any;
    }
    // The tables are part of the binary; the test below checks that every line is valid.
    Plan::Message(Fields(words.filter_map(step).collect()))
}

fn step(word: &str) -> Option<(u32, Step)> {
    let end = word.find(|c: char| !c.is_ascii_digit())?;
    let number = word.get(..end)?.parse().ok()?;
    let mut work = word.get(end..)?.chars();
    let step = match (work.next()?, work.as_str()) {
        ('>', line) => Step::Into(line.parse().ok()?),
        ('*', "") => Step::Map(None),
        ('*', line) => Step::Map(Some(line.parse().ok()?)),
        ('=', name) => Step::Name(name_field(name)?),
        _ => return None,
    };
    Some((number, step))
}

fn name_field(text: &str) -> Option<NameField> {
    let (of, source) = match text.split_once('?') {
        Some((of, source)) => (of, Some(source.parse().ok()?)),
        None => (text, None),
    };
    let of = ResourceType::ALL.into_iter().find(|one| format!("{one:?}") == of)?;
    Some(NameField { of, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_of_the_tables_is_a_step_to_a_plan() {
        for (table, least) in [(crate::canonical::FIELDS, 500), (crate::references::FIELDS, 400)] {
            assert!(table.lines().count() > least);
            let plans = Plans::parse(table);
            for word in table.lines().flat_map(|line| line.split(' ').skip(1)) {
                match step(word) {
                    Some((_, Step::Into(place) | Step::Map(Some(place)))) => {
                        assert!(plans.at(place).is_some(), "{word}");
                    }
                    Some((_, Step::Map(None) | Step::Name(_))) => {}
                    None => panic!("`{word}` is no step"),
                }
            }
        }
    }
}
