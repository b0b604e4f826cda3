//! The step that kills the control plane under traffic.
//!
//! No request fails, not even behind a retry, and no connection breaks. Changes made meanwhile are active soon after
//! the restart.

use serde_json::json;
use tokio::time::{Duration, Instant};

use super::load::Load;
use super::report::Seen;
use super::thief::{BOOK, expect_thief, settled, thief_of};
use crate::error::Problem;
use crate::ledger::Ledger;
use crate::policy::Edit;
use crate::sidecars::{BUYER, FIRST, REPLACEMENT, SECOND, STORE_PORT};
use crate::stage::Stage;
use crate::startup::await_sidecar;
use crate::waiting::{ensure, eventually, milliseconds};

/// Kills the control plane under traffic. A new grant and a moved endpoint wait for its restart.
pub(super) async fn killed_under_traffic(stage: &mut Stage) -> Result<Seen, Problem> {
    // A sixth sidecar. It is a participant, but gets no traffic while no endpoint has its address.
    stage.start_replacement().await?;
    await_sidecar(stage, &REPLACEMENT).await?;
    let retried = BUYER.retried(&stage.network).await?;
    let reopened = stage.first.records.opened();
    // From the first version's store, which no change of this step affects.
    let ledger = Ledger::open(stage.warehouse_of(&FIRST)).await?;
    let load = Load::start(BUYER.socket(&stage.network, STORE_PORT), ledger);
    let [old, new] =
        [SECOND, REPLACEMENT].map(|sidecar| stage.network.host(sidecar.host).to_string());
    more_answers(stage, &load, &old).await?;

    let killed = Instant::now();
    stage.kill_control_plane().await;
    stage.policy.edit(&Edit::allow_thief())?;
    let edit = Edit::move_second_version(&stage.network, SECOND.host, REPLACEMENT.host);
    stage.policy.edit(&edit)?;
    let edited = Instant::now();
    while edited.elapsed() < AWAY {
        more_answers(stage, &load, &old).await?;
        expect_thief(stage, 403).await?;
        let report = load.report();
        report.unharmed()?;
        ensure(report.answers_of(&new) == 0, || format!("{new} answers already"))?;
    }

    let started = Instant::now();
    let away = milliseconds(killed);
    stage.start_control_plane()?;
    let mut thief = thief_of(stage);
    let policy = settled(stage, async || thief.get(BOOK).await, 200, started).await?;
    let is_moved = async || {
        let report = load.report();
        let machines = &report.machines;
        let is_left = machines.get(&old).is_some_and(|answers| answers.last.elapsed() > QUIET);
        let both = machines.get(&new).zip(machines.get(&old)).filter(|_| is_left);
        both.map(|(new, old)| (*new, *old)).ok_or_else(|| Problem(format!("{machines:?}")))
    };
    let (to, from) = eventually(stage, "the endpoint to be moved", is_moved).await?;
    let endpoint = to.first.max(from.last).saturating_duration_since(started);
    let endpoint = u64::try_from(endpoint.as_millis()).unwrap_or(u64::MAX);

    let (report, duration) = load.finish();
    report.unharmed()?;
    let retried = (retried, BUYER.retried(&stage.network).await?);
    ensure(retried.0 == retried.1, || {
        format!("the buyer's sidecar counted {} retries, then {}", retried.0, retried.1)
    })?;
    let reopened = stage.first.records.opened() - reopened;
    ensure(reopened == 0 && report.exchanges >= SOME, || {
        format!("the store reopened {reopened} connections, {} exchanges", report.exchanges)
    })?;
    let per_second = report.requests * 1000 / u64::try_from(duration.as_millis())?.max(1);
    let figures = json!({
        "requests": report.requests,
        "failed": report.failed,
        "retried": retried.1 - retried.0,
        "tcp_exchanges": report.exchanges,
        "tcp_reconnects": reopened,
        "per_second": per_second,
        "away_ms": away,
        "policy_ms": policy,
        "endpoint_ms": endpoint,
    });
    ensure(policy <= MOST && endpoint <= MOST, || {
        format!(
            "after the restart the policy was active after {policy} ms and the endpoint after {endpoint} ms; the limit is {MOST} ms"
        )
    })?;
    ensure(per_second >= LEAST_LOAD, || {
        format!("the load was too low: {per_second} requests per second")
    })?;
    let line = format!(
        "{} requests at {per_second}/s, half of them HTTP/2, none failed, 0 retries; {} exchanges \
         of a store with the warehouse over one TCP connection; control plane down for {away} ms; after its \
         restart the new policy was active in {policy} ms, the new endpoint in {endpoint} ms",
        report.requests, report.exchanges
    );
    Ok(Seen::new(line, figures))
}

/// Waits for more answers of a machine.
async fn more_answers(stage: &Stage, load: &Load, machine: &str) -> Result<(), Problem> {
    let before = load.report().answers_of(machine);
    eventually(stage, &format!("answers of {machine}"), async || {
        let more = load.report().answers_of(machine) - before;
        ensure(more >= SOME, || format!("{more} more"))
    })
    .await
}

/// The least downtime of the control plane, during which the old policy stays active.
const AWAY: Duration = Duration::from_millis(1500);
/// The time without answers after which a machine no longer serves: a hundred of its intervals.
const QUIET: Duration = Duration::from_secs(1);
/// The most milliseconds from the restart until the changes are active.
const MOST: u64 = 2000;
const LEAST_LOAD: u64 = 200;
const SOME: u64 = 10;
