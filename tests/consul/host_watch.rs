//! A watch on a caller's Envoy: hosts must be present and healthy at all times.

use std::collections::BTreeSet;

use ironmesh_tests::{Envoy, get_once};
use tokio::task::JoinHandle;
use tokio::time::{Duration, interval};
use tokio_util::sync::CancellationToken;

/// A background task that checks repeatedly whether hosts are present.
#[derive(Debug)]
pub(crate) struct HostWatch {
    stop: CancellationToken,
    looking: JoinHandle<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    looks: u64,
    /// The first answer of Envoy without a host, by host.
    missed: Vec<(String, String)>,
}

impl HostWatch {
    /// Starts to watch these hosts, as [`host`] names them.
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
                // A failed request is skipped: the end of the watch requires that some succeeded.
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

    /// Stops, and fails the test if a host was ever missing.
    pub(crate) async fn assert_complete(self, during: &str) {
        let seen = self.stop(during).await;
        assert!(seen.missed.is_empty(), "{during}: {:#?}", seen.missed);
        eprintln!("{during}: no host was missed in {} looks", seen.looks);
    }

    /// Stops, and fails the test if no host was ever missing.
    pub(crate) async fn assert_incomplete(self, during: &str) {
        let seen = self.stop(during).await;
        assert!(!seen.missed.is_empty(), "{during}: no host was missed in {} looks", seen.looks);
    }

    async fn stop(self, during: &str) -> Seen {
        self.stop.cancel();
        let seen = self.looking.await.unwrap();
        assert!(seen.looks > 0, "{during}: no successful check");
        seen
    }
}

/// The line of Envoy for a healthy host of a cluster.
pub(crate) fn host(cluster: &str, address: std::net::IpAddr) -> String {
    format!("{cluster}::{address}:15003::health_flags::healthy")
}

/// The lines of Envoy for the cluster of a host.
fn of_cluster(host: &str, text: &str) -> String {
    let cluster = host.split("::").next().unwrap_or_default();
    let of_it = text.lines().filter(|line| {
        line.starts_with(cluster) && (line.contains("health_flags") || line.contains("weight"))
    });
    of_it.collect::<Vec<_>>().join("\n")
}
