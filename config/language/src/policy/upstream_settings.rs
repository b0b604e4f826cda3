//! Upstream traffic settings across documents: no two configure the same setting of the same services, and
//! each has an effect.

use std::collections::BTreeMap;

use ironmesh_catalog::{Finding, Level, Resolution, Service, UpstreamTrafficSetting};

use super::draft::Draft;
use crate::codes;

/// The settings of an upstream traffic setting, and whether an object configures each.
type Setting = (&'static str, fn(&UpstreamTrafficSetting) -> bool);

const SETTINGS: [Setting; 9] = [
    ("connection_settings.tcp", |one| one.tcp.is_some()),
    ("connection_settings.http", |one| one.http.is_some()),
    ("outlier_detection", |one| one.outlier_detection.is_some()),
    ("locality", |one| one.locality.is_some()),
    ("rate_limit.local.http", |one| one.local_http.is_some()),
    ("rate_limit.local.tcp", |one| one.local_tcp.is_some()),
    ("rate_limit.global.http", |one| one.global_http.is_some()),
    ("rate_limit.global.tcp", |one| one.global_tcp.is_some()),
    ("http_routes", |one| one.http_routes.is_some()),
];

/// Reports the settings of `draft` that conflict silently, and those without effect.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut findings = Vec::new();
    let mut first_of: BTreeMap<(&Level, &str), &UpstreamTrafficSetting> = BTreeMap::new();
    for setting in draft.upstream_traffic_settings.iter() {
        for (key, _) in SETTINGS.iter().filter(|(_, sets)| sets(setting)) {
            match first_of.get(&(&setting.level, *key)) {
                Some(first) => findings.push(duplicate(key, setting, first)),
                None => drop(first_of.insert((&setting.level, *key), setting)),
            }
        }
        if let Level::Service(name) = &setting.level {
            let key = (name.namespace.clone(), name.name.clone());
            findings.extend(draft.services.get(&key).and_then(|service| idle(setting, service)));
        }
    }
    findings.extend(
        draft.upstream_traffic_settings.iter().filter_map(|one| unused_descriptors(draft, one)),
    );
    draft.findings.extend(findings);
}

/// A route with descriptors in a setting, where no rate limit service is configured.
fn unused_descriptors(draft: &Draft<'_>, setting: &UpstreamTrafficSetting) -> Option<Finding> {
    let mut routes = setting.http_routes.iter().flatten();
    let route = routes.find(|route| route.descriptors.is_some())?;
    let sets_global = |other: &UpstreamTrafficSetting| {
        other.global_http.is_some()
            && match (&other.level, &setting.level) {
                (Level::Service(one), Level::Service(other)) => one == other,
                (Level::Service(one), Level::Namespace(namespace))
                | (Level::Namespace(namespace), Level::Service(one)) => one.namespace == *namespace,
                (Level::Namespace(one), Level::Namespace(other)) => one == other,
                (Level::Mesh, _) | (_, Level::Mesh) => true,
            }
    };
    if draft.upstream_traffic_settings.iter().any(sets_global) {
        return None;
    }
    let message = format!(
        "the `descriptors` of route `{}` have no effect: no `rate_limit.global.http` names a rate limit service",
        route.path.text
    );
    let finding = Finding::warning(codes::IDLE_SETTING, Some(setting.spot.clone()), message);
    let help = "set it for the service, its namespace or the mesh";
    Some(finding.label("sent to no rate limit service").help(help))
}

fn duplicate(
    key: &str,
    setting: &UpstreamTrafficSetting,
    first: &UpstreamTrafficSetting,
) -> Finding {
    let message = format!("`{key}` of {} is set twice", setting.level);
    Finding::error(codes::DUPLICATE_SETTING, Some(setting.spot.clone()), message)
        .label("sets it again")
        .related(first.spot.clone(), "sets it first")
        .help("put all of it into one of the two objects")
}

/// The finding for a setting of one service that has no effect there.
fn idle(setting: &UpstreamTrafficSetting, service: &Service) -> Option<Finding> {
    let has_http = service.ports.iter().any(|port| port.protocol.is_http());
    let is_passed_through = service
        .external
        .as_ref()
        .is_some_and(|external| external.resolution == Resolution::Passthrough);
    let limits_requests = setting.local_http.is_some()
        || setting.global_http.is_some()
        || setting.http_routes.is_some();
    let limits_connections = setting.local_tcp.is_some() || setting.global_tcp.is_some();
    let limits_rates = limits_requests || limits_connections;
    let has_tcp = service.ports.iter().any(|port| !port.protocol.is_http());
    let (key, reason, help) = if service.ports.is_empty() {
        ("the setting", "it has no ports, so it gets no calls", "give the service `ports`")
    } else if setting.http.is_some() && !has_http {
        let help = "set it for `tcp`, or remove it";
        ("`connection_settings.http`", "it has no HTTP port", help)
    } else if setting.locality.is_some() && service.external.is_some() {
        ("`locality`", "it is outside of the mesh, whose localities are unknown", "remove it")
    } else if limits_rates && service.external.is_some() {
        ("its rate limit", "it is outside of the mesh, where no sidecar counts", "remove it")
    } else if limits_rates && service.is_subset() {
        let help = "set it for the whole service";
        ("its rate limit", "it is a part of another, whose sidecars do not distinguish parts", help)
    } else if limits_requests && !has_http {
        ("its limit of requests", "it has no HTTP port", "set it for `tcp`, or remove it")
    } else if limits_connections && !has_tcp {
        (
            "its rate limit of connections",
            "all of its ports are HTTP",
            "set it for `http`, or remove it",
        )
    } else if setting.outlier_detection.is_some() && is_passed_through {
        let help = "name hosts with `resolution = \"dns\"`, or remove it";
        ("`outlier_detection`", "each of its hosts is where its name leads", help)
    } else {
        return None;
    };
    let message = format!("{key} has no effect on service `{}`: {reason}", service.name.name);
    let finding = Finding::warning(codes::IDLE_SETTING, Some(setting.spot.clone()), message);
    let finding = finding.label("does nothing");
    Some(finding.related(service.spot.clone(), "the service is defined here").help(help))
}
