//! A sample of many requests by the buyer, by answering version.

use std::net::SocketAddr;

use tokio::task::JoinSet;

use crate::error::Problem;
use crate::http_client::HttpConnection;
use crate::sidecars::{BUYER, SECOND, STORE_PORT};
use crate::stage::Stage;
use crate::tally::share;
use crate::waiting::ensure;

/// The result of a sample in which every answer was 200.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sample {
    pub(super) requests: usize,
    /// The number of answers by the second version.
    pub(super) second: usize,
}

impl Sample {
    /// The share of the second version, in percent.
    pub(super) fn percent(self) -> f64 {
        100.0 * share(self.second, self.requests).unwrap_or_default()
    }
}

/// Takes a sample over several kept connections. Answers and applications must report the same counts, so no other
/// caller may use the stores meanwhile.
pub(super) async fn sample(stage: &Stage, requests: usize) -> Result<Sample, Problem> {
    let buyer = BUYER.socket(&stage.network, STORE_PORT);
    let seen = || [&stage.first, &stage.second].map(|open| open.store.requests());
    let before = seen();
    let mut connections = JoinSet::new();
    for _ in 0..CONNECTIONS {
        connections.spawn(buy(buyer, requests / CONNECTIONS));
    }
    let mut second = 0;
    while let Some(answered) = connections.join_next().await {
        second += answered??;
    }
    let requests = requests / CONNECTIONS * CONNECTIONS;
    let counted = seen().iter().zip(before).map(|(now, before)| now - before).collect::<Vec<_>>();
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let answered = vec![number(requests - second), number(second)];
    ensure(counted == answered, || {
        format!("the answers count {answered:?} for v1 and v2, the applications {counted:?}")
    })?;
    Ok(Sample { requests, second })
}

/// Buys over one connection, and returns the number of answers by the second version.
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
