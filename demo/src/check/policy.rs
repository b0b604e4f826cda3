//! The step about mistakes: a policy that is wrong changes nothing.

use serde_json::json;

use super::report::Seen;
use super::sample::sample;
use super::thief::expect_thief;
use crate::control_plane::readiness;
use crate::error::Problem;
use crate::ledger::Ledger;
use crate::policy::MISTAKE;
use crate::sidecars::FIRST;
use crate::stage::Stage;
use crate::waiting::{ensure, eventually};

/// The mistake is found and told, and the previous policy stays active.
pub(super) async fn bad_policy_refused(stage: &Stage) -> Result<Seen, Problem> {
    let before = readiness(stage.admin()).await?.policy;
    ensure(before.stale_since.is_none(), || format!("not in force already: {}", before.drawn))?;
    let (file, text, line) = MISTAKE;
    stage.policy.put(file, text)?;
    let finding = eventually(stage, "the finding", async || {
        let now = readiness(stage.admin()).await?.policy;
        let found = now.findings.iter().find(|finding| finding.file.as_deref() == Some(file));
        let found = found.ok_or_else(|| Problem(format!("{:?}", now.findings)))?;
        ensure(now.is_refused(), || format!("not refused: {found:?}"))?;
        ensure(now.revision == before.revision, || {
            format!("revision {:?} is in force, before {:?}", now.revision, before.revision)
        })?;
        Ok(found.clone())
    })
    .await?;
    ensure(finding.line == Some(line), || format!("the finding names another line: {finding:?}"))?;

    // It had its time to do harm: the refusal is told.
    let sample = sample(stage, REQUESTS).await?;
    expect_thief(stage, 403).await?;
    Ledger::open(stage.warehouse_of(&FIRST)).await?.record("mistake").await?;

    stage.policy.remove(file)?;
    eventually(stage, "the policy to be good again", async || {
        let now = readiness(stage.admin()).await?.policy;
        ensure(now.stale_since.is_none() && now.revision == before.revision, || now.drawn)
    })
    .await?;
    let said = format!(
        "{} in {file}, line {line}; the revision stayed, {} requests were served as before",
        finding.code, sample.requests
    );
    let figures = json!({
        "code": finding.code,
        "file": file,
        "line": line,
        "revision": before.revision,
        "requests": sample.requests,
    });
    Ok(Seen::new(said, figures))
}

const REQUESTS: usize = 100;
