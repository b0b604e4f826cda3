//! The events of the live demo: changes of outcomes, of the policy and of the control plane.

use jiff::Zoned;

use super::facts::{Facts, RepeatedCall, silence};
use crate::control_plane::FindingView;
use crate::tally::Outcome;

/// An event with its time.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) at: Zoned,
    pub(super) what: EventKind,
}

/// The kind of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum EventKind {
    /// A repeated call has a new outcome.
    Outcome { call: RepeatedCall, before: Option<Outcome>, after: Outcome },
    /// A new policy revision is active.
    PolicyActive { revision: String },
    /// The policy in the folder is rejected.
    PolicyRejected { findings: Vec<FindingView>, rendered: String },
    /// The folder is missing or unreadable.
    PolicyUnreadable { problem: String },
    /// The folder contains the active policy again.
    PolicyRestored { revision: String },
    /// The control plane has not answered for so many seconds.
    ControlPlaneSilent { seconds: u64 },
    /// The control plane answers again.
    ControlPlaneAnswers,
}

impl EventKind {
    /// The event as one line, without the rendered findings of a rejection.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Outcome {
                call: RepeatedCall { from, to, request },
                before: Some(before),
                after,
            } => {
                format!("{from} → {to} {request}: {before} → {after}")
            }
            Self::Outcome { call: RepeatedCall { from, to, request }, before: None, after } => {
                format!("{from} → {to} {request}: {after}")
            }
            Self::PolicyActive { revision } => format!("policy {revision} is active"),
            Self::PolicyRejected { .. } => POLICY_REJECTED.to_owned(),
            Self::PolicyUnreadable { problem } => format!("{POLICY_UNREADABLE}: {problem}"),
            Self::PolicyRestored { revision } => {
                format!("the policy is valid again: {revision} stays active")
            }
            Self::ControlPlaneSilent { seconds } => silence(*seconds),
            Self::ControlPlaneAnswers => "the control plane answers again".to_owned(),
        }
    }
}

/// The line for a rejected policy.
pub(super) const POLICY_REJECTED: &str = "the policy is rejected, the previous policy stays active";

/// The line for an unreadable policy.
pub(super) const POLICY_UNREADABLE: &str =
    "the policy cannot be read, the previous policy stays active";

/// The previous observation, with which the next one is compared.
#[derive(Debug, Default)]
pub(super) struct Watch {
    outcomes: Vec<Option<Outcome>>,
    revision: Option<String>,
    /// The current problem of the policy in the folder.
    wrong: Option<EventKind>,
    is_silent: bool,
}

