//! Plans: which fields of each message lead to a map or to an `Any`. Made once for all descriptors, since
//! to ask them for every field of every message is most of what putting in order takes.

use std::collections::{HashMap, HashSet};
use std::sync::OnceLock;

use prost_reflect::{FieldDescriptor, Kind, MessageDescriptor};

use crate::descriptors::pool;

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
pub(super) struct Fields(Vec<(u32, Step)>);

/// What there is to do with a field, with the place of the plan of what is inside.
#[derive(Debug, Clone, Copy)]
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
    by_name: HashMap<String, usize>,
}

fn plans() -> &'static Plans {
    static PLANS: OnceLock<Plans> = OnceLock::new();
    PLANS.get_or_init(|| Plans::new(&pool().all_messages().collect::<Vec<_>>()))
}

impl Plans {
    fn new(messages: &[MessageDescriptor]) -> Self {
        let by_name = places(messages);
        let plan = |message: &MessageDescriptor| {
            if message.full_name() == ANY {
                return Plan::Any;
            }
            let mut fields: Vec<_> =
                message.fields().filter_map(|f| Some((f.number(), step(&f, &by_name)?))).collect();
            fields.sort_by_key(|(number, _)| *number);
            Plan::Message(Fields(fields))
        };
        let leading = messages.iter().filter(|message| by_name.contains_key(message.full_name()));
        Self { all: leading.map(plan).collect(), by_name }
    }
}

/// The messages that lead to a map or to an `Any`, each with its place among these.
fn places(messages: &[MessageDescriptor]) -> HashMap<String, usize> {
    let mut leading: HashSet<&str> = HashSet::from([ANY]);
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
            break;
        }
    }
    let names = messages.iter().map(MessageDescriptor::full_name);
    let names = names.filter(|name| leading.contains(name));
    names.enumerate().map(|(place, name)| (name.to_owned(), place)).collect()
}

fn step(field: &FieldDescriptor, places: &HashMap<String, usize>) -> Option<Step> {
    let place = inner(field).and_then(|inner| places.get(inner.full_name()).copied());
    if field.is_map() { Some(Step::Map(place)) } else { place.map(Step::Into) }
}

fn inner(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    match field.kind() {
        Kind::Message(inner) => Some(inner),
        _ => None,
    }
}

const ANY: &str = "google.protobuf.Any";
