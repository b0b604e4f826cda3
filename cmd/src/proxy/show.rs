//! `ironmesh proxy show`: all that is known of one proxy.

use std::fmt::Write as _;

use ironmesh_admin::{ApplicationView, Client, EndpointView, ProxyDetail, ReportedHealth};
use ironmesh_catalog::text::escape_line;
use jiff::Timestamp;

use super::{write_problems, write_revocation};
use crate::cli::{Output, ShowArguments};
use crate::places::Places;
use crate::stdout::{out, outln};

/// Tells how a proxy stands, or all that it is to have.
pub(crate) async fn show(arguments: &ShowArguments, output: Output) -> anyhow::Result<()> {
    let client = Client::new(&Places::find(&arguments.config)?.admin_socket());
    if arguments.resources {
        let config = client.proxy_config(&arguments.id).await?;
        outln!("{}", serde_json::to_string_pretty(&config)?)?;
        return Ok(());
    }
    let proxy = client.proxy(&arguments.id).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&proxy)?)?,
        Output::Text => out!("{}", in_words(&proxy))?,
    }
    Ok(())
}

/// A proxy in words, in lines.
fn in_words(detail: &ProxyDetail) -> String {
    let (proxy, record) = (&detail.proxy, &detail.proxy.record);
    let mut text = String::new();
    let mut line = |what: &str, words: &str| {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "{what:<13} {}", escape_line(words));
    };
    line("proxy", &record.id.to_string());
    line("state", &state(detail));
    if !proxy.stream_addresses.is_empty() {
        let addresses: Vec<_> = proxy.stream_addresses.iter().map(ToString::to_string).collect();
        line("streams from", &addresses.join(", "));
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
    line("joined", &moment(record.joined_at));
    let claimed = record.claimed_at.map_or_else(
        || "not claimed by a connection".to_owned(),
        |claimed| format!("claimed {}", moment(claimed)),
    );
    line("certificate", &format!("{claimed}; ends {}", moment(record.certificate_expires_at)));
    if let Some(node) = &detail.node {
        let version = node.envoy_version.as_ref().map(|version| format!(", Envoy {version}"));
        line("node", &format!("{}{}", node.id, version.unwrap_or_default()));
        if let Some(statement) = &node.statement {
            line("says", &statement.to_string());
        }
    }
    let resources: Vec<_> =
        detail.resources.iter().map(|(state, count)| format!("{count} {state}")).collect();
    if !resources.is_empty() {
        line("resources", &resources.join(", ").replace('_', " "));
    }
    for endpoint in &detail.endpoints {
        line("endpoint", &endpoint_in_words(endpoint));
    }
    write_revocation(&mut text, record);
    write_problems(&mut text, proxy);
    text
}

fn state(detail: &ProxyDetail) -> String {
    match (&*detail.proxy.state, detail.proxy.streams) {
        ("connected", 1) => "connected, by one xDS stream".to_owned(),
        ("connected", many) => format!("connected, by {many} xDS streams"),
        ("unclaimed", _) => "unclaimed: it has never connected".to_owned(),
        ("forfeit", _) => {
            "forfeit: it did not connect within a day of joining, and must join again".to_owned()
        }
        ("expired", _) => "expired: its certificate has ended, and it must join again".to_owned(),
        (other, _) => other.to_owned(),
    }
}

fn endpoint_in_words(endpoint: &EndpointView) -> String {
    let EndpointView { service, port, dialled_at, applications } = endpoint;
    let dialled = match dialled_at {
        Some(address) => format!("called at {address}"),
        None if applications.is_empty() => "not called: no endpoint is known there".to_owned(),
        None => "not called: the proxy has not taken it yet".to_owned(),
    };
    let behind: Vec<_> = applications
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
    let behind = if behind.is_empty() {
        String::new()
    } else {
        format!("; applications: {}", behind.join(", "))
    };
    format!("{service}|{port} {dialled}{behind}")
}

/// A moment as people want it: to the second.
fn moment(time: Timestamp) -> String {
    format!("{time:.0}")
}
