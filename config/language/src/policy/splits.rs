//! Traffic splits as a whole: that they lead somewhere, in no more ways than Envoy is to look at, and
//! that backends have the ports of what they stand in for.

mod callers;

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::splits::{MAX_PATHS, SplitCycle, Splits, TooManyPaths};
use ironmesh_catalog::{Finding, HttpMatch, Port, ServiceName, SplitBackend, Spot, TrafficSplit};

use super::draft::Draft;
use crate::codes;

/// Tells the splits of `draft` that do not fit together, or do not fit their services.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut findings = Vec::new();
    let splits = Splits::new(
        draft.services.iter(),
        draft.http_route_groups.iter(),
        draft.traffic_splits.iter(),
    );
    findings.extend(splits.cycles().iter().take(MOST_CYCLES).map(circle));
    for (_, of_service) in splits.iter() {
        let mut of_all_calls = of_service.iter().filter(|split| !split.is_conditional());
        let first = of_all_calls.next();
        let others = of_all_calls.zip(first.into_iter().cycle());
        findings.extend(others.map(|(split, first)| second_of_all_calls(split, first)));
        for split in of_service {
            findings.extend(idle(&splits, split));
            for backend in &split.backends {
                findings.extend(missing_ports(&splits, split, backend));
                findings.extend(other_protocol(&splits, split, backend));
            }
        }
    }
    let ways = splits.paths();
    let (mut crowded, mut inseparable) = (BTreeSet::new(), BTreeMap::new());
    for (port, ways) in &ways {
        match ways {
            Err(TooManyPaths { is_in_backend: false }) if crowded.insert(&port.service) => {
                findings.extend(too_many_ways(&port.service, splits.of(&port.service)));
            }
            Err(_) => {}
            Ok(ways) => {
                inseparable.extend(ways.iter().filter_map(|way| two_large_paths(&way.conditions)));
            }
        }
    }
    findings.extend(inseparable.into_values());
    callers::check(draft, &splits, &ways, &mut findings);
    draft.findings.extend(findings);
}

fn second_of_all_calls(split: &TrafficSplit, first: &TrafficSplit) -> Finding {
    let message =
        format!("service `{}` has a second traffic split of all calls", split.service.name);
    Finding::error(codes::SPLIT_SHAPE, Some(split.spot.clone()), message)
        .label("the second")
        .related(first.spot.clone(), "the first")
        .help("put all backends into one split, or give one of them `matches`")
}

/// So many cycles are told at most.
const MOST_CYCLES: usize = 100;

/// So many members of a cycle are named at most.
const MOST_OF_A_CYCLE: usize = 10;

fn circle(circle: &SplitCycle<'_>) -> Finding {
    let names = circle.services.iter().copied().chain([&circle.back.service]);
    let mut way: Vec<&str> = names.map(|service| service.name.as_str()).collect();
    if way.len() > MOST_OF_A_CYCLE {
        way.splice(MOST_OF_A_CYCLE / 2..way.len() - MOST_OF_A_CYCLE / 2, ["…"]);
    }
    let message = format!("traffic splits lead round in a circle: {}", way.join(" → "));
    Finding::error(codes::SPLIT_SHAPE, Some(circle.back.spot.clone()), message)
        .label("leads back")
        .help("let one of them name services that answer themselves")
}

/// A split with conditions of a service that has only TCP ports.
fn idle(splits: &Splits<'_>, split: &TrafficSplit) -> Option<Finding> {
    let service = splits.service(&split.service)?;
    let has_http = service.ports.iter().any(|port| port.protocol.is_http());
    if !split.is_conditional() || has_http || service.ports.is_empty() {
        return None;
    }
    let name = &service.name.name;
    let message = format!("this split does nothing: service `{name}` has no HTTP port");
    let finding = Finding::warning(codes::SPLIT_SHAPE, Some(split.spot.clone()), message);
    Some(
        finding
            .label("asks for requests")
            .related(service.spot.clone(), "the service is defined here")
            .help("take `matches` out, since of plain TCP nothing can be asked; or take the split out"),
    )
}

fn too_many_ways(service: &ServiceName, splits: &[&TrafficSplit]) -> Option<Finding> {
    let (first, others) = splits.split_first()?;
    let message = format!(
        "the splits of service `{}` make more than {MAX_PATHS} ways, and Envoy would look at one after \
         the other",
        service.name
    );
    let mut finding = Finding::error(codes::SPLIT_SHAPE, Some(first.spot.clone()), message)
        .label("with all conditions of the splits behind it")
        .help("say several matches as one, as in `path_regex = \"/(?:a|b)\"`, or ask for a thing in one split only");
    for other in others.iter().take(MOST_RELATED) {
        finding = finding.related(other.spot.clone(), "of the same service");
    }
    Some(finding)
}

/// Of the paths that must match for one way, Envoy can compare one that is nearly as large as may be.
pub(super) fn two_large_paths<'a>(
    conditions: &[&'a HttpMatch],
) -> Option<([&'a Spot; 2], Finding)> {
    let is_large =
        |one: &&&HttpMatch| one.path.as_ref().is_some_and(|path| path.before_query.is_none());
    let mut large = conditions.iter().filter(is_large);
    let (first, second) = (large.next()?, large.next()?);
    let message = format!(
        "the `path_regex` of match `{}` cannot be asked for together with that of match `{}`: Envoy \
         would refuse one of them",
        second.name, first.name
    );
    let finding = Finding::error(codes::REGEX, Some(second.spot.clone()), message)
        .label("asked for behind the other")
        .related(first.spot.clone(), "asked for by a split in front")
        .help("write one of them smaller, and without `\\b` where it has `$`");
    Some(([&first.spot, &second.spot], finding))
}

/// HTTP cannot be sent to where plain TCP is spoken, nor the other way round.
fn other_protocol(
    splits: &Splits<'_>,
    split: &TrafficSplit,
    backend: &SplitBackend,
) -> Option<Finding> {
    let (apex, service) = (splits.service(&split.service)?, splits.service(&backend.service)?);
    let differs =
        |port: &&Port| service.port(port.number).is_some() && !splits.has_like(&service.name, port);
    let port = apex.ports.iter().find(differs)?;
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

/// On a port that it lacks, a backend gets no calls (SMI).
fn missing_ports(
    splits: &Splits<'_>,
    split: &TrafficSplit,
    backend: &SplitBackend,
) -> Option<Finding> {
    let (apex, service) = (splits.service(&split.service)?, splits.service(&backend.service)?);
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

/// How many other splits of a service are shown.
const MOST_RELATED: usize = 5;
