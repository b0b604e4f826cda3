//! Workload keys of the machine: no port without a certificate, and no failed request while the agent is away.

use ironmesh_tests::{Mesh, Programs, REQUESTS_PER_FAULT, eventually, get_once};
use serde_json::Value;
use tokio::net::TcpStream;

use super::joined::Machine;
use super::{
    Applications, SERVER, SHORT, STORE, UPSTREAMS, start_load, start_mesh, wait_until_served,
};
use crate::enrollment::text;

/// The inbound port of the mesh.
const INBOUND: u16 = 15003;

/// The record of a proxy.
async fn record(mesh: &Mesh, machine: &Machine) -> Value {
    let shown = text(&mesh.run(&["proxy", "show", &machine.name(), "--output", "json"]).await);
    serde_json::from_str(&shown).unwrap()
}

/// The names in the certificates that Envoy presents to peers.
async fn names_of_service_certificates(machine: &Machine) -> Vec<(String, Option<String>)> {
    let certs: Value = serde_json::from_str(&machine.admin_get("/certs").await.unwrap()).unwrap();
    let leaves = certs["certificates"].as_array().unwrap().iter();
    let name = |leaf: &Value, kind: &str| {
        let mut names = leaf["subject_alt_names"].as_array().into_iter().flatten();
        names.find_map(|name| name[kind].as_str()).map(str::to_owned)
    };
    let names = leaves.filter_map(|one| one["cert_chain"].get(0)).filter_map(|leaf| {
        let uri = name(leaf, "uri").filter(|uri| uri.contains("/sa/"))?;
        Some((uri, name(leaf, "dns")))
    });
    names.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_keys_serve_while_the_agent_is_away() {
    let Some(programs) = Programs::find() else { return };
    let mesh = start_mesh(&programs).await;
    let _applications = Applications::start(&mesh, 21).await;

    // Envoy runs and the agent does not: not a port is open, as there is no certificate.
    let mut server = Machine::new(&mesh, &programs, 21, &SERVER, ("", SHORT)).await;
    server.start_agent(&mesh);
    eventually("the machine to be enrolled", async || {
        if server.path("proxy/workload.json").exists() { Ok(()) } else { Err("no folder") }
    })
    .await;
    server.agent.take().unwrap().kill_hard().await;
    let kept = server.path("proxy/service-certificates.json");
    let _ = fs_err::remove_file(&kept);
    server.start_supervisor(&mesh);
    eventually("the stream to the control plane", async || {
        let stats = server.admin_get("/stats?filter=^control_plane.connected_state").await?;
        anyhow::ensure!(stats.trim().ends_with(": 1"), "{stats}");
        anyhow::Ok(())
    })
    .await;
    let refused = TcpStream::connect(server.socket(INBOUND)).await;
    assert!(refused.is_err(), "the port is open without a certificate");
    assert_eq!(record(&mesh, &server).await["participation"], serde_json::json!([]));
    server.start_agent(&mesh);
    server.wait_until_live().await;

    // The service gets a second port below.
    let upstreams = UPSTREAMS.replace("store=", "store:14001=");
    let mut buyer =
        Machine::start(&mesh, &programs, 11, &["default/buyer"], (&upstreams, SHORT)).await;
    wait_until_served(&buyer).await;
    for (machine, account) in [(&server, "beside"), (&buyer, "buyer")] {
        let record = record(&mesh, machine).await;
        assert_eq!(record["certificates"], "agent", "{record:#}");
        let own = format!("{}.proxy.mesh.internal", record["id"].as_str().unwrap());
        let names = names_of_service_certificates(machine).await;
        assert!(!names.is_empty());
        for (uri, dns) in names {
            assert!(uri.ends_with(&format!("/sa/{account}")) || !uri.contains("/ns/"), "{uri}");
            assert_eq!(dns.as_deref(), Some(&*own), "{uri}");
        }
    }

    // The agent is killed: calls, new handshakes and new connections go on.
    let load = start_load(&buyer);
    load.wait_for_requests(REQUESTS_PER_FAULT).await;
    server.agent.take().unwrap().kill_hard().await;
    buyer.agent.take().unwrap().kill_hard().await;
    load.wait_for_requests(load.requests() + REQUESTS_PER_FAULT).await;

    // A new port is active in Envoy at once, and gets callers when the agent has reported it.
    let second = "{ name = \"second\", port = 14009, protocol = \"http\", target_port = 8080 }";
    let both = STORE.replace("target_port = 8080 }]", &format!("target_port = 8080 }}, {second}]"));
    mesh.write_policy("store.toml", &both);
    eventually("the new port to be ACKed", async || {
        let listeners = server.admin_get("/config_dump?resource=dynamic_listeners").await?;
        anyhow::ensure!(listeners.contains("14009.store"), "no chain for the new port");
        anyhow::Ok(())
    })
    .await;
    let ports = record(&mesh, &server).await["participation"].to_string();
    assert!(ports.contains("14001") && !ports.contains("14009"), "{ports}");
    let shown = text(&mesh.run(&["endpoints", "default/store"]).await);
    assert!(shown.contains("not reported"), "{shown}");
    server.start_agent(&mesh);
    eventually("the participation of the new port", async || {
        let ports = record(&mesh, &server).await["participation"].to_string();
        if ports.contains("14009") { Ok(()) } else { Err(ports) }
    })
    .await;
    load.wait_for_requests(load.requests() + REQUESTS_PER_FAULT).await;
    load.finish().await.assert_undisturbed();
    let response = get_once(buyer.socket(14001), "/", &[("host", "store")]).await.unwrap();
    assert_eq!(response.status, 200);
}
