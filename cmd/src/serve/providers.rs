//! The endpoints providers that settings describe.

mod group;

use std::sync::Arc;

use anyhow::Context;
use ironmesh_config::{ConsulSettings, EtcdPolicy, LeaderElection, PolicyPlace};
use ironmesh_providers::azure::Azure;
use ironmesh_providers::consul::{Consul, ConsulOptions, LocalityKeys};
use ironmesh_providers::{EndpointsProvider, ShrinkRule};
use jiff::Timestamp;
use tokio::sync::watch;

use super::reconciler::EndpointsOptions;
use crate::cli::AskedProvider;
use crate::places::Places;
use crate::provider::azure_options;
pub(super) use group::Group;

/// How endpoints are found by these settings, and with whom turns are taken at it, if with anybody. A start
/// does not wait for those in `without`.
pub(super) fn endpoints_options(
    places: &Places,
    without: &[AskedProvider],
) -> anyhow::Result<(EndpointsOptions, Option<Group>)> {
    let settings = &places.settings;
    let consul = Consul::start(consul_options(&settings.consul), Timestamp::now)
        .context("cannot ask Consul: mend `[consul]` in the settings")?;
    // Alone one asks at once; among others not before it is known whose turn it is.
    let etcd = match &places.policy {
        PolicyPlace::Etcd(etcd) => Some(etcd),
        PolicyPlace::Folder(_) => None,
    };
    let (asks, turn) = watch::channel(etcd.is_none());
    let azure = Azure::start(azure_options(&settings.azure), Timestamp::now, turn)
        .context("cannot ask Azure: mend `[azure]` in the settings")?;
    let azure = Arc::new(azure);
    let group = etcd.map(|etcd| {
        let turn = LeaderElection::new(EtcdPolicy::open(etcd.clone())?, "azure");
        anyhow::Ok(Group::new(turn, Arc::clone(&azure), asks))
    });
    let providers: Vec<Arc<dyn EndpointsProvider>> = vec![Arc::new(consul), azure];
    let options = EndpointsOptions {
        providers,
        rule: ShrinkRule {
            keep_share: settings.endpoints.keep_share,
            grace: settings.endpoints.grace,
        },
        sync_timeout: settings.endpoints.sync_timeout,
        allows_local_addresses: settings.allows_local_addresses(),
        without: without.iter().map(|provider| provider.provider()).collect(),
    };
    Ok((options, group.transpose()?))
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
