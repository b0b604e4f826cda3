//! The alerts about the control plane itself, its policy and its store.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use http::Method;
use ironmesh_tests::Http1Connection;
use ironmesh_tests::eventually::{eventually_within, patience};
use ironmesh_tests::process::Child;
use ironmesh_tests::prometheus::with_shorter_times;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Alarms, shipped};
use crate::server::Server;

pub(super) const ALERTS: [&str; 6] =
    ["Down", "JournalEntriesLost", "MeshFindings", "NotReady", "PolicyStale", "StoreOutage"];
pub(super) const RESTARTS: [&str; 1] = ["Restarts"];
pub(super) const FILES: [&str; 1] = ["FileDescriptors"];

const POLICY: &str = "[[service]]\nname = \"buyer\"\n";

/// A service whose endpoint has no proxy, which is a finding in strict mode.
const WITH_FINDING: &str = r#"
[[service]]
name = "till"
ports = [{ port = 81, protocol = "http" }]
[service.endpoints]
static = [{ address = "10.0.0.9" }]
"#;

const BROKEN: &str = "[[serivce]]\n";

/// Limits the size of files that a process writes; 0 simulates a full disk.
fn limit_files(child: &Child, current: Option<u64>) {
    let pid = Pid::from_raw(child.id().unwrap().try_into().unwrap());
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(pid, Resource::Fsize, Rlimit { current, maximum }).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_about_the_control_plane_fire_and_clear() {
    let Some(server) = Server::open("") else { return };
    let policy = |text: &str| server.workspace.write("policy/a.toml", text);
    policy(BROKEN);
    let mut child = server.start().await;
    let Some(mut alarms) = Alarms::start(&server).await else { return };
    // A first start without a valid policy.
    alarms.fires("NotReady").await;
    policy(WITH_FINDING);
    alarms.clears("NotReady").await;
    alarms.fires("MeshFindings").await;
    policy(POLICY);
    alarms.clears("MeshFindings").await;
    policy(BROKEN);
    alarms.fires("PolicyStale").await;
    policy(POLICY);
    alarms.clears("PolicyStale").await;

    limit_files(&child, Some(0));
    let socket = server.state().join("admin.sock");
    reject_requests(&socket, 1).await;
    alarms.fires("StoreOutage").await;
    alarms.fires_by("JournalEntriesLost", async || reject_requests(&socket, 20).await).await;
    limit_files(&child, None);
    alarms.clears("StoreOutage").await;
    alarms.clears("JournalEntriesLost").await;

    child.kill_hard().await;
    alarms.fires("Down").await;
    let _child = server.start().await;
    alarms.clears("Down").await;
    alarms.assert_observed(&ALERTS);
}

/// Sends so many requests on each of several connections, all of which are rejected: each is an entry of the journal.
async fn reject_requests(socket: &Path, count: usize) {
    let mut clients = JoinSet::new();
    for _ in 0..32 {
        let stream = UnixStream::connect(socket).await.unwrap();
        let mut connection = Http1Connection::over(stream).await.unwrap();
        clients.spawn(async move {
            for _ in 0..count {
                let path = "/v1/endpoints/default/missing/accept";
                let headers = [("host", "ironmesh")];
                let answer = connection.request(Method::POST, path, &headers).await.unwrap();
                assert_eq!(answer.status, 404, "{}", answer.text());
            }
        });
    }
    clients.join_all().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn alert_about_restarts_fires_and_clears() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", POLICY);
    let began = Instant::now();
    let mut child = server.start().await;
    // The range must contain several restarts, however long they take on this machine.
    let range = (began.elapsed() * 12).max(Duration::from_secs(15));
    let factor = 15 * 60 / range.as_secs();
    let rules = with_shorter_times(&shipped("alerts.yml"), factor.max(1));
    let Some(mut alarms) = Alarms::start_with(&server, &rules).await else { return };
    alarms
        .fires_by("Restarts", async || {
            child.kill_hard().await;
            child = server.start().await;
        })
        .await;
    eventually_within(patience() + range, "the alert to clear", async || {
        let firing = alarms.prometheus.firing().await.map_err(|error| format!("{error:#}"))?;
        if firing.contains("IronmeshRestarts") { Err(format!("{firing:?}")) } else { Ok(()) }
    })
    .await;
    alarms.clears("Restarts").await;
    alarms.assert_observed(&RESTARTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn alert_about_file_descriptors_fires_and_clears() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", POLICY);
    let _child = crate::open_files::serve(&server, 200, 200).await;
    let Some(mut alarms) = Alarms::start(&server).await else { return };
    let xds = server.loopback.socket(1, 15128);
    let mut connections: Vec<TcpStream> = Vec::new();
    alarms
        .fires_by("FileDescriptors", async || {
            // The control plane closes clients that do not begin a handshake.
            connections.retain(|client| {
                let received = client.try_read(&mut [0; 1]);
                received.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            });
            while connections.len() < 150 {
                connections.push(TcpStream::connect(xds).await.unwrap());
            }
        })
        .await;
    drop(connections);
    alarms.clears("FileDescriptors").await;
    alarms.assert_observed(&FILES);
}
