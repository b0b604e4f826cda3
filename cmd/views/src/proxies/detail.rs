//! The details of one proxy.

use std::fmt::Write as _;

use ironmesh_api::{
    ApplicationView, EndpointView, ExchangeView, ProxyDetail, ReportedHealth, RevocationView,
    SyncState, SyncView,
};
use ironmesh_catalog::text::escape_line;
use jiff::Timestamp;

use super::{write_leave, write_problems, write_revocation};
use crate::revocation::reach_text;
use ironmesh_terminal::table::{age, aligned};

/// A proxy as labelled lines.
pub fn proxy_text(detail: &ProxyDetail) -> String {
    let (proxy, record) = (&detail.proxy, &detail.proxy.record);
    let mut text = String::new();
    let mut line = |label: &str, value: &str| {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "{label:<13} {}", escape_line(value));
    };
    line("proxy", record.name.as_str());
    line("id", &record.id.to_string());
    line("state", &state(detail));
    if !proxy.stream_addresses.is_empty() {
        let addresses: Vec<_> = proxy.stream_addresses.iter().map(ToString::to_string).collect();
        line("streams from", &addresses.join(", "));
    }
    if let Some(host) = &proxy.control_plane {
        line("connected to", &format!("control plane {host}, which has its sync status"));
    }
    if let Some(sync) = &proxy.sync {
        line("sync", &sync_text(sync));
    }
    line("identity", &detail.identity);
    let services: Vec<_> = record.services.iter().map(ToString::to_string).collect();
    line("services", &services.join(", "));
    if !record.addresses.is_empty() {
        let addresses: Vec<_> = record.addresses.iter().map(ToString::to_string).collect();
        line("known as", &addresses.join(", "));
    }
    if let Some(machine) = record.machine {
        line("machine", &machine.to_string());
    }
    if let Some(resource) = &record.azure_resource {
        line("attested as", resource);
    }
    if !record.labels.is_empty() {
        line("labels", &record.labels.to_string());
    }
    if !record.locality.is_empty() {
        line("locality", &record.locality.to_string());
    }
    if let Some(account) = &detail.account {
        line("account", &account.to_string());
    }
    line("mesh address", &record.mesh_address.to_string());
    line("enrolled", &seconds(record.enrolled_at));
    let claimed = record
        .claimed_at
        .map_or_else(|| "unclaimed".to_owned(), |claimed| format!("claimed {}", seconds(claimed)));
    line("certificate", &format!("{claimed}; expires {}", seconds(record.certificate_expires_at)));
    if let Some(node) = &detail.node {
        let version = node.envoy_version.as_ref().map(|version| format!(", Envoy {version}"));
        line("node", &format!("{}{}", node.id, version.unwrap_or_default()));
        if let Some(metadata) = &node.metadata {
            line("metadata", &metadata.to_string());
        }
        if let Some(limits) = node.bootstrap_limits() {
            line("bootstrap", limits);
        }
    }
    let resources: Vec<_> = detail
        .resources
        .iter()
        .map(|(state, count)| format!("{count} {}", sync_status(state)))
        .collect();
    if !resources.is_empty() {
        line("resources", &resources.join(", "));
    }
    detail.endpoints.iter().for_each(|one| line("endpoint", &endpoint_text(one)));
    detail.upstreams.iter().for_each(|one| line("upstream", &one.to_string()));
    write_revocation(&mut text, record);
    let is_refused = record.revoked.as_ref().is_none_or(RevocationView::is_refused_by_peers);
    text.push_str(&reach_text(&detail.reach, is_refused));
    write_leave(&mut text, proxy);
    write_problems(&mut text, proxy);
    write_exchanges(&mut text, &detail.exchanges);
    text
}

/// How far the proxy has ACKed its resources.
fn sync_text(sync: &SyncView) -> String {
    let state = match sync.state {
        SyncState::Synced => "SYNCED",
        SyncState::Updating => "STALE",
        SyncState::Nacked => "NACK, a fallback is active",
        SyncState::Held => "HELD, a part waits for other proxies",
        SyncState::Disconnected => "disconnected",
        SyncState::Reconnecting => "expected to reconnect",
    };
    let since = sync.since.map(|since| format!(", since {}", seconds(since))).unwrap_or_default();
    let revision = sync.revision.as_ref();
    let revision = revision.map(|revision| format!(", ACKed revision {revision}"));
    format!("{state}{since}{}", revision.unwrap_or_default())
}

/// Appends the table of what was pushed, ACKed and NACKed, by type.
fn write_exchanges(text: &mut String, exchanges: &[ExchangeView]) {
    if exchanges.is_empty() {
        return;
    }
    let now = Timestamp::now();
    let time = |time: Option<Timestamp>| {
        time.map_or_else(|| "-".to_owned(), |time| format!("{} ago", age(time, now)))
    };
    let mut rows = vec![
        ["TYPE", "PUSHES", "BYTES", "LAST PUSH", "ACKS", "LAST ACK", "NACKS", "LAST NACK"]
            .map(str::to_owned),
    ];
    rows.extend(exchanges.iter().map(|one| {
        [
            one.resource_type.clone(),
            one.pushes.to_string(),
            one.bytes.to_string(),
            time(one.last_push),
            one.acks.to_string(),
            time(one.last_ack),
            one.nacks.to_string(),
            time(one.last_nack),
        ]
    }));
    text.push('\n');
    for line in aligned(&rows) {
        text.push_str(&line);
        text.push('\n');
    }
}

/// The sync status of a resource for people, by its JSON value. The words are those of `istioctl proxy-status`.
fn sync_status(state: &str) -> &str {
    match state {
        "acked" => "SYNCED",
        "stale" => "STALE",
        "nacked" => "NACK",
        "not_sent" => "NOT SENT",
        "removing" => "REMOVING",
        other => other,
    }
}

/// The state of a proxy, with an explanation.
fn state(detail: &ProxyDetail) -> String {
    match (&*detail.proxy.state, detail.proxy.streams) {
        ("connected", 1) => "connected, by one xDS stream".to_owned(),
        ("connected", many) => format!("connected, by {many} xDS streams"),
        ("unclaimed", _) => "unclaimed: the proxy has never connected".to_owned(),
        ("enrollment_expired", _) => {
            "enrollment expired: the proxy did not connect within 24 hours; enroll it again"
                .to_owned()
        }
        ("expired", _) => {
            "expired: the proxy's certificate has expired; enroll it again".to_owned()
        }
        (other, _) => other.to_owned(),
    }
}

/// A service port of the proxy: the address that callers use, and the applications behind it.
fn endpoint_text(endpoint: &EndpointView) -> String {
    let EndpointView { service, port, dialled_at, applications } = endpoint;
    let called = match dialled_at {
        Some(address) => format!("called at {address}"),
        None if applications.is_empty() => {
            "not called: no provider reports an endpoint here".to_owned()
        }
        None => "not called yet: `ironmesh endpoints` has the reason".to_owned(),
    };
    let applications: Vec<_> = applications
        .iter()
        .map(|one| {
            let ApplicationView { port, weight, health } = one;
            let health = match health {
                ReportedHealth::Healthy => String::new(),
                ReportedHealth::Unknown => ", health unknown".to_owned(),
                ReportedHealth::Draining | ReportedHealth::Unhealthy => format!(", {health}"),
            };
            format!("port {port} with weight {weight}{health}")
        })
        .collect();
    let applications = if applications.is_empty() {
        String::new()
    } else {
        format!("; applications: {}", applications.join(", "))
    };
    format!("{service}|{port} {called}{applications}")
}

/// A time to the second.
fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}
