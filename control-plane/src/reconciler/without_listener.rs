//! Connected proxies without an inbound listener: their present Envoy process NACKed the only one that it was sent,
//! so it serves nothing. Reports them in findings; `progress` withdraws their endpoints.

use std::collections::BTreeMap;

use ironmesh_catalog::codes::NO_INBOUND_LISTENER;
use ironmesh_catalog::{Finding, JoinRecord, Snapshot};
use ironmesh_xds_server::ClientKey;

use super::nack_tracker::is_local;

/// The proxies without an inbound listener, each with its error finding.
#[derive(Debug, Default)]
pub(super) struct WithoutListener {
    by_client: BTreeMap<ClientKey, (String, JoinRecord)>,
    is_news: bool,
}

impl WithoutListener {
    /// Records that a client has no inbound listener, with its own reason; or, without a reason, that it has one.
    pub(super) fn set(&mut self, client: &str, without_listener: Option<(String, &JoinRecord)>) {
        let known = self.by_client.get(client).map(|(message, _)| message);
        if known == without_listener.as_ref().map(|(message, _)| message) {
            return;
        }
        self.is_news = true;
        match without_listener {
            Some((message, record)) => {
                self.by_client.insert(client.into(), (message, record.clone()));
            }
            None => {
                self.by_client.remove(client);
            }
        }
    }

    pub(super) fn contains(&self, client: &ClientKey) -> bool {
        self.by_client.contains_key(client)
    }

    /// Whether the findings differ from those at the last call.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// An error finding for each of these proxies.
    pub(super) fn findings(&self, snapshot: &Snapshot) -> Vec<Finding> {
        self.by_client
            .values()
            .map(|(message, record)| finding(message, record, snapshot))
            .collect()
    }
}

fn finding(message: &str, record: &JoinRecord, snapshot: &Snapshot) -> Finding {
    let (proxy, address) = (record.display_name(), record.mesh_address);
    let services: Vec<_> = record.services.iter().map(|name| format!("`{name}`")).collect();
    let text = format!(
        "proxy {proxy} at {address} serves nothing of {}: it NACKed its inbound listener and has no earlier one: {message}",
        services.join(", ")
    );
    let help = if is_local(message) {
        let port = address.port();
        format!(
            "on its machine, find what holds the address (`ss -ltnp 'sport = :{port}'`) and stop it; the control plane sends the listener again within 5 minutes"
        )
    } else {
        format!(
            "`ironmesh proxy list` names the policy objects that caused it; details: `ironmesh proxy show {proxy}`"
        )
    };
    let spot = record.services.iter().find_map(|name| snapshot.service(name));
    let spot = spot.map(|service| service.spot.clone());
    Finding::error(NO_INBOUND_LISTENER, spot, text).object(record.id).help(help)
}
