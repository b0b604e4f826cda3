//! A real Envoy NACKs a whole response because of one malformed resource.

use std::path::Path;

use ironmesh_tests::programs::require_envoy;
use ironmesh_tests::{Envoy, Loopback, eventually};
use ironmesh_xds_wire::ResourceType::Cluster;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3 as pb;
use ironmesh_xds_wire::pb::google::protobuf::Duration;
use ironmesh_xds_wire::{Resource, ResourceSet};
use serde_json::json;

use crate::bare_envoy::bootstrap;
use crate::hand_made::set_of;
use crate::server::Server;

const COUNT: usize = 64;

/// This many clusters, one of which Envoy must NACK: a negative timeout violates the rules of the
/// message. Envoy then applies nothing of the response (rule 5).
fn clusters(malformed: usize) -> ResourceSet {
    let cluster = |number: usize| {
        let seconds = if number == malformed { -1 } else { 5 };
        Resource::new(&pb::Cluster {
            name: format!("cluster-{number}"),
            connect_timeout: Some(Duration { seconds, nanos: 0 }),
            ..pb::Cluster::default()
        })
    };
    set_of(&(0..COUNT).map(cluster).collect::<Vec<_>>())
}

async fn assert_only_malformed_resource_is_nacked(envoy: &Path, api_type: &str) {
    let (server, loopback) = (Server::start().await, Loopback::claim());
    let (client, folder) = (server.authority.proxy(), tempfile::tempdir().unwrap());
    let ads = json!({ "resource_api_version": "V3", "ads": {} });
    let dynamic = json!({ "cds_config": ads, "lds_config": ads, "ads_config": {
        "api_type": api_type,
        "transport_api_version": "V3",
        "set_node_on_first_message_only": true,
        "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds" } }],
    }});
    let text = bootstrap(&server, &client, loopback.socket(11, 15000), &dynamic);
    fs_err::write(folder.path().join("envoy.yaml"), text).unwrap();
    let starting = Envoy::start(envoy, "bare", folder.path(), loopback.host(11), 30);
    let (envoy, ()) = tokio::join!(starting, server.publish(&client, clusters(40)));

    let all_but = async |guilty: &str| {
        let is_found = |status: &ironmesh_xds_server::ClientStatus| {
            status.nacks.len() == 1 && status.nacks.contains_key(&(Cluster, guilty.into()))
        };
        let status = server.status_where(&client, "the guilty to be found", is_found).await;
        let words = status.nacks.values().map(|nack| &*nack.message).collect::<String>();
        assert!(words.contains("positive duration"), "{words}");
        eventually("all other clusters to be active", async || {
            // One more cluster is that of the control plane.
            match envoy.stat("cluster_manager.active_clusters").await {
                active if active == COUNT as u64 => Ok(()),
                active => Err(active),
            }
        })
        .await;
        let there = envoy.admin_get("/clusters").await.text();
        assert!(!there.contains(&format!("{guilty}::")), "{there}");
    };
    all_but("cluster-40").await;
    // By halves, not one by one.
    let rejected = envoy.stat("cluster_manager.cds.update_rejected").await;
    assert!(rejected <= 7, "{rejected} pushes were NACKed");
    let accepted = envoy.stat("cluster_manager.cds.update_success").await;
    assert!(accepted <= 8, "{accepted} pushes were ACKed");

    // The resource is fixed, and another active one becomes malformed: its previous version stays.
    server.hub.publish(&client.name(), clusters(COUNT));
    server.status_where(&client, "no NACK", |status| status.nacks.is_empty()).await;
    server.hub.publish(&client.name(), clusters(3));
    let guilty = |status: &ironmesh_xds_server::ClientStatus| {
        status.nacks.contains_key(&(Cluster, "cluster-3".into()))
    };
    server.status_where(&client, "the other to be NACKed", guilty).await;
    assert_eq!(envoy.stat("cluster_manager.active_clusters").await, COUNT as u64 + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_cluster_does_not_block_others_for_a_delta_envoy() {
    let Some(envoy) = require_envoy() else { return };
    assert_only_malformed_resource_is_nacked(&envoy, "DELTA_GRPC").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_cluster_does_not_block_others_for_a_sotw_envoy() {
    let Some(envoy) = require_envoy() else { return };
    assert_only_malformed_resource_is_nacked(&envoy, "GRPC").await;
}
