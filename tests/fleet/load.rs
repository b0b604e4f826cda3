//! Load from a guest: requests over kept HTTP/1.1 connections, which are counted on the guest.

use std::collections::BTreeMap;

use ironmesh_tests::eventually;
use serde::Deserialize;
use tokio::time::sleep;

use crate::guest::{Guest, PROBE_INTERVAL};

/// The requests that must meet each fault.
pub(crate) const REQUESTS_PER_FAULT: u64 = 200;

/// Running load of one guest. It ends with [`Load::finish`], or with the guest.
#[derive(Debug)]
pub(crate) struct Load<'guest> {
    guest: &'guest Guest,
}

/// The counts of a load.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct LoadReport {
    /// The number of requests that were answered or failed.
    pub(crate) requests: u64,
    /// The number of requests without a 200.
    pub(crate) failed: u64,
    /// The failed requests by status or error.
    pub(crate) reasons: BTreeMap<String, u64>,
    /// The duration of the longest request in milliseconds.
    pub(crate) longest_ms: u64,
}

impl<'guest> Load<'guest> {
    /// Starts load on a port of the guest itself, about 60 requests a second.
    pub(crate) async fn start(guest: &'guest Guest, port: u16, path: &str) -> Self {
        guest.write("/run/load.py", include_str!("load.py")).await;
        guest
            .run(&format!(
                "rm -f {COUNTS}; systemd-run --quiet --collect --unit=load \
                 python3 /run/load.py {COUNTS} 127.0.0.1 {port} {path}"
            ))
            .await;
        let load = Self { guest };
        load.wait_for_requests(1).await;
        load
    }

    /// The counts by now.
    pub(crate) async fn counts(&self) -> LoadReport {
        let counts = self.guest.wait_until("counts of the load", &format!("cat {COUNTS}")).await;
        serde_json::from_str(&counts).unwrap()
    }

    /// Waits until `count` more requests have ended.
    pub(crate) async fn wait_for_requests(&self, count: u64) {
        let begin = self.counts().await.requests;
        eventually("more requests", async || match self.counts().await.requests {
            requests if requests >= begin + count => Ok(()),
            requests => {
                sleep(PROBE_INTERVAL).await;
                Err(format!("{requests} of {}", begin + count))
            }
        })
        .await;
    }

    /// Ends the load.
    pub(crate) async fn finish(self) -> LoadReport {
        self.guest.run("systemctl stop load").await;
        self.counts().await
    }
}

impl LoadReport {
    /// Fails the test unless every request got a 200.
    pub(crate) fn assert_undisturbed(&self) {
        let Self { requests, failed, reasons, longest_ms } = self;
        let is_undisturbed = *failed == 0 && *requests >= REQUESTS_PER_FAULT;
        assert!(
            is_undisturbed,
            "{failed} of {requests} failed: {reasons:?}; the longest took {longest_ms} ms"
        );
    }
}

const COUNTS: &str = "/run/load.json";
