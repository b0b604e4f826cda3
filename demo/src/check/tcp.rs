//! The step about TCP: who may not connect does not, and who may no more is cut off.
//!
//! A sidecar opens no port for what its service may not reach. That is what the thief's own Envoy
//! does, and nobody else need trust it: what ends the thief's open connection after a withdrawal is
//! the warehouse's sidecar, for the thief's would let it go on for ten minutes.

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
        expect_no_listener(thief).await?;
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
        expect_no_listener(thief).await
    })
    .await?;
    let denied = milliseconds(begin);
    let most = DRAIN_TIME + GRACE;
    let ended = timeout(most.saturating_sub(begin.elapsed()), stolen.closed()).await;
    ensure(ended.is_ok(), || {
        format!("the thief's connection was still open {} s after the withdrawal", most.as_secs())
    })?;
    let closed = milliseconds(begin);
    for _ in 0..ATTEMPTS {
        expect_no_listener(thief).await?;
    }
    // The stores come back by themselves, before anything else is shown.
    eventually(stage, "the stores to reach the warehouse again", async || {
        Ok(Ledger::open(stage.warehouse_of(&FIRST)).await?.record("third").await?)
    })
    .await?;
    let line = format!(
        "the store has the banner; the thief's sidecar listens on no port for it, and the warehouse \
         saw no connection; granted after {allowed} ms without harm to the store; withdrawn, nobody \
         listens again after {denied} ms, and the warehouse's sidecar ended the open connection \
         after {closed} ms"
    );
    let figures = json!({
        "thief_attempts_refused": 2 * ATTEMPTS,
        "warehouse_connections_while_denied": reached,
        "allowed_ms": allowed,
        "listener_gone_ms": denied,
        "connection_ended_ms": closed,
    });
    Ok(Seen::new(line, figures))
}

/// That the thief's sidecar listens on no port for the warehouse.
async fn expect_no_listener(address: std::net::SocketAddr) -> Result<(), Problem> {
    match Ledger::open(address).await {
        Err(LedgerError::Refused) => Ok(()),
        Err(other) => Err(other.into()),
        Ok(ledger) => Err(Problem(format!("the thief got the banner: {}", ledger.banner))),
    }
}

const ATTEMPTS: usize = 5;
/// How long after the drain time harm would show at the latest.
const SLACK: Duration = Duration::from_millis(500);
/// What a busy machine may take to carry out a withdrawal.
const GRACE: Duration = Duration::from_secs(3);
