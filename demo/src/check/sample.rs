//! Many requests by the buyer, and who answered them.

use std::net::SocketAddr;

use tokio::task::JoinSet;

use crate::error::Problem;
use crate::http_client::HttpConnection;
use crate::sidecars::{BUYER, SECOND, STORE_PORT};
use crate::stage::Stage;
use crate::tally::share;
use crate::waiting::ensure;

/// Requests that all were answered with 200.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) requests: usize,
    /// How many the second version answered.
    pub(super) second: usize,
}

impl Sample {
    /// The share of the second version, in percent.
    pub(super) fn percent(self) -> f64 {
        100.0 * share(self.second, self.requests).unwrap_or_default()
    }
}

/// Takes a sample over several kept connections. The answers and the applications must agree on who
/// answered, so nobody else may call the stores meanwhile.
pub(super) async fn sample(stage: &Stage, requests: usize) -> Result<Sample, Problem> {
    let buyer = BUYER.socket(&stage.network, STORE_PORT);
    let seen = || [&stage.first, &stage.second].map(|open| open.store.requests());
    let before = seen();
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        connections.spawn(buy(buyer, requests / CONNECTIONS));
    }
    let mut second = 0;
    while let Some(joined) = connections.join_next().await {
        second += joined??;
    }
    let requests = requests / CONNECTIONS * CONNECTIONS;
    let counted = seen().iter().zip(before).map(|(now, before)| now - before).collect::<Vec<_>>();
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let answered = vec![number(requests - second), number(second)];
    ensure(counted == answered, || {
        format!("the answers say {answered:?} for v1 and v2, and the applications {counted:?}")
    })?;
    Ok(Sample { requests, second })
}

/// Buys over one connection; returns how often the second version answered.
async fn buy(address: SocketAddr, requests: usize) -> Result<usize, Problem> {
    let mut connection = HttpConnection::open(address).await?;
    let mut second = 0;
    for number in 0..requests {
        let answer = connection.get(&format!("/books/{number}")).await?;
        ensure(answer.status == 200, || {
            format!("the buyer got {} {}", answer.status, answer.text().trim())
        })?;
        second += usize::from(answer.application.as_deref() == Some(SECOND.name));
        if answer.closes {
            connection = HttpConnection::open(address).await?;
        }
    }
    Ok(second)
}

const CONNECTIONS: usize = 4;
