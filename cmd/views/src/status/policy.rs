//! The status of a policy source whose content is not active.
//!
//! There are three reasons: the source is unreadable, its policy is rejected, or a user has rolled back. The last is
//! no problem.

use ironmesh_api::PolicyView;
use ironmesh_catalog::PolicyRecord;

/// The problem of the policy source, if it has one, and what to do.
pub(super) fn wrong(policy: &PolicyView) -> Option<String> {
    let source = &policy.source;
    // During a rollback, `stale_since` is the time of the rollback.
    let since = policy.stale_since.filter(|_| policy.rolled_back.is_none());
    let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
    if let Some(problem) = &policy.unreadable {
        return Some(format!(
            "the policy in `{source}` cannot be read{since}: {}\n\
             {}; the control plane keeps retrying",
            problem.trim_end(),
            active_text(policy)
        ));
    }
    policy.is_rejected().then(|| {
        let advice = if policy.is_folder {
            format!("`ironmesh policy check {source}` shows each error with file and line")
        } else if policy.is_releases {
            "apply a corrected policy (`ironmesh policy apply DIR`), or roll back (`ironmesh policy rollback REV`)"
                .to_owned()
        } else {
            "push a corrected policy (`ironmesh policy push`), or roll back (`ironmesh policy rollback`)"
                .to_owned()
        };
        format!(
            "the policy in `{source}` is rejected{since}: {}\n{advice}",
            active_text(policy)
        )
    })
}

/// What is active instead of the source's content.
fn active_text(policy: &PolicyView) -> &'static str {
    if policy.revision.is_some() {
        "the previous policy stays active"
    } else {
        "no policy is active, and the control plane serves no proxy"
    }
}

/// The note about an active rollback, and how it ends.
pub(super) fn rolled_back(policy: &PolicyView) -> Option<String> {
    let pin = policy.rolled_back.as_ref()?;
    let PolicyRecord { revision, at, by, message, .. } = &pin.record;
    let by = by.as_deref().unwrap_or("an unknown user");
    let why = message.as_ref().map(|text| format!(" (\"{text}\")")).unwrap_or_default();
    let (pinned, end) = match &pin.folder {
        Some(folder) => (
            format!(" (revision {folder})"),
            format!("\n`ironmesh policy rollback {folder}` ends the rollback"),
        ),
        None => (String::new(), String::new()),
    };
    Some(format!(
        "{by} rolled policy back to {revision} at {at:.0}{why}: the content of `{}`{pinned} is not active until \
         it changes to an accepted policy{end}",
        policy.source
    ))
}
