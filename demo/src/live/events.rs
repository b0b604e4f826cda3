//! What has changed: outcomes, and the policy.

use jiff::Zoned;

use super::facts::{Facts, Habit, silence};
use crate::control_plane::FindingView;
use crate::tally::Outcome;

/// Something that happened.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) at: Zoned,
    pub(super) what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    /// Something else comes of a habit than before.
    Outcome { habit: Habit, before: Option<Outcome>, after: Outcome },
    /// Another policy is active.
    InForce { revision: String },
    /// The policy in the folder is refused.
    Refused { findings: Vec<FindingView>, drawn: String },
    /// The folder is gone, or cannot be read.
    Unreadable { problem: String },
    /// The policy in the folder is what is in force again.
    Mended { revision: String },
    /// The control plane has not answered for so many seconds.
    Silent { seconds: u64 },
    /// It answers again.
    Answers,
}

impl What {
    /// It in a line. The drawing of a refusal is apart from it.
    pub(super) fn line(&self) -> String {
        match self {
            Self::Outcome { habit: Habit { from, to, request }, before: Some(before), after } => {
                format!("{from} → {to} {request}: {before} → {after}")
            }
            Self::Outcome { habit: Habit { from, to, request }, before: None, after } => {
                format!("{from} → {to} {request}: {after}")
            }
            Self::InForce { revision } => format!("policy {revision} in force"),
            Self::Refused { .. } => REFUSED.to_owned(),
            Self::Unreadable { problem } => format!("{UNREADABLE}: {problem}"),
            Self::Mended { revision } => format!("the policy is mended: {revision} as before"),
            Self::Silent { seconds } => silence(*seconds),
            Self::Answers => "the control plane answers again".to_owned(),
        }
    }
}

/// How a refusal is told.
pub(super) const REFUSED: &str = "the policy is rejected, the previous policy stays active";

/// How it is told that there is nothing to be read.
pub(super) const UNREADABLE: &str = "the policy cannot be read, the previous policy stays active";

/// Compares each moment with the one before.
#[derive(Debug, Default)]
pub(super) struct Watch {
    outcomes: Vec<Option<Outcome>>,
    revision: Option<String>,
    /// What is wrong with the policy in the folder now.
    wrong: Option<What>,
    is_silent: bool,
}

impl Watch {
    /// What has changed since it was called last.
    pub(super) fn observe(&mut self, facts: &Facts, now: &Zoned) -> Vec<Event> {
        let mut found = Vec::new();
        match facts.silent {
            Some(seconds) if !self.is_silent => found.push(What::Silent { seconds }),
            None if self.is_silent => found.push(What::Answers),
            _ => {}
        }
        self.is_silent = facts.silent.is_some();
        let policy = &facts.policy;
        let drawn = policy.drawn.clone();
        let wrong = if policy.is_refused() {
            Some(What::Refused { findings: policy.findings.clone(), drawn })
        } else {
            policy.is_unreadable().then_some(What::Unreadable { problem: drawn })
        };
        if policy.revision != self.revision
            && let Some(revision) = policy.revision.clone()
        {
            found.push(What::InForce { revision });
        } else if self.wrong.is_some()
            && wrong.is_none()
            && let Some(revision) = policy.revision.clone()
        {
            found.push(What::Mended { revision });
        }
        found.extend(wrong.clone().filter(|_| wrong != self.wrong));
        (self.revision, self.wrong) = (policy.revision.clone(), wrong);

        self.outcomes.resize(facts.rows.len(), None);
        for ((habit, count), before) in facts.rows.iter().zip(&mut self.outcomes) {
            if let Some(after) = count.last
                && *before != Some(after)
            {
                let before = before.replace(after);
                found.push(What::Outcome { habit: *habit, before, after });
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
                "policy 4b4a36bdada3 in force",
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
            ["policy 0123456789ab in force", "bookthief → bookstore GET /books/1: 403 → 200"]
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
        bad.policy.drawn = "error[IM0201]: no service".to_owned();
        let events = watch.observe(&bad, &noon());
        assert!(matches!(&events[..], [Event { what: What::Refused { drawn, .. }, .. }]
            if drawn == "error[IM0201]: no service"));
        assert!(seen(&mut watch, &bad).is_empty());
        assert_eq!(seen(&mut watch, &good), ["the policy is mended: 4b4a36bdada3 as before"]);
    }

    #[test]
    fn missing_folder_and_its_return_are_reported() {
        let mut watch = Watch::default();
        let good = facts();
        seen(&mut watch, &good);
        let mut gone = good.clone();
        gone.policy.stale_since = Some("2026-11-21T12:00:00Z".to_owned());
        gone.policy.drawn = "there is no policy folder at `policy`".to_owned();
        let told = "the policy cannot be read, the previous policy stays active: there is no \
                    policy folder at `policy`";
        assert_eq!(seen(&mut watch, &gone), [told]);
        assert!(seen(&mut watch, &gone).is_empty());
        let mut bad = gone.clone();
        bad.policy.findings.push(finding());
        assert_eq!(seen(&mut watch, &bad), [REFUSED]);
        assert_eq!(seen(&mut watch, &gone), [told]);
        assert_eq!(seen(&mut watch, &good), ["the policy is mended: 4b4a36bdada3 as before"]);
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
