//! `[[traffic_split]]`: calls of one service go to several, by weight.

use std::collections::BTreeMap;

use ironmesh_catalog::{Finding, Name, ServiceName, SplitBackend, Spot, TrafficSplit};

use super::part::{Id, Part, Reference, Wanted};
use crate::codes;
use crate::table::{Table, Told, Value};

/// Reads one traffic split into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let with_spot = |value: Value<'_>| Ok((value.name()?, value.spot()));
    let service = table.required("service", with_spot);
    let backends = table.required("backends", |value| {
        let meaning = "name at least one service that answers";
        let mut seen = BTreeMap::new();
        let mut names = Vec::new();
        let backends =
            value.at_least_one(meaning, |item| read_backend(item, &mut seen, &mut names));
        let sum = backends.and_then(|backends| check_sum(value, backends));
        Ok((names, sum))
    });
    let matches = table.not_served(&["matches"], "leave `matches` out: the split is of all calls");
    if let Ok(id) = id {
        let of = |name: &Name| ServiceName::new(id.namespace.clone(), name.clone());
        let names = backends.iter().flat_map(|(names, _)| names).chain(service.iter());
        part.references.extend(names.map(|(name, spot)| Reference {
            wanted: Wanted::Service(of(name)),
            spot: spot.clone(),
        }));
        let split = match (service, backends.and_then(|(_, backends)| backends), matches) {
            (Ok((service, _)), Ok(backends), Ok(())) => Ok(TrafficSplit {
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                service: of(&service),
                backends: backends
                    .into_iter()
                    .map(|(name, weight, spot)| SplitBackend { service: of(&name), weight, spot })
                    .collect(),
                spot: id.spot.clone(),
            }),
            _ => Err(Told),
        };
        part.traffic_splits.push(&id, split);
    }
    table.finish();
}

/// Service, weight, and where the service is named.
type Backend = (Name, u32, Spot);

fn read_backend(
    item: Value<'_>,
    seen: &mut BTreeMap<Name, Spot>,
    names: &mut Vec<(Name, Spot)>,
) -> Result<Backend, Told> {
    let mut table = item.table("a backend")?;
    let service = table.required("service", |value| {
        let name = value.name()?;
        if let Some(first) = seen.insert(name.clone(), value.spot()) {
            let message = format!("backend `{name}` is given twice");
            let finding = value.error(codes::SPLIT_SHAPE, message).label("given again");
            let finding = finding.related(first, "first given here");
            return Err(value.tell(finding.help("give it once, with the sum of the weights")));
        }
        names.push((name.clone(), value.spot()));
        Ok((name, value.spot()))
    });
    let weight = table.required("weight", |value| value.integer(codes::WEIGHTS, 0..=u32::MAX));
    table.finish();
    let (name, spot) = service?;
    Ok((name, weight?, spot))
}

/// Envoy refuses weighted clusters whose weights sum to 0 or to more than 32 bits.
fn check_sum(value: Value<'_>, backends: Vec<Backend>) -> Result<Vec<Backend>, Told> {
    let sum: u64 = backends.iter().map(|(_, weight, _)| u64::from(*weight)).sum();
    let (message, help) = if sum == 0 {
        ("the weights of the backends sum to 0, so nobody answers", "give one backend a weight")
    } else if sum > u64::from(u32::MAX) {
        ("the weights of the backends sum to more than 4294967295", "give smaller weights")
    } else {
        return Ok(backends);
    };
    let finding: Finding = value.error(codes::WEIGHTS, message).label(format!("sum {sum}"));
    Err(value.tell(finding.help(help)))
}
