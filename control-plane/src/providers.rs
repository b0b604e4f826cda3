//! The endpoints providers of the settings.

mod azure;
mod consul;
mod group;

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use ironmesh_catalog::Provider;
use ironmesh_config_settings::{EtcdSettings, PolicyLocation, Settings, StoreLocation};
use ironmesh_config_sources::{POLICY_SECTION, STORE_SECTION, etcd_options};
use ironmesh_etcd::{Cluster, LeaderElection};
use ironmesh_providers::azure::Azure;
use ironmesh_providers::consul::Consul;
use ironmesh_providers::{EndpointsProvider, ShrinkRule};
use ironmesh_store_etcd::EtcdStore;
use jiff::Timestamp;
use tokio::sync::watch;

use super::reconciler::EndpointsOptions;
pub use azure::azure_options;
use consul::consul_options;
pub(crate) use group::Group;

/// The endpoints providers of these settings, that of Azure by itself too, and the group of control planes that share
/// Azure's answers, if their store or their policy is in etcd. A start does not wait for the providers in `without`. With
/// a store in etcd, `store`, the group seals what it shares; with policy in etcd alone, it shares no key.
pub(super) fn endpoints_options(
    settings: &Settings,
    policy: &PolicyLocation,
    store: Option<&EtcdStore>,
    without: BTreeSet<Provider>,
) -> anyhow::Result<(EndpointsOptions, Arc<Azure>, Option<Group>)> {
    let consul = Consul::start(consul_options(&settings.consul), Timestamp::now)
        .context("cannot start the Consul provider: correct `[consul]` in the settings")?;
    // A control plane without a group polls at once; one in a group waits for the election.
    let etcd = match (&settings.store, policy) {
        (StoreLocation::Etcd(etcd), _) => {
            // Beside the notes of control planes, with the same role.
            let prefix = format!("{}/leases", etcd.prefix);
            Some(etcd_options(STORE_SECTION, EtcdSettings { prefix, ..etcd.clone() }))
        }
        (StoreLocation::Embedded, PolicyLocation::Etcd(etcd)) => {
            Some(etcd_options(POLICY_SECTION, etcd.clone()))
        }
        (StoreLocation::Embedded, PolicyLocation::Folder(_) | PolicyLocation::Releases) => None,
    };
    let (polls, is_polling) = watch::channel(etcd.is_none());
    let azure = Azure::start(azure_options(&settings.azure), Timestamp::now, is_polling)
        .context("cannot start the Azure provider: correct `[azure]` in the settings")?;
    let azure = Arc::new(azure);
    let group = etcd.map(|etcd| {
        let mut election = LeaderElection::new(Cluster::open(etcd)?, "azure");
        if let Some(store) = store {
            election = election.sealed(store.publication_seal());
        }
        anyhow::Ok(Group::new(election, Arc::clone(&azure), polls))
    });
    let providers: Vec<Arc<dyn EndpointsProvider>> =
        vec![Arc::new(consul), Arc::clone(&azure) as _];
    let options = EndpointsOptions {
        providers,
        rule: ShrinkRule {
            keep_share: settings.endpoints.keep_share,
            grace: settings.endpoints.grace,
        },
        sync_timeout: settings.endpoints.sync_timeout,
        allows_local_addresses: settings.allows_local_addresses(),
        without,
    };
    Ok((options, azure, group.transpose()?))
}
