//! The endpoints providers that settings describe.

use std::sync::Arc;

use anyhow::Context;
use ironmesh_config::{ConsulSettings, Settings};
use ironmesh_providers::consul::{Consul, ConsulOptions, LocalityKeys};
use ironmesh_providers::{EndpointsProvider, ShrinkRule};
use jiff::Timestamp;

use super::reconciler::EndpointsOptions;
use crate::cli::AskedProvider;

/// How endpoints are found by these settings. A start does not wait for those in `without`.
pub(super) fn endpoints_options(
    settings: &Settings,
    without: &[AskedProvider],
) -> anyhow::Result<EndpointsOptions> {
    let consul = Consul::start(consul_options(&settings.consul), Timestamp::now)
        .context("cannot ask Consul: mend `[consul]` in the settings")?;
    let providers: Vec<Arc<dyn EndpointsProvider>> = vec![Arc::new(consul)];
    Ok(EndpointsOptions {
        providers,
        rule: ShrinkRule {
            keep_share: settings.endpoints.keep_share,
            grace: settings.endpoints.grace,
        },
        sync_timeout: settings.endpoints.sync_timeout,
        without: without.iter().map(|provider| provider.provider()).collect(),
    })
}

fn consul_options(settings: &ConsulSettings) -> ConsulOptions {
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
