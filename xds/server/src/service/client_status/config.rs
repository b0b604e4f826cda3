//! The sync status of a client as `GenericXdsConfig`.

use ironmesh_xds_wire::Resource;
use ironmesh_xds_wire::pb::envoy::admin::v3::{ClientResourceStatus, UpdateFailureState};
use ironmesh_xds_wire::pb::envoy::config::core::v3 as core;
use ironmesh_xds_wire::pb::envoy::service::status::v3::client_config::GenericXdsConfig;
use ironmesh_xds_wire::pb::envoy::service::status::v3::{ClientConfig, ConfigStatus};

use crate::hub::Nack;
use crate::report::{Report, ResourceState, ResourceStatus};

/// Converts a report.
pub(super) fn client_config(report: &Report, without_contents: bool) -> ClientConfig {
    let resources = report.resources.iter().map(|one| resource(one, without_contents));
    ClientConfig {
        node: Some(core::Node::from(&*report.node)),
        generic_xds_configs: resources.collect(),
        ..ClientConfig::default()
    }
}

fn resource(status: &ResourceStatus, without_contents: bool) -> GenericXdsConfig {
    let wanted = status.wanted.as_deref();
    let version = wanted.map(Resource::version).or(status.acked);
    let (config_status, client_status) = statuses(status);
    GenericXdsConfig {
        type_url: status.resource_type.url().to_owned(),
        name: status.name.to_string(),
        version_info: version.map_or_else(String::new, |version| version.to_string()),
        xds_config: wanted.filter(|_| !without_contents).and_then(Resource::redacted),
        config_status: config_status.into(),
        client_status: client_status.into(),
        error_state: status.nack.as_ref().map(failure),
        ..GenericXdsConfig::default()
    }
}

/// The server's status of a resource, and what it knows of the client's. The server does not know
/// the client's subscriptions here, nor what is in flight: without an ACK or NACK the client's
/// status is unknown.
fn statuses(status: &ResourceStatus) -> (ConfigStatus, ClientResourceStatus) {
    let client_status = match (status.state(), &status.nack) {
        // The client has the earlier version, or the fallback of the NACKed one.
        (_, Some(_)) => ClientResourceStatus::Nacked,
        (ResourceState::Acked | ResourceState::Stale, None) => ClientResourceStatus::Acked,
        (ResourceState::PendingRemoval, None) => ClientResourceStatus::DoesNotExist,
        (ResourceState::NotAcked | ResourceState::Nacked, None) => ClientResourceStatus::Unknown,
    };
    let config_status = match status.state() {
        ResourceState::Acked => ConfigStatus::Synced,
        ResourceState::Nacked => ConfigStatus::Error,
        ResourceState::Stale | ResourceState::PendingRemoval => ConfigStatus::Stale,
        ResourceState::NotAcked => ConfigStatus::Unknown,
    };
    (config_status, client_status)
}

/// The client's error.
fn failure(nack: &Nack) -> UpdateFailureState {
    UpdateFailureState {
        details: nack.message.clone(),
        version_info: nack.version.to_string(),
        ..UpdateFailureState::default()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ironmesh_xds_wire::ResourceType;

    use super::*;
    use crate::test_resources::cluster;

    #[test]
    fn sync_status_maps_to_config_status_and_keeps_nacks() {
        let [wanted, other] = [1, 2].map(|content| cluster("a", content));
        let nack = |of: &Resource| Nack {
            version: of.version(),
            message: "no".to_owned(),
            is_certain: true,
            keeps_earlier: true,
        };
        let status = |wanted: Option<&Arc<Resource>>, acked: Option<&Arc<Resource>>, nacked| {
            let status = ResourceStatus {
                resource_type: ResourceType::Cluster,
                name: "a".into(),
                wanted: wanted.cloned(),
                acked: acked.map(|acked| acked.version()),
                nack: nacked,
            };
            let config = resource(&status, false);
            let failure = config.error_state.as_ref().map(|failure| failure.version_info.clone());
            (config.config_status(), config.client_status(), failure)
        };
        let (wanted, other) = (Some(&wanted), Some(&other));
        for (statuses_of, config_status, client_status) in [
            (status(wanted, wanted, None), ConfigStatus::Synced, ClientResourceStatus::Acked),
            (status(wanted, other, None), ConfigStatus::Stale, ClientResourceStatus::Acked),
            (status(wanted, None, None), ConfigStatus::Unknown, ClientResourceStatus::Unknown),
            (status(None, other, None), ConfigStatus::Stale, ClientResourceStatus::DoesNotExist),
        ] {
            assert_eq!(statuses_of, (config_status, client_status, None));
        }
        for (acked, nacked, config_status) in [
            (None, wanted, ConfigStatus::Error),
            (other, wanted, ConfigStatus::Error),
            (wanted, other, ConfigStatus::Synced),
            (None, other, ConfigStatus::Unknown),
        ] {
            let version = nacked.map(|nacked| nacked.version().to_string());
            let statuses_of = status(wanted, acked, nacked.map(|nacked| nack(nacked)));
            assert_eq!(statuses_of, (config_status, ClientResourceStatus::Nacked, version));
        }
    }
}
