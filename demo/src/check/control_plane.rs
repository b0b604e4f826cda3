//! The step about the death of the control plane: no request fails, not even behind a retry, no
//! connection breaks, and what changed meanwhile holds soon after it is back.

use serde_json::json;
use tokio::time::{Duration, Instant};

use super::load::Load;
use super::report::Seen;
use super::thief::{BOOK, expect_thief, settled, thief_of};
use crate::error::Problem;
use crate::ledger::Ledger;
use crate::policy::Edit;
use crate::rise::in_force;
use crate::sidecars::{BUYER, FIRST, NEWCOMER, SECOND, STORE_PORT};
use crate::stage::Stage;
use crate::waiting::{ensure, eventually, milliseconds};

/// It is killed under traffic; a grant and a move of an endpoint wait for its return.
pub(super) async fn killed_under_traffic(stage: &mut Stage) -> Result<Seen, Problem> {
    // A sixth sidecar joins. It takes part, and gets nothing while no endpoint is named at its place.
    stage.start_newcomer().await?;
    in_force(stage, &NEWCOMER).await?;
    let retried = BUYER.retried(&stage.network).await?;
    let reopened = stage.first.records.opened();
    // The first version's store, which no change of this step concerns.
    let ledger = Ledger::open(stage.warehouse_of(&FIRST)).await?;
    let load = Load::start(BUYER.socket(&stage.network, STORE_PORT), ledger);
    let [old, new] = [SECOND, NEWCOMER].map(|sidecar| stage.network.host(sidecar.host).to_string());
    more_answers(stage, &load, &old).await?;

    let killed = Instant::now();
    stage.kill_control_plane().await;
    stage.policy.edit(&Edit::let_thief_in())?;
    let edit = Edit::move_second_version(&stage.network, SECOND.host, NEWCOMER.host);
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
            "after the start the policy held after {policy} ms, the endpoint after {endpoint} ms; {MOST} ms are the most"
        )
    })?;
    ensure(per_second >= LEAST_LOAD, || {
        format!("the load was too light to tell: {per_second} requests a second")
    })?;
    let line = format!(
        "{} requests at {per_second}/s, half of them HTTP/2, none failed, 0 retries; {} exchanges \
         of a store with the warehouse over one TCP connection; away for {away} ms; after its start \
         the new policy held in {policy} ms, the new endpoint in {endpoint} ms",
        report.requests, report.exchanges
    );
    Ok(Seen::new(line, figures))
}

/// Waits for further answers of a machine.
async fn more_answers(stage: &Stage, load: &Load, machine: &str) -> Result<(), Problem> {
    let before = load.report().answers_of(machine);
    eventually(stage, &format!("answers of {machine}"), async || {
        let more = load.report().answers_of(machine) - before;
        ensure(more >= SOME, || format!("{more} more"))
    })
    .await
}

/// How long the control plane is away at least, with the old policy in force.
const AWAY: Duration = Duration::from_millis(1500);
/// How long a machine must be silent to count as left: a hundred of its turns.
const QUIET: Duration = Duration::from_secs(1);
/// In how many milliseconds after its start the new policy is to hold.
const MOST: u64 = 2000;
const LEAST_LOAD: u64 = 200;
const SOME: u64 = 10;
