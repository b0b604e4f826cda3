//! What the status says where what is in force is not what the source of policy holds. There are three
//! reasons: the source cannot be read, it is refused, or somebody has rolled back. The last is no fault.

use ironmesh_admin::PolicyView;
use ironmesh_catalog::PolicyRecord;

use super::is_error;

/// What is wrong with the source, if anything, and what to do.
pub(super) fn wrong(policy: &PolicyView) -> Option<String> {
    let source = &policy.source;
    // While something is rolled back to, that is what this tells.
    let since = policy.stale_since.filter(|_| policy.rolled_back.is_none());
    let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
    if let Some(problem) = &policy.unreadable {
        return Some(format!(
            "the policy in `{source}` cannot be read{since}: {}\n\
             {}; the control plane keeps retrying",
            problem.trim_end(),
            what_stays(policy)
        ));
    }
    let is_refused = policy.findings.iter().any(is_error);
    is_refused.then(|| {
        let advice = if policy.is_folder {
            format!("`ironmesh policy check {source}` draws where")
        } else {
            "push what passes (`ironmesh policy push`), or what was good (`ironmesh policy rollback`)"
                .to_owned()
        };
        format!(
            "the policy in `{source}` is rejected{since}: {}\n{advice}",
            what_stays(policy)
        )
    })
}

/// What is active in place of what the source holds.
fn what_stays(policy: &PolicyView) -> &'static str {
    if policy.revision.is_some() {
        "the previous policy stays active"
    } else {
        "no policy is active, and nothing is served"
    }
}

/// That somebody has rolled back, and how that ends.
pub(super) fn rolled_back(policy: &PolicyView) -> Option<String> {
    let pin = policy.rolled_back.as_ref()?;
    let PolicyRecord { revision, at, by, message, .. } = &pin.record;
    let by = by.as_deref().unwrap_or("somebody");
    let why = message.as_ref().map(|text| format!(" (\"{text}\")")).unwrap_or_default();
    let (holds, end) = match &pin.folder {
        Some(folder) => (
            format!(" holds, the revision {folder},"),
            format!("\n`ironmesh policy rollback {folder}` ends that"),
        ),
        None => (" holds".to_owned(), String::new()),
    };
    Some(format!(
        "{by} rolled policy back to {revision} at {at:.0}{why}: what `{}`{holds} is not in force, until it \
         holds something else that passes{end}",
        policy.source
    ))
}
