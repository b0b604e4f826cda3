//! Whether hosts are there and healthy at all times, as the Envoy of a caller sees it.

use std::collections::BTreeSet;

use ironmesh_tests::{Envoy, get_once};
use tokio::task::JoinHandle;
use tokio::time::{Duration, interval};
use tokio_util::sync::CancellationToken;

/// Looks again and again whether hosts are there.
#[derive(Debug)]
pub(crate) struct HostWatch {
    stop: CancellationToken,
    looking: JoinHandle<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    looks: u64,
    /// Of each host that was missed once, what Envoy said at the first time.
    missed: Vec<(String, String)>,
}

impl HostWatch {
    /// Begins to look for these hosts, as [`host`] names them.
    pub(crate) fn of(envoy: &Envoy, hosts: impl IntoIterator<Item = String>) -> Self {
        let hosts: Vec<_> = hosts.into_iter().collect();
        assert!(!hosts.is_empty());
        let (stop, admin) = (CancellationToken::new(), envoy.socket(15000));
        let stopped = stop.clone();
        let looking = tokio::spawn(async move {
            let mut seen = Seen::default();
            let mut interval = interval(Duration::from_millis(50));
            while !stopped.is_cancelled() {
                interval.tick().await;
                // A look that fails is none: that there are looks is asked for at the end.
                let Ok(answer) = get_once(admin, "/clusters", &[]).await else { continue };
                seen.looks += 1;
                let text = answer.text();
                let there: BTreeSet<_> = text.lines().collect();
                for host in hosts.iter().filter(|host| !there.contains(host.as_str())) {
                    if seen.missed.iter().all(|(known, _)| known != host) {
                        seen.missed.push((host.clone(), of_cluster(host, &text)));
                    }
                }
            }
            seen
        });
        Self { stop, looking }
    }

    /// Stops looking, and fails the test if a host was not there at some look.
    pub(crate) async fn assert_complete(self, during: &str) {
        let seen = self.stop(during).await;
        assert!(seen.missed.is_empty(), "{during}: {:#?}", seen.missed);
        eprintln!("{during}: no host was missed in {} looks", seen.looks);
    }

    /// Stops looking, and fails the test if all hosts were always there.
    pub(crate) async fn assert_incomplete(self, during: &str) {
        let seen = self.stop(during).await;
        assert!(!seen.missed.is_empty(), "{during}: no host was missed in {} looks", seen.looks);
    }

    async fn stop(self, during: &str) -> Seen {
        self.stop.cancel();
        let seen = self.looking.await.unwrap();
        assert!(seen.looks > 0, "{during}: nobody looked");
        seen
    }
}

/// The line by which Envoy says that there is a host in a cluster, and that it is healthy.
pub(crate) fn host(cluster: &str, address: std::net::IpAddr) -> String {
    format!("{cluster}::{address}:15003::health_flags::healthy")
}

/// What Envoy says of the cluster of a host.
fn of_cluster(host: &str, text: &str) -> String {
    let cluster = host.split("::").next().unwrap_or_default();
    let of_it = text.lines().filter(|line| {
        line.starts_with(cluster) && (line.contains("health_flags") || line.contains("weight"))
    });
    of_it.collect::<Vec<_>>().join("\n")
}
