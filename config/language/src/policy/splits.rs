//! Traffic splits across documents: they form no cycle, make no more routes than Envoy should compare, and
//! their backends have the ports of the split service.

mod callers;

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::splits::{MAX_PATHS, SplitCycle, Splits, TooManyPaths};
use ironmesh_catalog::{Finding, HttpMatch, Port, ServiceName, SplitBackend, Spot, TrafficSplit};

use super::draft::Draft;
use crate::codes;

/// Reports the splits of `draft` that conflict with each other, or with their services.
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
                findings.extend(protocol_mismatch(&splits, split, backend));
            }
        }
    }
    let paths = splits.paths();
    let (mut crowded, mut inseparable) = (BTreeSet::new(), BTreeMap::new());
    for (port, paths) in &paths {
        match paths {
            Err(TooManyPaths { is_in_backend: false }) if crowded.insert(&port.service) => {
                findings.extend(too_many_paths(&port.service, splits.of(&port.service)));
            }
            Err(_) => {}
            Ok(paths) => {
                inseparable
                    .extend(paths.iter().filter_map(|path| two_large_paths(&path.conditions)));
            }
        }
    }
    findings.extend(inseparable.into_values());
    callers::check(draft, &splits, &paths, &mut findings);
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

/// The most cycles that are reported.
const MOST_CYCLES: usize = 100;

/// The most members of a cycle that are named.
const MOST_OF_A_CYCLE: usize = 10;

fn circle(circle: &SplitCycle<'_>) -> Finding {
    let names = circle.services.iter().copied().chain([&circle.back.service]);
    let mut path: Vec<&str> = names.map(|service| service.name.as_str()).collect();
    if path.len() > MOST_OF_A_CYCLE {
        path.splice(MOST_OF_A_CYCLE / 2..path.len() - MOST_OF_A_CYCLE / 2, ["…"]);
    }
    let message = format!("traffic splits form a cycle: {}", path.join(" → "));
    Finding::error(codes::SPLIT_SHAPE, Some(circle.back.spot.clone()), message)
        .label("leads back")
        .help("break the cycle: let one split name only services without a split")
}

/// A split with conditions of a service that has only TCP ports.
fn idle(splits: &Splits<'_>, split: &TrafficSplit) -> Option<Finding> {
    let service = splits.service(&split.service)?;
    let has_http = service.ports.iter().any(|port| port.protocol.is_http());
    if !split.is_conditional() || has_http || service.ports.is_empty() {
        return None;
    }
    let name = &service.name.name;
    let message = format!("this split has no effect: service `{name}` has no HTTP port");
    let finding = Finding::warning(codes::SPLIT_SHAPE, Some(split.spot.clone()), message);
    Some(
        finding
            .label("matches requests")
            .related(service.spot.clone(), "the service is defined here")
            .help(
                "remove `matches`, since plain TCP has no requests to match; or remove the split",
            ),
    )
}

fn too_many_paths(service: &ServiceName, splits: &[&TrafficSplit]) -> Option<Finding> {
    let (first, others) = splits.split_first()?;
    let message = format!(
        "the splits of service `{}` make more than {MAX_PATHS} routes, and Envoy would compare one after the other",
        service.name
    );
    let mut finding = Finding::error(codes::SPLIT_SHAPE, Some(first.spot.clone()), message)
        .label("multiplied by the conditions of the other splits")
        .help("combine several matches, as in `path_regex = \"/(?:a|b)\"`, or use each condition in one split only");
    for other in others.iter().take(MOST_RELATED) {
        finding = finding.related(other.spot.clone(), "of the same service");
    }
    Some(finding)
}

/// The finding for two large paths: of all paths that one route requires, Envoy can compare only one of
/// nearly the largest size.
pub(super) fn two_large_paths<'a>(
    conditions: &[&'a HttpMatch],
) -> Option<([&'a Spot; 2], Finding)> {
    let is_large =
        |one: &&&HttpMatch| one.path.as_ref().is_some_and(|path| path.before_query.is_none());
    let mut large = conditions.iter().filter(is_large);
    let (first, second) = (large.next()?, large.next()?);
    let message = format!(
        "the `path_regex` of match `{}` cannot be combined with that of match `{}`: Envoy would reject one of them",
        second.name, first.name
    );
    let finding = Finding::error(codes::REGEX, Some(second.spot.clone()), message)
        .label("conflicts with the other condition")
        .related(first.spot.clone(), "required by an earlier split")
        .help("write one of them smaller, and without `\\b` where it has `$`");
    Some(([&first.spot, &second.spot], finding))
}

/// The finding for a backend with another protocol: HTTP cannot be sent to a port of plain TCP, and vice
/// versa.
fn protocol_mismatch(
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

/// The finding for missing ports: a backend gets no calls on a port that it lacks (SMI).
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

/// The most other splits of a service that a finding shows.
const MOST_RELATED: usize = 5;
