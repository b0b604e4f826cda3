//! Endpoints as tables for people. Pure: it takes a list and the current time, and returns text.

use std::net::{IpAddr, SocketAddr};

use ironmesh_api::{
    ConflictView, EndpointList, EndpointRow, HeldView, ProviderView, ServiceEndpoints, SourceView,
    StaleView,
};
use ironmesh_catalog::ServiceName;
use ironmesh_catalog::text::escape_line;
use jiff::Timestamp;

use ironmesh_terminal::table::{age, aligned};

const HEADINGS: [&str; 7] =
    ["ADDRESS", "PROVIDER", "HEALTH", "LOCALITY", "WEIGHT", "AGE", "STATUS"];

/// The whole list: the providers with a problem, then each service with its endpoints.
pub fn text(list: &EndpointList, now: Timestamp) -> String {
    let problems = list.providers.iter().filter_map(provider_problem);
    let problems: Vec<_> = problems.map(|line| escape_line(&line).into_owned()).collect();
    let services = list.services.iter().map(|service| service_lines(service, now));
    let blocks = [problems].into_iter().filter(|lines| !lines.is_empty()).chain(services);
    let mut blocks: Vec<_> = blocks.map(|lines| lines.join("\n")).collect();
    if list.services.is_empty() {
        blocks.push("policy defines no service".to_owned());
    }
    blocks.join("\n\n") + "\n"
}

/// The problem of a provider as a whole.
pub(super) fn provider_problem(view: &ProviderView) -> Option<String> {
    let ProviderView { provider, synced, stale } = view;
    match stale {
        Some(StaleView { since, reason }) => {
            Some(format!("{provider} is stale since {since:.0}: {reason}"))
        }
        None if !synced => Some(format!("{provider} has not answered all queries yet")),
        None => None,
    }
}

fn service_lines(service: &ServiceEndpoints, now: Timestamp) -> Vec<String> {
    let name = &service.service;
    let sources = service.sources.iter().flat_map(|source| source_lines(name, source));
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
            .map(|proxy| format!("proxy {} at {} has no endpoint", proxy.name, proxy.mesh_address)),
    );
    below.extend(service.conflicts.iter().map(|conflict| {
        let ConflictView { address, port, used, ignored } = conflict;
        let socket = socket_text(*address, *port);
        format!("{socket}: {used} and {ignored} contradict each other; {used} is used")
    }));
    let drained = if service.drained { ", drained: its endpoints get no traffic" } else { "" };
    let below = below.into_iter().map(|line| format!("  {}", escape_line(&line)));
    [format!("{name}{drained}")].into_iter().chain(below).collect()
}

/// The lines about one provider of a service: staleness, held-back removal, unusable instances.
fn source_lines(service: &ServiceName, source: &SourceView) -> Vec<String> {
    let provider = source.provider;
    let mut lines = Vec::new();
    if let Some(StaleView { since, reason }) = &source.stale {
        lines.push(format!("{provider} is stale since {since:.0}: {reason}"));
    }
    if let Some(held) = &source.held {
        lines.push(format!("{provider} {}", held_removal(held)));
        lines.push(format!("  to accept the removal: `ironmesh endpoints accept {service}`"));
    }
    let problems = source.problems.iter();
    lines.extend(problems.map(|problem| {
        format!("{provider}: `{}` cannot be used: {}", problem.instance, problem.reason)
    }));
    lines
}

/// A held-back endpoint removal.
pub(super) fn held_removal(held: &HeldView) -> String {
    let HeldView { since, until, before, left } = held;
    let until = until.map_or_else(
        || "until an authoritative answer confirms it".to_owned(),
        |until| format!("until {until:.0}"),
    );
    format!(
        "lost {} of {before} endpoints at {since:.0}; the removal is held back {until}",
        before.saturating_sub(*left)
    )
}

fn cells(row: &EndpointRow, now: Timestamp) -> [String; 7] {
    let dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    [
        socket_text(row.address, row.port),
        row.provider.to_string(),
        row.health_text(),
        dash(escape_line(&row.locality.to_string()).into_owned()),
        row.weight.to_string(),
        dash(row.since.map(|since| age(since, now)).unwrap_or_default()),
        endpoint_status(row),
    ]
}

/// An address, with its port if that is known.
pub(super) fn socket_text(address: IpAddr, port: Option<u16>) -> String {
    match port {
        Some(port) => SocketAddr::new(address, port).to_string(),
        None => address.to_string(),
    }
}

/// The endpoint status in words, with the address that callers use, or the reason for exclusion.
pub(super) fn endpoint_status(row: &EndpointRow) -> String {
    let word = match &*row.status {
        "not_acked" => "not ACKed".to_owned(),
        "not_reported" => "not reported".to_owned(),
        other => other.replace('_', " "),
    };
    let at = row.dialled_at.map(|address| format!(" at {address}")).unwrap_or_default();
    let reason = row.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    let leaving = row.leaving_since.map(|since| {
        let verb = row
            .cordon
            .map_or_else(|| "leaves".to_owned(), |mode| format!("is {}", mode.participle()));
        format!(", its proxy {verb} since {since:.0}")
    });
    format!("{word}{at}{reason}{}", leaving.unwrap_or_default())
}

#[cfg(test)]
pub(super) mod tests;
