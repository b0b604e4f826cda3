//! Endpoints as tables for people: pure, a list and a moment in, text out.

use std::net::{IpAddr, SocketAddr};

use ironmesh_admin::{
    ConflictView, EndpointList, EndpointRow, HeldView, ProviderView, ServiceEndpoints, SourceView,
    StaleView,
};
use ironmesh_catalog::ServiceName;
use ironmesh_catalog::text::escape_line;
use jiff::{Timestamp, Unit};

const HEADINGS: [&str; 7] =
    ["ADDRESS", "PROVIDER", "HEALTH", "LOCALITY", "WEIGHT", "AGE", "STANDING"];

/// All of it: the providers with whom something is wrong, and each service with its endpoints.
pub(super) fn text(list: &EndpointList, now: Timestamp) -> String {
    let wrong = list.providers.iter().filter_map(wrong_with);
    let wrong: Vec<_> = wrong.map(|line| escape_line(&line).into_owned()).collect();
    let services = list.services.iter().map(|service| of_service(service, now));
    let blocks = [wrong].into_iter().filter(|lines| !lines.is_empty()).chain(services);
    let mut blocks: Vec<_> = blocks.map(|lines| lines.join("\n")).collect();
    if list.services.is_empty() {
        blocks.push("policy defines no service".to_owned());
    }
    blocks.join("\n\n") + "\n"
}

/// What is wrong with a provider as a whole.
pub(super) fn wrong_with(view: &ProviderView) -> Option<String> {
    let ProviderView { provider, synced, stale } = view;
    match stale {
        Some(StaleView { since, reason }) => {
            Some(format!("{provider} is stale since {since:.0}: {reason}"))
        }
        None if !synced => Some(format!("{provider} has not answered all questions yet")),
        None => None,
    }
}

fn of_service(service: &ServiceEndpoints, now: Timestamp) -> Vec<String> {
    let name = &service.service;
    let sources = service.sources.iter().flat_map(|source| about(name, source));
    let mut below: Vec<_> = sources.collect();
    if service.endpoints.is_empty() {
        below.push("no endpoints".to_owned());
    } else {
        let rows = service.endpoints.iter().map(|row| cells(row, now));
        let rows: Vec<_> = [HEADINGS.map(str::to_owned)].into_iter().chain(rows).collect();
        below.extend(aligned(&rows));
    }
    below.extend(
        service
            .without_endpoint
            .iter()
            .map(|proxy| format!("proxy {} at {} has no endpoint", proxy.id, proxy.mesh_address)),
    );
    below.extend(service.conflicts.iter().map(|conflict| {
        let ConflictView { address, port, used, ignored } = conflict;
        let place = place(*address, *port);
        format!("of {place}, {ignored} says something else than {used}, which is taken")
    }));
    let drained = if service.drained { ", drained: no endpoint of it is called" } else { "" };
    let below = below.into_iter().map(|line| format!("  {}", escape_line(&line)));
    [format!("{name}{drained}")].into_iter().chain(below).collect()
}

/// What is to be known of what a provider says of a service.
fn about(service: &ServiceName, source: &SourceView) -> Vec<String> {
    let provider = source.provider;
    let mut lines = Vec::new();
    if let Some(StaleView { since, reason }) = &source.stale {
        lines.push(format!("{provider} is stale since {since:.0}: {reason}"));
    }
    if let Some(held) = &source.held {
        lines.push(format!("{provider} {}", doubt(held)));
        lines.push(format!("  if that is so: `ironmesh endpoints accept {service}`"));
    }
    let problems = source.problems.iter();
    lines.extend(problems.map(|problem| {
        format!("{provider}: `{}` cannot be used: {}", problem.instance, problem.reason)
    }));
    lines
}

/// A loss that is doubted.
pub(super) fn doubt(held: &HeldView) -> String {
    let HeldView { since, until, before, left } = held;
    let until = until.map_or_else(
        || "until it vouches for that".to_owned(),
        |until| format!("until {until:.0}"),
    );
    format!(
        "has lost {} of {before} at {since:.0}; no more are taken out of use {until}",
        before.saturating_sub(*left)
    )
}

fn cells(row: &EndpointRow, now: Timestamp) -> [String; 7] {
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        place(row.address, row.port),
        row.provider.to_string(),
        health(row),
        dash(escape_line(&row.locality.to_string()).into_owned()),
        row.weight.to_string(),
        dash(row.since.map(|since| age(since, now)).unwrap_or_default()),
        standing(row),
    ]
}

/// An address, with its port where that is known.
pub(super) fn place(address: IpAddr, port: Option<u16>) -> String {
    match port {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    }
}

/// What is believed of its health.
pub(super) fn health(row: &EndpointRow) -> String {
    if row.flapping { "flapping".to_owned() } else { row.health.to_string() }
}

/// Whether it is called and how, and else why not.
pub(super) fn standing(row: &EndpointRow) -> String {
    let word = row.status.replace('_', " ");
    let at = row.dialled_at.map(|address| format!(" at {address}")).unwrap_or_default();
    let reason = row.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    format!("{word}{at}{reason}")
}

/// How long ago something was, in its largest unit: `3d`, `2h`, `59s`.
fn age(since: Timestamp, now: Timestamp) -> String {
    // A clock that was set back makes nothing younger than new.
    let seconds = (now - since).total(Unit::Second).unwrap_or_default().max(0.0);
    let units = [(86_400.0, "d"), (3_600.0, "h"), (60.0, "m")];
    let (size, unit) = units.into_iter().find(|(size, _)| seconds >= *size).unwrap_or((1.0, "s"));
    format!("{:.0}{unit}", (seconds / size).floor())
}

/// Rows with columns as wide as their widest cell, but for the last.
fn aligned<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
pub(super) mod tests;
