//! `[[telemetry]]`: the access logs and traces of sidecars.

mod format;
mod operators;
mod sink;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    AccessLog, Finding, Level, LogFilter, LogSink, Name, Sampling, Spot, Telemetry, Tracing,
};

use super::draft::Draft;
use super::level;
use super::part::{Id, Part};
use crate::table::{FindingReported, Table, Value};
use crate::{codes, duration};

/// The most characters of a service name in traces.
const SERVICE_NAME: usize = 255;

/// The longest of [`LogFilter::slower_than_ms`].
const SLOWEST: Duration = Duration::from_secs(24 * 60 * 60);

/// An example of each command operator of access logs that Envoy accepts.
pub fn log_operators() -> impl Iterator<Item = String> {
    operators::examples()
}

/// Reads one telemetry into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let level = level::read(&mut table);
    let access_log = table.optional("access_log", read_access_log);
    let tracing = table.optional("tracing", read_tracing);
    let has_setting = match (&access_log, &tracing) {
        (Ok(None), Ok(None)) => Err(no_setting(&table)),
        _ => Ok(()),
    };
    if let Ok(id) = id {
        let level = level.level(&id, part);
        let telemetry = match (level, access_log, tracing, has_setting) {
            (Ok(level), Ok(access_log), Ok(tracing), Ok(())) => Ok(Telemetry {
                namespace: id.namespace.clone(),
                name: id.name.clone(),
                level,
                access_log,
                tracing,
                spot: id.spot.clone(),
            }),
            _ => Err(FindingReported),
        };
        part.telemetries.push(&id, telemetry);
    }
    table.finish();
}

fn no_setting(table: &Table<'_>) -> FindingReported {
    let message = "a telemetry needs `access_log` or `tracing`";
    let finding = Finding::error(codes::MISSING_KEY, Some(table.spot()), message);
    table.report(finding.label("no setting").help("`access_log = {}` logs to standard output"))
}

fn read_access_log(value: Value<'_>) -> Result<AccessLog, FindingReported> {
    let mut table = value.table("an access log")?;
    let format = table.optional("format", |value| Ok((format::read(value)?, value)));
    let sink = table.optional("sink", sink::read);
    let filter = table.optional("filter", read_filter);
    table.finish();
    let (format, sink) = (format?, sink?.unwrap_or_default());
    if let (Some((format, value)), LogSink::File(_)) = (&format, &sink) {
        format::check_lines(*value, format)?;
    }
    let format = format.map(|(format, _)| format).unwrap_or_default();
    Ok(AccessLog { format, sink, filter: filter? })
}

fn read_filter(value: Value<'_>) -> Result<LogFilter, FindingReported> {
    let mut table = value.table("a filter of an access log")?;
    let status = table.optional("status_at_least", |value| {
        let status = value.integer(codes::INVALID_VALUE, 100..=599)?;
        u16::try_from(status).map_err(|_| FindingReported)
    });
    let slower = table.optional("slower_than", |value| {
        let duration = duration::read(value, &(Duration::ZERO..=SLOWEST))?;
        u32::try_from(duration.as_millis()).map_err(|_| FindingReported)
    });
    let (status_at_least, slower_than_ms) = (status?, slower?);
    if status_at_least.is_none() && slower_than_ms.is_none() {
        let reported = table.missing("status_at_least");
        table.finish();
        return Err(reported);
    }
    table.finish();
    Ok(LogFilter { status_at_least, slower_than_ms })
}

fn read_tracing(value: Value<'_>) -> Result<Tracing, FindingReported> {
    let mut table = value.table("tracing")?;
    let collector = table.required("open_telemetry", sink::read_collector);
    let sampling = table.required("sampling_percent", |value| value.percent().map(Sampling));
    let service_name =
        table.optional("service_name", |value| value.text(SERVICE_NAME).map(Arc::from));
    table.finish();
    Ok(Tracing { collector: collector?, sampling: sampling?, service_name: service_name? })
}

/// Reports telemetries that contradict each other, and a telemetry of a service without sidecar.
pub(super) fn check(draft: &mut Draft<'_>) {
    let mut findings = Vec::new();
    let mut first_objects = BTreeMap::new();
    for one in draft.telemetries.iter() {
        let settings = [
            one.access_log.as_ref().map(|_| "access_log"),
            one.tracing.as_ref().map(|_| "tracing"),
        ];
        for setting in settings.into_iter().flatten() {
            let first = *first_objects.entry((&one.level, setting)).or_insert(one);
            if !std::ptr::eq(first, one) {
                findings.push(duplicate(one, first, setting));
            }
        }
        findings.extend(has_no_sidecar(draft, one));
    }
    draft.findings.extend(findings);
}

fn duplicate(one: &Telemetry, first: &Telemetry, setting: &str) -> Finding {
    let Telemetry { level, spot, .. } = one;
    let message = format!("two telemetries set `{setting}` for {level}");
    Finding::error(codes::DUPLICATE_TELEMETRY, Some(spot.clone()), message)
        .label("sets it again")
        .related(first.spot.clone(), "sets it first")
        .help("remove it from one of them")
}

/// The finding for a telemetry of a subset, which has the sidecars of the whole service, or of an external
/// service, which has none.
fn has_no_sidecar(draft: &Draft<'_>, one: &Telemetry) -> Option<Finding> {
    let Level::Service(name) = &one.level else { return None };
    let key: (Name, Name) = (name.namespace.clone(), name.name.clone());
    let service = draft.services.get(&key)?;
    let why = if service.external.is_some() {
        "it is outside of the mesh: its callers' sidecars report the calls".to_owned()
    } else if service.is_subset() {
        format!("it is a part of `{}`: set it for that service", service.served_as().name)
    } else {
        return None;
    };
    let spot: Spot = one.spot.clone();
    let message = format!("no sidecar serves service `{}`", name.name);
    let finding = Finding::warning(codes::TELEMETRY_WITHOUT_SIDECAR, Some(spot), message);
    Some(finding.label("applies to nothing").help(why))
}
