//! The options of the Consul provider.

use ironmesh_config_settings::ConsulSettings;
use ironmesh_providers::consul::{ConsulOptions, LocalityKeys};

/// The options of the Consul provider, from its settings.
pub(super) fn consul_options(settings: &ConsulSettings) -> ConsulOptions {
    let ConsulSettings {
        agents,
        token_file,
        ca,
        identity,
        datacenter,
        namespace,
        partition,
        join_by_tag,
        max_staleness,
        max_connections,
        wait,
        locality,
    } = settings.clone();
    let (certificate, key) = identity.unzip();
    ConsulOptions {
        agents,
        token_file,
        ca,
        certificate,
        key,
        datacenter: datacenter.map(Into::into),
        namespace: namespace.map(Into::into),
        partition: partition.map(Into::into),
        join_by_tag,
        max_staleness,
        wait,
        locality: LocalityKeys {
            region: locality.region.into(),
            zone: locality.zone.into(),
            sub_zone: locality.sub_zone.into(),
        },
        max_connections: usize::try_from(max_connections).unwrap_or(usize::MAX),
    }
}
