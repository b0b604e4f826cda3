//! A real Envoy, and endpoints that a provider reports as draining or unhealthy. The resources are
//! compiled as in a control plane (docs/decisions/0032).

use std::sync::Arc;

use ironmesh_catalog::{
    Discovered, Domain, EgressMode, Endpoint, Health, Inputs, JoinRecord, Mesh, Mode, NodeMetadata,
    Provider, Proxy, Records, ServiceCertificate, ServiceName, Snapshot, TcpAccesses, TrustDomain,
};
use ironmesh_config_language::{Document, load_documents};
use ironmesh_tests::authority::Identity;
use ironmesh_tests::programs::require_envoy;
use ironmesh_tests::{App, Envoy, Ledger, Load, Loopback, TcpConnection, eventually, get_once};
use ironmesh_xds_compile::Compiler;
use ironmesh_xds_wire::ResourceSet;
use jiff::Timestamp;
use serde_json::json;

use crate::bare_envoy::bootstrap;
use crate::server::Server;

const POLICY: &str = r#"
[[service]]
name = "till"
mode = "permissive"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
[service.endpoints]
consul = {}

[[service]]
name = "ledger"
mode = "permissive"
ports = [{ name = "ledger", port = 3306, protocol = "tcp" }]
[service.endpoints]
consul = {}

[[service]]
name = "customer"
"#;

/// The hosts of the tills, and of the ledger.
const TILLS: [u8; 3] = [41, 42, 43];
const LEDGER: u8 = 44;

/// The customer's local port for the ledger.
const LOCAL: u16 = 3307;

/// A customer of the tills and the ledger.
struct Customer {
    server: Server,
    loopback: Loopback,
    client: Identity,
    certificate: Arc<ServiceCertificate>,
}

impl Customer {
    /// The customer's resource set for this health of the tills and the ledger.
    fn resource_set(&self, tills: [Health; 3], ledger: Health) -> ResourceSet {
        let Self { server, loopback, client, certificate } = self;
        let loaded = load_documents([Document::new("policy.toml", POLICY)]);
        let specification = loaded.specification.unwrap();
        let known = |at: u8, health| Endpoint {
            health,
            ..Endpoint::new(Provider::Consul, loopback.host(at))
        };
        let name = |name: &str| -> ServiceName { name.parse().unwrap() };
        let tills = TILLS.into_iter().zip(tills).map(|(at, health)| known(at, health)).collect();
        let discovered = Discovered(
            [
                (name("till"), Arc::new(tills)),
                (name("ledger"), Arc::new(vec![known(LEDGER, ledger)])),
            ]
            .into_iter()
            .collect(),
        );
        let record = JoinRecord::new(
            client.proxy,
            vec![name("customer")],
            loopback.socket(11, 15003),
            Timestamp::UNIX_EPOCH,
            Timestamp::MAX,
        );
        let upstream = serde_json::from_value(json!({ "service": "ledger", "local_port": LOCAL }));
        let metadata = NodeMetadata { upstreams: vec![upstream.unwrap()], ..Default::default() };
        let records: Records = [(record.id, Arc::new(record.clone()))].into_iter().collect();
        let domain = Domain::default();
        let inputs = Inputs {
            mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
            mode: Mode::Strict,
            egress: EgressMode::Policy,
            specification,
            discovered,
            records,
            revoked: Records::new(),
            leaving: ironmesh_catalog::LeavingProxies::new(),
            health: ironmesh_catalog::ReportedApplications::new(),
            certificates: [(certificate.account.clone(), Arc::clone(certificate))]
                .into_iter()
                .collect(),
            trust_bundle: Arc::new(server.authority.trust_bundle()),
            revoked_callers: Arc::default(),
        };
        let mut compiler =
            Compiler::new(Arc::new(Snapshot::assemble(inputs, TcpAccesses::default())));
        compiler.compile(&Proxy { record, metadata }).resources
    }

