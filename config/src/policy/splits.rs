//! Traffic splits as a whole: one per service, none behind another, and backends that have the
//! ports of what they stand in for.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{Finding, Port, Service, ServiceName, SplitBackend, TrafficSplit};

use super::draft::Draft;
use crate::codes;

/// Tells the splits of `draft` that do not fit together, or do not fit their services.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut findings = Vec::new();
    let mut splits: Splits<'_> = BTreeMap::new();
    for split in draft.traffic_splits.iter() {
        match splits.get(&split.service) {
            Some(first) => findings.push(second_of_a_service(split, first)),
            None => {
                splits.insert(&split.service, split);
            }
        }
    }
    let cyclic = cycles(&splits, &mut findings);
    for split in splits.values() {
        for backend in &split.backends {
            findings.extend(nested(split, backend, &splits, &cyclic));
            findings.extend(missing_ports(draft, split, backend));
            findings.extend(other_protocol(draft, split, backend));
        }
    }
    draft.findings.extend(findings);
}

/// The split of each service that has one.
type Splits<'a> = BTreeMap<&'a ServiceName, &'a TrafficSplit>;

fn second_of_a_service(split: &TrafficSplit, first: &TrafficSplit) -> Finding {
    let message = format!("service `{}` has a second traffic split", split.service.name);
    Finding::error(codes::SPLIT_SHAPE, Some(split.spot.clone()), message)
        .label("the second")
        .related(first.spot.clone(), "the first")
        .help("put all backends into one split")
}

/// Tells each cycle once, and returns the services that are on one.
fn cycles<'a>(splits: &Splits<'a>, findings: &mut Vec<Finding>) -> BTreeSet<&'a ServiceName> {
    let mut done: BTreeSet<&ServiceName> = BTreeSet::new();
    let mut cyclic = BTreeSet::new();
    let most = findings.len() + MOST_CYCLES;
    for start in splits.keys() {
        // A walk with its own stack: the depth is the user's to choose. Each entry is a service of
        // the path from `start`, with how many of its backends have been followed.
        let mut path: Vec<(&'a ServiceName, usize)> = vec![(start, 0)];
        let mut on_path = BTreeSet::<&ServiceName>::from([*start]);
        while let Some((service, followed)) = path.last_mut() {
            let service: &'a ServiceName = service;
            let next = splits.get(service).filter(|_| !done.contains(service));
            let Some(backend) = next.and_then(|split| split.backends.get(*followed)) else {
                done.insert(service);
                on_path.remove(service);
                path.pop();
                continue;
            };
            *followed += 1;
            if backend.service == *service || !splits.contains_key(&backend.service) {
                continue;
            }
            if on_path.insert(&backend.service) {
                path.push((&backend.service, 0));
            } else if findings.len() < most {
                let ahead = path.iter().map(|(service, _)| *service);
                let members: Vec<_> =
                    ahead.skip_while(|service| **service != backend.service).collect();
                findings.push(cycle(&members, backend));
                cyclic.extend(members);
            }
        }
    }
    cyclic
}

/// So many cycles are told at most.
const MOST_CYCLES: usize = 100;

/// So many members of a cycle are named at most.
const MOST_OF_A_CYCLE: usize = 10;

fn cycle(members: &[&ServiceName], back: &SplitBackend) -> Finding {
    let names = members.iter().copied().chain([&back.service]).map(|service| service.name.as_str());
    let mut way: Vec<&str> = names.collect();
    if way.len() > MOST_OF_A_CYCLE {
        way.splice(MOST_OF_A_CYCLE / 2..way.len() - MOST_OF_A_CYCLE / 2, ["…"]);
    }
    let message = format!("traffic splits lead round in a circle: {}", way.join(" → "));
    Finding::error(codes::SPLIT_SHAPE, Some(back.spot.clone()), message)
        .label("leads back")
        .help("let one of them name services that answer themselves")
}

fn nested(
    split: &TrafficSplit,
    backend: &SplitBackend,
    splits: &Splits<'_>,
    cyclic: &BTreeSet<&ServiceName>,
) -> Option<Finding> {
    let behind = splits.get(&backend.service)?;
    let in_a_circle = cyclic.contains(&split.service) && cyclic.contains(&backend.service);
    if backend.service == split.service || in_a_circle {
        return None;
    }
    let message = format!(
        "backend `{}` has a traffic split of its own, which is not served by this version",
        backend.service.name
    );
    let finding = Finding::error(codes::NOT_SERVED, Some(backend.spot.clone()), message)
        .label("split again")
        .related(behind.spot.clone(), "its own split");
    Some(finding.help("name the services that answer in the end"))
}

fn service<'a>(draft: &Draft<'a>, name: &ServiceName) -> Option<&'a Service> {
    draft.services.get(&(name.namespace.clone(), name.name.clone()))
}

/// HTTP cannot be sent to where plain TCP is spoken, nor the other way round.
fn other_protocol(
    draft: &Draft<'_>,
    split: &TrafficSplit,
    backend: &SplitBackend,
) -> Option<Finding> {
    let (apex, service) = (service(draft, &split.service)?, service(draft, &backend.service)?);
    let differ = |port: &&Port| {
        service
            .port(port.number)
            .is_some_and(|own| own.protocol.is_http() != port.protocol.is_http())
    };
    let port = apex.ports.iter().find(differ)?;
    let message = format!(
        "port `{}` is `{}` in service `{}` and something else in backend `{}`",
        port.number, port.protocol, split.service.name, backend.service.name
    );
    let finding = Finding::warning(codes::SPLIT_SHAPE, Some(backend.spot.clone()), message);
    Some(
        finding
            .label("gets no calls on this port")
            .related(service.spot.clone(), "the backend is defined here")
            .help("give both the same `protocol`, or other port numbers"),
    )
}

/// A call on a port that a backend lacks has nobody to answer it when its turn comes.
fn missing_ports(
    draft: &Draft<'_>,
    split: &TrafficSplit,
    backend: &SplitBackend,
) -> Option<Finding> {
    let (apex, service) = (service(draft, &split.service)?, service(draft, &backend.service)?);
    let missing: Vec<String> = apex
        .ports
        .iter()
        .filter(|port| service.port(port.number).is_none())
        .map(|port| format!("`{}`", port.number))
        .collect();
    if missing.is_empty() {
        return None;
    }
    let noun = if missing.len() == 1 { "port" } else { "ports" };
    let message = format!(
        "backend `{}` lacks {noun} {} of service `{}`",
        backend.service.name,
        missing.join(", "),
        split.service.name
    );
    let finding = Finding::warning(codes::SPLIT_SHAPE, Some(backend.spot.clone()), message);
    Some(
        finding
            .label("lacks a port")
            .related(service.spot.clone(), "the backend is defined here")
            .help("give it the same port, with `target_port` where its application listens"),
    )
}
