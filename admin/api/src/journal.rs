//! Pages of the journal.
//!
//! Only the admin socket serves it: it names users, and every user of the machine reads the TCP port.

use ironmesh_catalog::JournalEntry;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most entries in one answer, and their number without a limit in the query.
pub const MAX_JOURNAL_PAGE: usize = 1_000;

/// Entries of the journal.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalPage {
    /// The entries, the newest last.
    pub entries: Vec<JournalEntry>,
    /// The highest number of all stored entries, whatever the query was about; 0 without entries.
    pub last: u64,
    /// How many entries were lost since the control plane started: the disk could not be written, or too many came at
    /// once.
    #[serde(default)]
    pub dropped: u64,
}

impl JournalPage {
    /// The number after which the next page begins, if this one began after `cursor`. A full page may have others after
    /// it. Numbers that are lower than before are those of another state folder, which is read from its beginning.
    pub fn next_cursor(&self, cursor: u64) -> u64 {
        match self.entries.last() {
            _ if self.last < cursor => 0,
            Some(last) if self.entries.len() >= MAX_JOURNAL_PAGE => last.sequence,
            _ => self.last,
        }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{Actor, JournalKind, JournalOutcome};
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn kinds_have_the_same_word_in_text_and_json() {
        for kind in JournalKind::ALL {
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{kind}\""));
            assert_eq!(kind.word().parse(), Ok(kind));
        }
        assert!("audit".parse::<JournalKind>().is_err());
    }

    #[test]
    fn entry_has_the_documented_json() {
        let entry = JournalEntry {
            sequence: 7,
            origin: Some("admin socket".to_owned()),
            outcome: JournalOutcome::Rejected { reason: "unknown".to_owned() },
            ..JournalEntry::new(
                Timestamp::UNIX_EPOCH,
                JournalKind::Revoke,
                Actor::User { uid: Some(0), name: Some("root".to_owned()) },
            )
        };
        let json = serde_json::json!({
            "sequence": 7, "at": "1970-01-01T00:00:00Z", "kind": "revoke",
            "who": {"type": "user", "uid": 0, "name": "root"}, "from": "admin socket",
            "subject": {}, "count": 1, "outcome": "rejected", "reason": "unknown",
        });
        assert_eq!(serde_json::to_value(&entry).unwrap(), json);
        assert_eq!(serde_json::from_value::<JournalEntry>(json).unwrap(), entry);
    }
}
