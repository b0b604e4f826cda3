//! References: the names of other resources in a resource, found by the types of its fields.
//!
//! A table made of the message descriptors lists the fields that are names of resources, and those
//! that lead to them, through every nested message and every `Any` (docs/decisions/0084). Each
//! resource is read once, when it is encoded. An extension that the descriptors do not know refers
//! to nothing.

#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::LazyLock;

use envoy_types::pb::envoy::config::cluster::v3::cluster::DiscoveryType;

use crate::plans::{Plan, Plans, Step};
use crate::record::{AnyParts, Record};
use crate::resource::ResourceType;

pub(crate) const FIELDS: &str = include_str!("references/fields.txt");

static PLANS: LazyLock<Plans> = LazyLock::new(|| Plans::parse(FIELDS));

/// The references of one resource, sorted by type and name, each once. Names are not copied: each is
/// a part of the resource's bytes, which every method is given.
#[derive(Debug, Clone)]
pub(crate) struct References(Box<[Reference]>);

#[derive(Debug, Clone, Copy)]
struct Reference {
    of: ResourceType,
    /// Where the name is. (A protobuf message is shorter than 2 GiB.)
    begin: u32,
    end: u32,
}

impl Reference {
    fn name(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.begin as usize..self.end as usize).unwrap_or_default()
    }
}

impl References {
    /// Reads the references of a message with this full name, at `place` in `bytes`. Where the bytes
    /// are no such message, the rest is not read.
    pub(crate) fn read(name: &str, bytes: &[u8], place: Range<usize>) -> Self {
        let mut found = Found { bytes, references: Vec::new() };
        if let Some(plan) = PLANS.of(name) {
            let is_whole = found.message(plan, place.clone());
            debug_assert!(is_whole.is_some(), "prost encodes what the descriptors describe");
        }
        if name == CLUSTER {
            found.own_endpoints(place);
        }
        let mut references = found.references;
        let key = |one: &Reference| (one.of, one.name(bytes));
        references.sort_unstable_by(|one, other| key(one).cmp(&key(other)));
        references.dedup_by(|one, other| key(one) == key(other));
        Self(references.into())
    }

    /// All references.
    pub(crate) fn all<'a>(
        &'a self,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = (ResourceType, &'a str)> {
        self.0.iter().filter_map(|one| Some((one.of, std::str::from_utf8(one.name(bytes)).ok()?)))
    }

    /// The names of the referred resources of a type.
    pub(crate) fn to<'a>(
        &'a self,
        of: ResourceType,
        bytes: &'a [u8],
    ) -> impl Iterator<Item = &'a str> {
        let begin = self.0.partition_point(|one| one.of < of);
        let same_type = self.0.iter().skip(begin).take_while(move |one| one.of == of);
        same_type.filter_map(|one| std::str::from_utf8(one.name(bytes)).ok())
    }

    /// Whether the resource with this type and name is one of them.
    pub(crate) fn contain(&self, of: ResourceType, name: &str, bytes: &[u8]) -> bool {
        let compare = |one: &Reference| -> Ordering {
            one.of.cmp(&of).then_with(|| one.name(bytes).cmp(name.as_bytes()))
        };
        self.0.binary_search_by(compare).is_ok()
    }
}

const CLUSTER: &str = "envoy.config.cluster.v3.Cluster";

/// The references found so far.
struct Found<'a> {
    bytes: &'a [u8],
    references: Vec<Reference>,
}

impl Found<'_> {
    /// Reads the message at `place` by its plan; `None` if there is no such message.
    fn message(&mut self, plan: &Plan, place: Range<usize>) -> Option<()> {
        let fields = match plan {
            Plan::Any => return self.any(place),
            Plan::Message(fields) => fields,
        };
        let mut at = place.start;
        while at < place.end {
            let record = Record::read(self.bytes, at)?;
            match fields.step(record.number) {
                Some(Step::Into(inner)) => self.message(PLANS.at(*inner)?, record.range())?,
                Some(Step::Name(name)) => {
                    let has_source = |number| self.field(place.clone(), number).is_some();
                    if name.source.is_none_or(has_source) {
                        self.add(name.of, record.range())?;
                    }
                }
                Some(Step::Map(_)) | None => {}
            }
            at = record.end;
        }
        Some(())
    }

    /// Reads the message in an `Any`.
    fn any(&mut self, place: Range<usize>) -> Option<()> {
        let parts = AnyParts::read(self.bytes.get(place.clone())?)?;
        let Some((plan, value)) = parts.type_name.and_then(|name| PLANS.of(name)).zip(parts.value)
        else {
            return Some(());
        };
        self.message(plan, place.start + value.start..place.start + value.end)
    }

    /// Adds the endpoints of a cluster that gets them by EDS under its own name, as it does without a
    /// `service_name`.
    fn own_endpoints(&mut self, cluster: Range<usize>) {
        let is_named = self.references.iter().any(|one| one.of == ResourceType::Endpoint);
        let discovery_type = self.field(cluster.clone(), 2);
        let is_eds = discovery_type.is_some_and(|discovery_type| {
            let value = self.bytes.get(discovery_type.range()).unwrap_or_default();
            // The number is less than 128, so it is one byte.
            matches!(value, [only] if i32::from(*only) == i32::from(DiscoveryType::Eds))
        });
        if let Some(name) = self.field(cluster, 1).filter(|_| is_eds && !is_named) {
            self.add(ResourceType::Endpoint, name.range());
        }
    }

    /// The field with this number in the message at `place`.
    fn field(&self, place: Range<usize>, number: u32) -> Option<Record> {
        let mut at = place.start;
        while at < place.end {
            let record = Record::read(self.bytes, at)?;
            if record.number == number {
                return Some(record);
            }
            at = record.end;
        }
        None
    }

    /// Adds a reference, unless its name is empty: so a field is set to none.
    fn add(&mut self, of: ResourceType, name: Range<usize>) -> Option<()> {
        if !name.is_empty() {
            let (begin, end) = (u32::try_from(name.start).ok()?, u32::try_from(name.end).ok()?);
            self.references.push(Reference { of, begin, end });
        }
        Some(())
    }
}
