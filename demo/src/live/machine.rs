//! Events and summaries as one JSON object per line.

use jiff::Zoned;
use serde_json::{Value, json};

use super::events::{Event, EventKind};
use super::facts::{DemoSetup, Facts, shares};
use super::hints::hints;

/// The introduction: what runs, and where.
pub(super) fn begin(setup: &DemoSetup, now: &Zoned) -> String {
    let commands: Vec<_> =
        hints(&setup.policy_folder).into_iter().map(|hint| hint.command).collect();
    line(
        now,
        "started",
        json!({
            "policy_folder": setup.policy_folder,
            "admin": format!("http://{}", setup.admin),
            "envoy": setup.envoy.to_string(),
            "commands": commands,
        }),
    )
}

/// One event.
pub(super) fn event(event: &Event) -> String {
    let (name, facts) = match &event.what {
        EventKind::Outcome { call, before, after } => (
            "outcome",
            json!({
                "from": call.from,
                "to": call.to,
                "request": call.request,
                "before": before.map(|before| before.to_string()),
                "after": after.to_string(),
            }),
        ),
        EventKind::PolicyActive { revision } => ("policy_active", json!({ "revision": revision })),
        EventKind::PolicyRejected { findings, rendered } => {
            ("policy_rejected", json!({ "findings": findings, "rendered": rendered }))
        }
        EventKind::PolicyUnreadable { problem } => {
            ("policy_unreadable", json!({ "problem": problem }))
        }
        EventKind::PolicyRestored { revision } => {
            ("policy_restored", json!({ "revision": revision }))
        }
        EventKind::ControlPlaneSilent { seconds } => {
            ("control_plane_silent", json!({ "seconds": seconds }))
        }
        EventKind::ControlPlaneAnswers => ("control_plane_answers", json!({})),
    };
    line(&event.at, name, facts)
}

/// All counts.
pub(super) fn summary(facts: &Facts, now: &Zoned) -> String {
    let rows: Vec<Value> = facts
        .rows
        .iter()
        .map(|(call, count)| {
            json!({
                "from": call.from,
                "to": call.to,
                "request": call.request,
                "now": count.last.map(|last| last.to_string()),
                "per_second": count.per_second,
                "ok": count.ok,
                "denied": count.denied,
                "failed": count.failed,
            })
        })
        .collect();
    let split: serde_json::Map<String, Value> =
        shares(facts).into_iter().map(|(name, share)| (name.to_owned(), json!(share))).collect();
    let summary = json!({
        "rows": rows,
        "split": split,
        "revision": facts.policy.revision,
        "silent_seconds": facts.silent,
    });
    line(now, "summary", summary)
}

fn line(at: &Zoned, event: &str, mut facts: Value) -> String {
    if let Some(facts) = facts.as_object_mut() {
        facts.insert("at".to_owned(), json!(at.timestamp().to_string()));
        facts.insert("event".to_owned(), json!(event));
    }
    format!("{facts}\n")
}

#[cfg(test)]
mod tests {
    use super::super::events::Watch;
    use super::super::samples::{facts, noon, setup};
    use super::*;

    #[test]
    fn every_line_is_one_json_object_with_a_timestamp() {
        let events = Watch::default().observe(&facts(), &noon());
        let mut lines = vec![begin(&setup(), &noon()), summary(&facts(), &noon())];
        lines.extend(events.iter().map(event));
        assert_eq!(lines.len(), 9);
        for line in &lines {
            assert_eq!(line.matches('\n').count(), 1);
            let object: Value = serde_json::from_str(line).unwrap();
            assert_eq!(object["at"], "2026-11-21T12:00:00Z");
            assert!(object["event"].is_string());
        }
        let summary: Value = serde_json::from_str(&lines[1]).unwrap();
        assert_eq!(summary["split"]["bookstore-v2"], 0.1);
        assert_eq!(summary["rows"][3]["now"], "refused");
    }
}
