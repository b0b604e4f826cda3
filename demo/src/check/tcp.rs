//! The step about TCP: who may not connect gets no byte, not even from a server that speaks first.

use serde_json::json;
use tokio::time::{Duration, Instant, timeout};

use super::report::Seen;
use crate::error::Problem;
use crate::ledger::{Ledger, LedgerError};
use crate::policy::Edit;
use crate::sidecars::{FIRST, THIEF};
use crate::stage::{DRAIN_TIME, Stage};
use crate::waiting::{ensure, eventually, milliseconds};

/// The stores may, the thief may not; then it may, and then no more.
pub(super) async fn allowed_and_denied(stage: &Stage) -> Result<Seen, Problem> {
    let mut store = Ledger::open(stage.warehouse_of(&FIRST)).await?;
    let banner = store.banner.clone();
    ensure(!banner.is_empty(), || "the banner is empty".to_owned())?;
    store.record("first").await?;

    let thief = stage.warehouse_of(&THIEF);
    let connections = stage.warehouse.connections();
    for _ in 0..ATTEMPTS {
        expect_no_byte(thief).await?;
    }
    let reached = stage.warehouse.connections() - connections;
    ensure(reached == 0, || format!("{reached} connections of the thief reached the warehouse"))?;

    let kept = || [&stage.first, &stage.second].map(|open| open.records.opened());
    let before = kept();
    let begin = Instant::now();
    stage.policy.edit(&Edit::let_thief_into_warehouse())?;
    let mut stolen = eventually(stage, "the thief to reach the warehouse", async || {
        Ok(Ledger::open(thief).await?)
    })
    .await?;
    let allowed = milliseconds(begin);
    ensure(stolen.banner == banner, || format!("another banner: {}", stolen.banner))?;
    stolen.record("stolen").await?;
    // A connection that is to be ended by the grant would be drained by now.
    let harm = timeout(DRAIN_TIME + SLACK, store.closed()).await;
    ensure(harm.is_err(), || "the grant to the thief ended a connection of a store".to_owned())?;
    store.record("second").await?;
    let after = kept();
    ensure(after == before, || {
        format!("the stores opened connections anew: {before:?}, then {after:?}")
    })?;

    let begin = Instant::now();
    stage.policy.edit(&Edit::let_thief_into_warehouse().back())?;
    eventually(stage, "the thief to be kept from the warehouse", async || {
        expect_no_byte(thief).await
    })
    .await?;
    let denied = milliseconds(begin);
    let most = DRAIN_TIME + GRACE;
    let ended = timeout(most.saturating_sub(begin.elapsed()), stolen.closed()).await;
    ensure(ended.is_ok(), || {
        format!("the thief's connection was still open {} s after the withdrawal", most.as_secs())
    })?;
    let closed = milliseconds(begin);
    // The stores come back by themselves, before anything else is shown.
    eventually(stage, "the stores to reach the warehouse again", async || {
        Ok(Ledger::open(stage.warehouse_of(&FIRST)).await?.record("third").await?)
    })
    .await?;
    let line = format!(
        "the store has the banner, the thief no byte; granted after {allowed} ms without harm to \
         the store, withdrawn after {denied} ms, and its open connection ended after {closed} ms"
    );
    let figures = json!({
        "thief_connections_seen": reached,
        "allowed_ms": allowed,
        "denied_ms": denied,
        "connection_closed_ms": closed,
    });
    Ok(Seen::new(line, figures))
}

/// A connection of whom policy does not name: refused, or closed before the first byte.
async fn expect_no_byte(address: std::net::SocketAddr) -> Result<(), Problem> {
    match Ledger::open(address).await {
        Err(LedgerError::Refused | LedgerError::Closed) => Ok(()),
        Err(other) => Err(other.into()),
        Ok(ledger) => Err(Problem(format!("the thief got the banner: {}", ledger.banner))),
    }
}

const ATTEMPTS: usize = 5;
/// How long after the drain time harm would show at the latest.
const SLACK: Duration = Duration::from_millis(500);
/// What a busy machine may take to carry out a withdrawal.
const GRACE: Duration = Duration::from_secs(3);
