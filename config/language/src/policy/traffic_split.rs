//! `[[traffic_split]]`: divides the calls of one service among backends, by weight.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{Finding, Name, ServiceName, SplitBackend, Spot, TrafficSplit};

use super::group_match::read_match;
use super::part::{Id, Part, Reference, ReferenceTarget};
use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// The most backends of a split: each becomes a part of every route of the service.
const MOST_BACKENDS: usize = 1000;

/// Reads one traffic split into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let with_spot = |value: Value<'_>| Ok((value.name()?, value.spot()));
    let service = table.required("service", with_spot);
    let backends = table.required("backends", |value| {
        let meaning = "name at least one service that answers";
        if value.items()?.len() > MOST_BACKENDS {
            let message = format!("a traffic split has at most {MOST_BACKENDS} backends");
            let finding = value.error(codes::TOO_LARGE, message).label("too many");
            return Err(value.report(finding.help("let services stand for several of them")));
        }
        let mut seen = BTreeMap::new();
        let mut names = Vec::new();
        let backends =
            value.at_least_one(meaning, |item| read_backend(item, &mut seen, &mut names));
        let sum = backends.and_then(|backends| check_sum(value, backends));
        Ok((names, sum))
    });
    let home = id.as_ref().ok().map(|id| &id.namespace);
    let mut references = Vec::new();
    let matches = table.optional("matches", |value| {
        let meaning = "leave `matches` out for a split of all calls";
        let what = "a match of a traffic split";
        value.at_least_one(meaning, |item| read_match(item, what, home, &mut references))
    });
    if let Ok(id) = id {
        let of = |name: &Name| ServiceName::new(id.namespace.clone(), name.clone());
        let refer = |referenced, spot: &Spot| Reference { referenced, spot: spot.clone() };
        part.references.extend(references);
        part.references.extend(
            service.iter().map(|(name, spot)| refer(ReferenceTarget::Service(of(name)), spot)),
        );
        let named: Vec<_> = backends.iter().flat_map(|(names, _)| names).collect();
        let all = named.iter().copied().chain(&service).map(|(name, _)| name);
        let all: Arc<[Name]> = all.cloned().collect();
        let backend = |name: &Name| ReferenceTarget::Backend(of(name), Arc::clone(&all));
        part.references.extend(named.iter().map(|(name, spot)| refer(backend(name), spot)));
        let split = match (service, backends.and_then(|(_, backends)| backends), matches) {
            (Ok((service, _)), Ok(backends), Ok(matches)) => Ok(TrafficSplit {
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                service: of(&service),
                matches: matches.unwrap_or_default(),
                backends: backends
                    .into_iter()
                    .map(|(name, weight, spot)| SplitBackend { service: of(&name), weight, spot })
                    .collect(),
                spot: id.spot.clone(),
            }),
            _ => Err(FindingReported),
        };
        part.traffic_splits.push(&id, split);
    }
    table.finish();
}

/// The service, the weight, and the spot of the name.
type Backend = (Name, u32, Spot);

fn read_backend(
    item: Value<'_>,
    seen: &mut BTreeMap<Name, Spot>,
    names: &mut Vec<(Name, Spot)>,
) -> Result<Backend, FindingReported> {
    let mut table = item.table("a backend")?;
    let service = table.required("service", |value| {
        let name = value.name()?;
        if let Some(first) = seen.insert(name.clone(), value.spot()) {
            let message = format!("backend `{name}` is given twice");
            let finding = value.error(codes::SPLIT_SHAPE, message).label("given again");
            let finding = finding.related(first, "first given here");
            return Err(value.report(finding.help("give it once, with the sum of the weights")));
        }
        names.push((name.clone(), value.spot()));
        Ok((name, value.spot()))
    });
    let weight = table.required("weight", |value| value.integer(codes::WEIGHTS, 0..=u32::MAX));
    table.finish();
    let (name, spot) = service?;
    Ok((name, weight?, spot))
}

/// Checks the sum of the weights: Envoy rejects weighted clusters whose weights sum to 0 or to more than 32
/// bits.
fn check_sum(value: Value<'_>, backends: Vec<Backend>) -> Result<Vec<Backend>, FindingReported> {
    let sum: u64 = backends.iter().map(|(_, weight, _)| u64::from(*weight)).sum();
    let (message, help) = if sum == 0 {
        (
            "the weights of the backends sum to 0, so no backend gets calls",
            "give one backend a weight",
        )
    } else if sum > u64::from(u32::MAX) {
        ("the weights of the backends sum to more than 4294967295", "give smaller weights")
    } else {
        return Ok(backends);
    };
    let finding: Finding = value.error(codes::WEIGHTS, message).label(format!("sum {sum}"));
    Err(value.report(finding.help(help)))
}