    /// Publishes it.
    fn publish(&self, tills: [Health; 3], ledger: Health) {
        self.server.hub.publish(&self.client.name(), self.resource_set(tills, ledger));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_and_unhealthy_endpoints_get_no_new_calls() {
    use Health::{Draining, Healthy, Unhealthy};
    let Some(program) = require_envoy() else { return };
    let (server, loopback) = (Server::start().await, Loopback::claim());
    let (client, folder) = (server.authority.proxy(), tempfile::tempdir().unwrap());
    let certificate = Arc::new(server.authority.account(&"default/customer".parse().unwrap()));
    let customer = Customer { server, loopback, client, certificate };
    let Customer { server, loopback, client, .. } = &customer;
    let mut tills = Vec::new();
    for at in TILLS {
        tills.push(App::http1(&at.to_string(), loopback.socket(at, 8080)).await);
    }
    let ledger = Ledger::start("ledger", loopback.socket(LEDGER, 3306)).await;

    let ads = json!({ "resource_api_version": "V3", "ads": {} });
    let dynamic = json!({ "cds_config": ads, "lds_config": ads, "ads_config": {
        "api_type": "DELTA_GRPC",
        "transport_api_version": "V3",
        "set_node_on_first_message_only": true,
        "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds" } }],
    }});
    let text = bootstrap(server, client, loopback.socket(11, 15000), &dynamic);
    fs_err::write(folder.path().join("envoy.yaml"), text).unwrap();
    let well = customer.resource_set([Healthy; 3], Healthy);
    let starting = Envoy::start(&program, "customer", folder.path(), loopback.host(11), 30);
    let (envoy, ()) = tokio::join!(starting, server.publish(client, well));

    let call = || get_once(envoy.socket(15080), "/", &[("host", "till")]);
    let seen = || tills.iter().map(App::requests).collect::<Vec<_>>();
    let is_in_force = async |what: &str| {
        eventually("the health of the tills", async || {
            let there = envoy.admin_get("/clusters").await.text();
            if there.contains(what) { Ok(()) } else { Err(there) }
        })
        .await;
    };
    eventually("all tills to be called", async || {
        let response = call().await?;
        anyhow::ensure!(response.status == 200, "{}", response.status);
        anyhow::ensure!(seen().iter().all(|count| *count > 0), "{:?}", seen());
        Ok(())
    })
    .await;

    // Less than half of them are healthy: by default Envoy would send to all (panic mode).
    let load = Load::start(envoy.socket(15080), "till", "/");
    let load = load.with_connection(envoy.socket(LOCAL)).await.unwrap();
    let [ill, leaving, _] = TILLS.map(|at| format!("{}:8080::health_flags::", loopback.host(at)));
    let unwell = [Unhealthy, Draining, Healthy];
    customer.publish(unwell, Unhealthy);
    is_in_force(&format!("{ill}/failed_eds_health")).await;
    is_in_force(&format!("{leaving}/eds_status_draining")).await;
    // Requests in flight have arrived.
    let before = eventually("the rest of the requests", async || {
        let before = seen();
        for _ in 0..20 {
            call().await?;
        }
        anyhow::ensure!(seen()[..2] == before[..2], "{before:?}, then {:?}", seen());
        Ok(before)
    })
    .await;
    for _ in 0..100 {
        assert_eq!(call().await.unwrap().status, 200);
    }
    let after = seen();
    assert_eq!(after[..2], before[..2], "an unhealthy endpoint was called");
    assert!(after[2] >= before[2] + 120, "{before:?}, then {after:?}");
    // The ledger is unhealthy as well: open connections stay, and no new one is made.
    let connections = ledger.connections();
    let rejected = async {
        let mut connection = TcpConnection::connect(envoy.socket(LOCAL)).await?;
        connection.line().await
    };
    assert!(rejected.await.is_err(), "an unhealthy ledger was reached");
    assert_eq!(ledger.connections(), connections);

    // All are healthy again, and the first connections have lasted.
    customer.publish([Healthy; 3], Healthy);
    eventually("all tills to be called again", async || {
        call().await?;
        let is_called = seen().iter().zip(&after).all(|(now, then)| now > then);
        anyhow::ensure!(is_called, "{after:?}, then {:?}", seen());
        Ok(())
    })
    .await;
    load.finish().await.assert_undisturbed();

    // No endpoint is healthy: none is called.
    let none = [Draining, Unhealthy, Draining];
    customer.publish(none, Healthy);
    eventually("503", async || match call().await?.status.as_u16() {
        503 => Ok(()),
        other => anyhow::bail!("{other}"),
    })
    .await;
    let before = seen();
    for _ in 0..20 {
        assert_eq!(call().await.unwrap().status, 503);
    }
    assert_eq!(seen(), before);
    assert_eq!(envoy.sum("upstream_rq_retry$").await, 0);
}
