//! Upstream traffic settings as a whole: that no two say the same setting of the same services, and that
//! each can do what it says.

use std::collections::BTreeMap;

use ironmesh_catalog::{Finding, Level, Resolution, Service, UpstreamTrafficSetting};

use super::draft::Draft;
use crate::codes;

/// What an upstream traffic setting may say, and whether it does.
type Setting = (&'static str, fn(&UpstreamTrafficSetting) -> bool);

const SETTINGS: [Setting; 3] = [
    ("connection_settings.tcp", |one| one.tcp.is_some()),
    ("connection_settings.http", |one| one.http.is_some()),
    ("outlier_detection", |one| one.outlier_detection.is_some()),
];

/// Tells the settings of `draft` of which one would win silently, and those that do nothing.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut findings = Vec::new();
    let mut first_of: BTreeMap<(&Level, &str), &UpstreamTrafficSetting> = BTreeMap::new();
    for setting in draft.upstream_traffic_settings.iter() {
        for (key, _) in SETTINGS.iter().filter(|(_, says)| says(setting)) {
            match first_of.get(&(&setting.level, *key)) {
                Some(first) => findings.push(said_twice(key, setting, first)),
                None => drop(first_of.insert((&setting.level, *key), setting)),
            }
        }
        if let Level::Service(name) = &setting.level {
            let key = (name.namespace.clone(), name.name.clone());
            findings.extend(draft.services.get(&key).and_then(|service| idle(setting, service)));
        }
    }
    draft.findings.extend(findings);
}

fn said_twice(
    key: &str,
    setting: &UpstreamTrafficSetting,
    first: &UpstreamTrafficSetting,
) -> Finding {
    let message = format!("`{key}` of {} is said twice", setting.level);
    Finding::error(codes::SAID_TWICE, Some(setting.spot.clone()), message)
        .label("says it again")
        .related(first.spot.clone(), "says it first")
        .help("put all of it into one of the two objects")
}

/// A setting of one service that can do nothing there.
fn idle(setting: &UpstreamTrafficSetting, service: &Service) -> Option<Finding> {
    let has_http = service.ports.iter().any(|port| port.protocol.is_http());
    let is_passed_through = service
        .external
        .as_ref()
        .is_some_and(|external| external.resolution == Resolution::Passthrough);
    let (key, reason, help) = if service.ports.is_empty() {
        ("what it says", "it has no ports, so nobody calls it", "give the service `ports`")
    } else if setting.http.is_some() && !has_http {
        let help = "say it of `tcp`, or take it out";
        ("`connection_settings.http`", "it has no HTTP port", help)
    } else if setting.outlier_detection.is_some() && is_passed_through {
        let help = "name hosts with `resolution = \"dns\"`, or take it out";
        ("`outlier_detection`", "each of its hosts is where its name leads", help)
    } else {
        return None;
    };
    let message = format!("{key} does nothing of service `{}`: {reason}", service.name.name);
    let finding = Finding::warning(codes::IDLE_SETTING, Some(setting.spot.clone()), message);
    let finding = finding.label("does nothing");
    Some(finding.related(service.spot.clone(), "the service is defined here").help(help))
}
