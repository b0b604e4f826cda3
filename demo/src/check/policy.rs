//! The step with a bad policy, which must change nothing.

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

/// The control plane reports the mistake, and the previous policy stays active.
pub(super) async fn bad_policy_rejected(stage: &Stage) -> Result<Seen, Problem> {
    let before = readiness(stage.admin()).await?.policy;
    ensure(before.stale_since.is_none(), || {
        format!("the policy was not active before: {}", before.rendered)
    })?;
    let (file, text, line) = MISTAKE;
    stage.policy.put(file, text)?;
    let finding = eventually(stage, "the finding", async || {
        let now = readiness(stage.admin()).await?.policy;
        let found = now.findings.iter().find(|finding| finding.file.as_deref() == Some(file));
        let found = found.ok_or_else(|| Problem(format!("{:?}", now.findings)))?;
        ensure(now.is_rejected(), || format!("not rejected: {found:?}"))?;
        ensure(now.revision == before.revision, || {
            format!("revision {:?} is active, before {:?}", now.revision, before.revision)
        })?;
        Ok(found.clone())
    })
    .await?;
    ensure(finding.line == Some(line), || {
        format!("the finding names the wrong line: {finding:?}")
    })?;

    // The rejection is reported, so any harm would show by now.
    let sample = sample(stage, REQUESTS).await?;
    expect_thief(stage, 403).await?;
    Ledger::open(stage.warehouse_of(&FIRST)).await?.record("mistake").await?;

    stage.policy.remove(file)?;
    eventually(stage, "the policy to be valid again", async || {
        let now = readiness(stage.admin()).await?.policy;
        ensure(now.stale_since.is_none() && now.revision == before.revision, || now.rendered)
    })
    .await?;
    let line_text = format!(
        "{} in {file}, line {line}; the revision stayed active, {} requests were answered as before",
        finding.code, sample.requests
    );
    let figures = json!({
        "code": finding.code,
        "file": file,
        "line": line,
        "revision": before.revision,
        "requests": sample.requests,
    });
    Ok(Seen::new(line_text, figures))
}

const REQUESTS: usize = 100;
