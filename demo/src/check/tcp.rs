//! The step about TCP: a denied caller cannot connect, and a withdrawal ends its open connections.
//!
//! A sidecar opens no local port for a service that its own service may not call. The mesh does not rely on that: the
//! warehouse's sidecar, not the thief's, ends the thief's open connection after a withdrawal. The thief's own sidecar
//! would keep it for ten minutes.

use serde_json::json;
use tokio::time::{Duration, Instant, timeout};

use super::report::Seen;
use crate::error::Problem;
use crate::ledger::{Ledger, LedgerError};
use crate::policy::Edit;
use crate::sidecars::{FIRST, THIEF};
use crate::stage::{DRAIN_TIME, Stage};
use crate::waiting::{ensure, eventually, milliseconds};

/// The stores may connect. The thief is denied, then allowed, then denied again.
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
    stage.policy.edit(&Edit::allow_thief_at_warehouse())?;
    let mut stolen = eventually(stage, "the thief to reach the warehouse", async || {
        Ok(Ledger::open(thief).await?)
    })
    .await?;
    let allowed = milliseconds(begin);
    ensure(stolen.banner == banner, || format!("unexpected banner: {}", stolen.banner))?;
    stolen.record("stolen").await?;
    // If the grant ended a connection, that connection would be drained by now.
    let harm = timeout(DRAIN_TIME + SLACK, store.closed()).await;
    ensure(harm.is_err(), || "the grant to the thief ended a connection of a store".to_owned())?;
    store.record("second").await?;
    let after = kept();
    ensure(after == before, || {
        format!("the stores reconnected: {before:?} connections, then {after:?}")
    })?;

    let begin = Instant::now();
    stage.policy.edit(&Edit::allow_thief_at_warehouse().reverted())?;
    eventually(stage, "the thief to lose the warehouse", async || expect_no_listener(thief).await)
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
    // Wait for the stores to reconnect before the next step.
    eventually(stage, "the stores to reach the warehouse again", async || {
        Ok(Ledger::open(stage.warehouse_of(&FIRST)).await?.record("third").await?)
    })
    .await?;
    let line = format!(
        "the store has the banner; the thief's sidecar has no listener for the warehouse, which saw no \
         connection; grant active after {allowed} ms, without ending a store's connection; after the withdrawal \
         the listener was gone in {denied} ms, and the warehouse's sidecar ended the open connection in {closed} ms"
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

/// Fails unless the thief's sidecar has no listener for the warehouse.
async fn expect_no_listener(address: std::net::SocketAddr) -> Result<(), Problem> {
    match Ledger::open(address).await {
        Err(LedgerError::Refused) => Ok(()),
        Err(other) => Err(other.into()),
        Ok(ledger) => Err(Problem(format!("the thief got the banner: {}", ledger.banner))),
    }
}

const ATTEMPTS: usize = 5;
/// The most time after the drain time until an ended connection shows.
const SLACK: Duration = Duration::from_millis(500);
/// The extra time that a busy machine may need for a withdrawal.
const GRACE: Duration = Duration::from_secs(3);
