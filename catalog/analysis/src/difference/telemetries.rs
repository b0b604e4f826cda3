//! Differences of telemetry objects.

use std::collections::BTreeSet;
use std::fmt::Display;

use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::policy::telemetry::Telemetry;
use ironmesh_catalog::specification::MeshSpecification;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Change;

/// An added, removed or changed telemetry object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TelemetryChange {
    /// The telemetry object, with its latest location.
    pub telemetry: Cited,
    /// Whether it is added, removed or changed.
    pub change: Change,
    /// Its level and its settings, in words.
    pub details: Vec<String>,
}

pub(super) fn changes(
    before: &MeshSpecification,
    after: &MeshSpecification,
) -> Vec<TelemetryChange> {
    let (old, new) = (&before.telemetries, &after.telemetries);
    let mut changes = Vec::new();
    for key in old.keys().chain(new.keys()).collect::<BTreeSet<_>>() {
        let (change, telemetry, details) = match (old.get(key), new.get(key)) {
            (None, None) => continue,
            (None, Some(new)) => (Change::Added, new, outline(new)),
            (Some(old), None) => (Change::Removed, old, outline(old)),
            (Some(old), Some(new)) if old == new => continue,
            (Some(old), Some(new)) => (Change::Changed, new, details(old, new)),
        };
        changes.push(TelemetryChange { telemetry: Cited::from(&**telemetry), change, details });
    }
    changes
}

fn outline(one: &Telemetry) -> Vec<String> {
    let settings = [
        Some(format!("of {}", one.level)),
        one.access_log.as_ref().map(ToString::to_string),
        one.tracing.as_ref().map(ToString::to_string),
    ];
    settings.into_iter().flatten().collect()
}

fn details(old: &Telemetry, new: &Telemetry) -> Vec<String> {
    let settings = [
        setting(Some(&old.level), Some(&new.level), "of whom"),
        setting(old.access_log.as_ref(), new.access_log.as_ref(), "access log"),
        setting(old.tracing.as_ref(), new.tracing.as_ref(), "traces"),
    ];
    settings.into_iter().flatten().collect()
}

/// The difference of a setting. Its text does not show every field.
fn setting<T: Display + PartialEq>(old: Option<&T>, new: Option<&T>, what: &str) -> Option<String> {
    let word = |one: Option<&T>| one.map_or_else(|| format!("no {what}"), ToString::to_string);
    match (word(old), word(new)) {
        _ if old == new => None,
        (old, new) if old == new => Some(format!("{new}: another format or service name")),
        (old, new) => Some(format!("{old} → {new}")),
    }
}
