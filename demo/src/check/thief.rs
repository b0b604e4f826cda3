//! The steps about the thief: the store's sidecar authorizes each request.

use serde_json::json;
use tokio::time::Instant;

use super::report::Seen;
use crate::error::Problem;
use crate::http_client::{DemoResponse, HttpClient, HttpConnection, RequestError, get_once};
use crate::policy::Edit;
use crate::sidecars::{FIRST, SECOND, STORE_PORT, THIEF};
use crate::stage::Stage;
use crate::waiting::{ensure, eventually, milliseconds};

/// The path that the thief requests.
pub(super) const BOOK: &str = "/books/1";

/// The thief gets the front page, and no book.
pub(super) async fn denied(stage: &Stage) -> Result<Seen, Problem> {
    let mut thief = thief_of(stage);
    expect(&thief.get("/").await?, 200)?;
    expect_denials(stage, async || thief.get(BOOK).await).await?;
    let line = format!("200 for `/`, and {DENIALS} times 403 for a book, from the store's sidecar");
    Ok(Seen::new(line, json!({ "denied": DENIALS, "counted_by_sidecars": DENIALS })))
}

/// A grant is active soon.
pub(super) async fn allowed(stage: &Stage) -> Result<Seen, Problem> {
    let begin = Instant::now();
    stage.policy.edit(&Edit::allow_thief())?;
    let mut thief = thief_of(stage);
    let allowed = settled(stage, async || thief.get(BOOK).await, 200, begin).await?;
    Ok(Seen::new(format!("200 after {allowed} ms"), json!({ "allowed_ms": allowed })))
}

/// A withdrawal denies the next request, also on an open connection.
pub(super) async fn denied_on_a_kept_connection(stage: &Stage) -> Result<Seen, Problem> {
    let mut thief = HttpConnection::open(THIEF.socket(&stage.network, STORE_PORT)).await?;
    expect(&thief.get(BOOK).await?, 200)?;
    let begin = Instant::now();
    stage.policy.edit(&Edit::allow_thief().reverted())?;
    // The same connection throughout: if it had been closed, the request would fail.
    let denied = settled(stage, async || thief.get(BOOK).await, 403, begin).await?;
    expect_denials(stage, async || thief.get(BOOK).await).await?;
    let line = format!("403 after {denied} ms, on the connection that had 200");
    Ok(Seen::new(line, json!({ "denied_ms": denied })))
}

/// Waits until the thief gets only this status for a book. Returns the milliseconds from `begin` to the first of these
/// answers.
///
/// Two stores answer at random and receive a change at different times, so one answer proves nothing about the next.
/// Twenty equal answers in a row come from one of the two stores once in a million runs.
pub(super) async fn settled(
    stage: &Stage,
    mut ask: impl AsyncFnMut() -> Result<DemoResponse, RequestError>,
    status: u16,
    begin: Instant,
) -> Result<u64, Problem> {
    let mut in_a_row = 0;
    let mut since = milliseconds(begin);
    eventually(stage, &format!("{status} for the thief"), async || {
        let answer = ask().await?;
        if let Err(other) = expect(&answer, status) {
            in_a_row = 0;
            return Err(other);
        }
        if in_a_row == 0 {
            since = milliseconds(begin);
        }
        in_a_row += 1;
        ensure(in_a_row >= IN_A_ROW, || format!("{in_a_row} in a row"))
    })
    .await?;
    Ok(since)
}

/// Verifies that the sidecars of the stores deny the thief, and that no application sees its requests.
async fn expect_denials(
    stage: &Stage,
    mut ask: impl AsyncFnMut() -> Result<DemoResponse, RequestError>,
) -> Result<(), Problem> {
    let applications = || [&stage.first, &stage.second].map(|open| open.store.requests());
    let (before, counted_before) = (applications(), denials(stage).await?);
    for _ in 0..DENIALS {
        expect(&ask().await?, 403)?;
    }
    let counted = denials(stage).await? - counted_before;
    ensure(counted == DENIALS, || {
        format!("{DENIALS} requests were denied, but the store's sidecars counted {counted}")
    })?;
    let (before, after): (u64, u64) = (before.iter().sum(), applications().iter().sum());
    ensure(before == after, || format!("{} denied requests reached a store", after - before))
}

/// The number of requests that the sidecars of the stores have denied.
async fn denials(stage: &Stage) -> Result<u64, Problem> {
    Ok(FIRST.denied(&stage.network).await? + SECOND.denied(&stage.network).await?)
}

/// A client for the thief that reconnects as needed.
pub(super) fn thief_of(stage: &Stage) -> HttpClient {
    HttpClient::new(THIEF.socket(&stage.network, STORE_PORT))
}

/// Fails unless the thief gets this status for a book now.
pub(super) async fn expect_thief(stage: &Stage, status: u16) -> Result<(), Problem> {
    expect(&get_once(THIEF.socket(&stage.network, STORE_PORT), BOOK).await?, status)
}

/// Fails unless the answer has this status. Only a 200 may come from an application.
pub(super) fn expect(answer: &DemoResponse, status: u16) -> Result<(), Problem> {
    let is_expected = answer.status == status && answer.application.is_some() == (status == 200);
    ensure(is_expected, || {
        let from = answer.application.as_deref().unwrap_or("a sidecar");
        format!("{} from {from}: {}", answer.status, answer.text().trim())
    })
}

const DENIALS: u64 = 20;
const IN_A_ROW: u32 = 20;