impl Watch {
    /// The changes since the last call.
    pub(super) fn observe(&mut self, facts: &Facts, now: &Zoned) -> Vec<Event> {
        let mut found = Vec::new();
        match facts.silent {
            Some(seconds) if !self.is_silent => {
                found.push(EventKind::ControlPlaneSilent { seconds });
            }
            None if self.is_silent => found.push(EventKind::ControlPlaneAnswers),
            _ => {}
        }
        self.is_silent = facts.silent.is_some();
        let policy = &facts.policy;
        let rendered = policy.rendered.clone();
        let wrong = if policy.is_rejected() {
            Some(EventKind::PolicyRejected { findings: policy.findings.clone(), rendered })
        } else {
            policy.is_unreadable().then_some(EventKind::PolicyUnreadable { problem: rendered })
        };
        if policy.revision != self.revision
            && let Some(revision) = policy.revision.clone()
        {
            found.push(EventKind::PolicyActive { revision });
        } else if self.wrong.is_some()
            && wrong.is_none()
            && let Some(revision) = policy.revision.clone()
        {
            found.push(EventKind::PolicyRestored { revision });
        }
        found.extend(wrong.clone().filter(|_| wrong != self.wrong));
        (self.revision, self.wrong) = (policy.revision.clone(), wrong);

        self.outcomes.resize(facts.rows.len(), None);
        for ((call, count), before) in facts.rows.iter().zip(&mut self.outcomes) {
            if let Some(after) = count.last
                && *before != Some(after)
            {
                let before = before.replace(after);
                found.push(EventKind::Outcome { call: *call, before, after });
            }
        }
        found.into_iter().map(|what| Event { at: now.clone(), what }).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::{facts, finding, noon};
    use super::*;

    fn seen(watch: &mut Watch, facts: &Facts) -> Vec<String> {
        watch.observe(facts, &noon()).iter().map(|event| event.what.line()).collect()
    }

    #[test]
    fn change_is_reported_once() {
        let mut watch = Watch::default();
        let mut facts = facts();
        assert_eq!(
            seen(&mut watch, &facts),
            [
                "policy 4b4a36bdada3 is active",
                "bookbuyer → bookstore GET /books/N: 200",
                "bookthief → bookstore GET /: 200",
                "bookthief → bookstore GET /books/1: 403",
                "bookthief → bookwarehouse TCP connect: refused",
                "bookstore-v1 → bookwarehouse TCP sale: ok",
                "bookstore-v2 → bookwarehouse TCP sale: ok",
            ]
        );
        assert!(seen(&mut watch, &facts).is_empty());
        facts.rows[2].1.last = Some(Outcome::Status(200));
        facts.policy.revision = Some("0123456789ab".to_owned());
        assert_eq!(
            seen(&mut watch, &facts),
            ["policy 0123456789ab is active", "bookthief → bookstore GET /books/1: 403 → 200"]
        );
        assert!(seen(&mut watch, &facts).is_empty());
    }

    #[test]
    fn policy_rejection_and_its_end_are_reported() {
        let mut watch = Watch::default();
        let good = facts();
        seen(&mut watch, &good);
        let mut bad = good.clone();
        bad.policy.findings.push(finding());
        bad.policy.stale_since = Some("2026-11-21T12:00:00Z".to_owned());
        bad.policy.rendered = "error[IM0201]: no service".to_owned();
        let events = watch.observe(&bad, &noon());
        assert!(
            matches!(&events[..], [Event { what: EventKind::PolicyRejected { rendered, .. }, .. }]
            if rendered == "error[IM0201]: no service")
        );
        assert!(seen(&mut watch, &bad).is_empty());
        assert_eq!(
            seen(&mut watch, &good),
            ["the policy is valid again: 4b4a36bdada3 stays active"]
        );
    }

    #[test]
    fn missing_folder_and_its_return_are_reported() {
        let mut watch = Watch::default();
        let good = facts();
        seen(&mut watch, &good);
        let mut gone = good.clone();
        gone.policy.stale_since = Some("2026-11-21T12:00:00Z".to_owned());
        gone.policy.rendered = "there is no policy folder at `policy`".to_owned();
        let unreadable = "the policy cannot be read, the previous policy stays active: there is no \
                    policy folder at `policy`";
        assert_eq!(seen(&mut watch, &gone), [unreadable]);
        assert!(seen(&mut watch, &gone).is_empty());
        let mut bad = gone.clone();
        bad.policy.findings.push(finding());
        assert_eq!(seen(&mut watch, &bad), [POLICY_REJECTED]);
        assert_eq!(seen(&mut watch, &gone), [unreadable]);
        assert_eq!(
            seen(&mut watch, &good),
            ["the policy is valid again: 4b4a36bdada3 stays active"]
        );
    }

    #[test]
    fn control_plane_silence_and_its_end_are_reported() {
        let mut watch = Watch::default();
        let mut facts = facts();
        seen(&mut watch, &facts);
        facts.silent = Some(2);
        assert_eq!(seen(&mut watch, &facts), ["the control plane has not answered for 2 s"]);
        facts.silent = Some(3);
        assert!(seen(&mut watch, &facts).is_empty());
        facts.silent = None;
        assert_eq!(seen(&mut watch, &facts), ["the control plane answers again"]);
    }
}
