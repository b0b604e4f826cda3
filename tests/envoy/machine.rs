//! Machines of a real mesh under `ironmesh agent run` and `ironmesh envoy run`: hot restarts, drain, renewals and bad
//! input. Without systemd, whose part is in the suite `fleet`.

#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and what it prints belongs to its report"
)]

mod application_health;
mod bad_input;
mod certificates;
mod drain;
mod guide;
mod hot_restart;
mod joined;
mod ordered_drain;
mod revoked;
mod traffic;
mod workload_keys;

use ironmesh_tests::{
    App, Http2Connection, Ledger, Load, LongConnections, Mesh, Programs, eventually, get_once,
};

use crate::bookstore::ensure_status;
use joined::Machine;

/// The services of the server: that of HTTP, and those of [`LongConnections::POLICY`].
const SERVER: [&str; 3] = ["default/store", "default/calls", "default/ledger"];

/// The upstreams of the buyer.
const UPSTREAMS: &str =
    r#"upstreams = ["default/store=14001", "default/calls=15014", "default/ledger=15015"]"#;

const STORE: &str = r#"
[[service]]
name = "store"
service_account = "beside"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[service]]
name = "buyer"
"#;

/// Short times of hot restarts and of the drain.
const SHORT: &str = "drain_time = \"1s\"\nparent_shutdown_time = \"3s\"\ndrain_minimum = \"1s\"\n\
                     drain_maximum = \"5s\"";

async fn start_mesh(programs: &Programs) -> Mesh {
    Mesh::start(programs, &[("store.toml", STORE), ("beside.toml", LongConnections::POLICY)]).await
}

/// The applications of a server. The one of TCP sends its name.
struct Applications {
    web: App,
    _calls: App,
    _ledger: Ledger,
}

impl Applications {
    async fn start(mesh: &Mesh, host: u8) -> Self {
        let socket = |port| mesh.loopback().socket(host, port);
        Self {
            web: App::http1("store", socket(8080)).await,
            _calls: App::http2("calls", socket(8070)).await,
            _ledger: Ledger::start(&format!("ledger-{host}"), socket(8071)).await,
        }
    }
}

/// Waits until the buyer reaches the services of a server.
async fn wait_until_served(buyer: &Machine) {
    eventually("the buyer to be served", async || {
        let response = get_once(buyer.socket(14001), "/", &[("host", "store")]).await?;
        ensure_status(&response, 200)?;
        buyer.connect().await.map(drop)
    })
    .await;
    // The long streams of load are not repeated at its start.
    eventually("a call", async || {
        let mut connection = Http2Connection::connect(buyer.socket(15014)).await?;
        connection.open_echo("/echo", "calls").await.map(drop)
    })
    .await;
}

/// Load of the buyer over HTTP/1.1, HTTP/2, short streams and new TCP connections.
fn start_load(buyer: &Machine) -> Load {
    Load::start(buyer.socket(14001), "store", "/")
        .with_calls(buyer.socket(15014), "calls")
        .with_new_connections(buyer.socket(15015))
}
