//! Looks at a simulated admin interface, and reports to a real enrollment listener.

use std::path::Path;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::routing::get;
use ironmesh_agent_envoy::local_http::LocalAddress;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::task::JoinHandle;

use super::envoy_process::EnvoyProcess;
use super::inbound_listener::InboundListener;

/// The admin interface of an Envoy, as far as the agent reads it.
#[derive(Clone)]
struct TestAdmin(Arc<Mutex<AdminState>>);

struct AdminState {
    uptime: u64,
    epoch: u32,
    updates: u64,
    dump: Value,
}

impl TestAdmin {
    fn serve(path: &Path) -> (Self, JoinHandle<()>) {
        let state = AdminState { uptime: 5, epoch: 0, updates: 1, dump: json!({}) };
        let admin = Self(Arc::new(Mutex::new(state)));
        let info = |State(Self(state)): State<Self>| async move {
            let state = state.lock();
            json!({
                "uptime_current_epoch": format!("{}s", state.uptime),
                "command_line_options": { "restart_epoch": state.epoch },
            })
            .to_string()
        };
        let stats = |State(Self(state)): State<Self>| async move {
            format!("listener_manager.lds.update_success: {}\n", state.lock().updates)
        };
        let dump = |State(Self(state)): State<Self>| async move { state.lock().dump.to_string() };
        let router = Router::new()
            .route("/server_info", get(info))
            .route("/stats", get(stats))
            .route("/config_dump", get(dump))
            .with_state(admin.clone());
        let listener = UnixListener::bind(path).unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (admin, task)
    }

    fn change(&self, change: impl FnOnce(&mut AdminState)) {
        change(&mut self.0.lock());
    }
}

#[tokio::test]
async fn process_is_known_by_its_epoch_and_uptime() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let address = LocalAddress::Socket(path.clone());
    assert!(EnvoyProcess::read(&address).await.unwrap_err().is_absent());
    let (admin, _task) = TestAdmin::serve(&path);
    let first = EnvoyProcess::read(&address).await.unwrap();
    admin.change(|state| state.uptime = 6);
    let later = EnvoyProcess::read(&address).await.unwrap();
    assert!(later.is_same_as(&first) && !later.has_other_listeners(&first));
    admin.change(|state| state.updates = 2);
    let updated = EnvoyProcess::read(&address).await.unwrap();
    assert!(updated.is_same_as(&first) && updated.has_other_listeners(&later));
    admin.change(|state| state.epoch = 1);
    assert!(!EnvoyProcess::read(&address).await.unwrap().is_same_as(&updated), "a hot restart");
    admin.change(|state| (state.epoch, state.uptime) = (0, 1));
    assert!(!EnvoyProcess::read(&address).await.unwrap().is_same_as(&updated), "a new process");
    admin.change(|state| state.uptime = 60);
    let old = EnvoyProcess::read(&address).await.unwrap();
    assert!(!old.is_same_as(&updated), "a process that has run for longer than has passed");
}

fn filter_chain(server_name: &str, secret: &str, source: &Value) -> Value {
    json!({
        "filter_chain_match": { "server_names": [server_name], "transport_protocol": "tls" },
        "filters": [{ "name": "any" }],
        "transport_socket": { "name": "tls", "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {
                "tls_certificate_sds_secret_configs": [{ "name": secret, "sds_config": source }],
            },
        } },
    })
}

fn listener(address: &str, chains: &[Value]) -> Value {
    json!({
        "version_info": "1",
        "listener": {
            "name": "inbound",
            "address": { "socket_address": { "address": address, "port_value": 15003 } },
            "filter_chains": chains,
        },
    })
}

#[tokio::test]
async fn active_listener_names_the_chains_with_certificates_of_the_agent() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.sock");
    let address = LocalAddress::Socket(path.clone());
    let (admin, _task) = TestAdmin::serve(&path);
    let read = async || InboundListener::read(&address).await.unwrap();
    assert_eq!(read().await, InboundListener::default(), "no listener yet");

    let (agent, ads) = (json!({ "api_config_source": {} }), json!({ "ads": {} }));
    let chains = [
        filter_chain("80.a.b.mesh", "service-cert:b/a", &agent),
        filter_chain("81.a.b.mesh", "service-cert:b/a", &ads),
        filter_chain("82.a.b.mesh", "roots", &agent),
        json!({ "filter_chain_match": {}, "filters": [] }),
    ];
    let active = listener("0.0.0.0", &chains);
    let warming = json!({ "configs": [{ "name": "inbound", "warming_state": active }] });
    admin.change(|state| state.dump = warming);
    let found = read().await;
    assert!(found.is_warming && found.agent_fed_chains.is_empty() && found.address.is_none());

    let both = json!({ "configs": [{
        "name": "inbound",
        "active_state": active,
        "warming_state": listener("0.0.0.0", &[]),
    }] });
    admin.change(|state| state.dump = both);
    let found = read().await;
    assert!(found.is_warming);
    assert_eq!(found.address.unwrap().to_string(), "127.0.0.1:15003");
    let names: Vec<_> = found.agent_fed_chains.iter().map(|chain| &*chain.server_name).collect();
    assert_eq!(names, ["80.a.b.mesh"]);

    for (bound, reached) in [("::", "[::1]:15003"), ("10.0.0.5", "10.0.0.5:15003")] {
        let configs = json!({ "configs": [{ "active_state": listener(bound, &[]) }] });
        admin.change(|state| state.dump = configs);
        let found = read().await;
        assert!(!found.is_warming);
        assert_eq!(found.address.unwrap().to_string(), reached);
    }
    admin.change(|state| state.dump = json!({ "configs": [{ "active_state": 1 }] }));
    assert!(InboundListener::read(&address).await.is_err());
}
