//! Silences: operators' decisions that a finding is known, for a while and with a reason.
//!
//! This module owns the record of a silence, and which findings it covers. It never hides a finding.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::finding::Code;
use crate::object_ref::ObjectRef;
use crate::unknown_fields::UnknownFields;

/// The name of a silence: 8 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SilenceId(String);

impl SilenceId {
    /// The number of its digits.
    pub const DIGITS: usize = 8;

    /// The name with the digits of this number.
    pub fn new(number: u32) -> Self {
        Self(format!("{number:08x}"))
    }
}

impl fmt::Display for SilenceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for SilenceId {
    type Err = InvalidSilenceId;

    fn from_str(text: &str) -> Result<Self, InvalidSilenceId> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == Self::DIGITS && text.bytes().all(is_digit) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidSilenceId)
    }
}

impl TryFrom<String> for SilenceId {
    type Error = InvalidSilenceId;

    fn try_from(text: String) -> Result<Self, InvalidSilenceId> {
        text.parse()
    }
}

impl From<SilenceId> for String {
    fn from(id: SilenceId) -> Self {
        id.0
    }
}

/// A text that is no id of a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "silence id is malformed: it is {} hexadecimal digits in lower case, as `ironmesh finding list` shows it",
    SilenceId::DIGITS
)]
pub struct InvalidSilenceId;

/// A silence, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Silence {
    /// Its name.
    pub id: SilenceId,
    /// The code of the findings.
    pub code: Code,
    /// The object of the findings; none for all findings of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectRef>,
    /// Why an operator set it.
    pub reason: String,
    /// The operator who set it.
    pub by: String,
    /// When it was set.
    pub created_at: Timestamp,
    /// When the findings are active again.
    pub expires_at: Timestamp,
    /// Its removal before that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<SilenceRemoval>,
    /// The fields of a newer version, which are stored again with the record.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// The removal of a silence by an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SilenceRemoval {
    /// When.
    pub at: Timestamp,
    /// The operator.
    pub by: String,
}

/// The state of a silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SilenceState {
    /// It silences findings.
    Active,
    /// Its time is over.
    Expired,
    /// An operator removed it.
    Removed,
}

impl SilenceState {
    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Expired => "expired",
            Self::Removed => "removed",
        }
    }
}

impl Silence {
    /// The longest silence: a finding that stays longer needs a fix, or a new decision.
    pub const MAX_LENGTH: SignedDuration = SignedDuration::from_hours(90 * 24);

    /// The most active silences of a mesh.
    pub const MAX_ACTIVE: usize = 1_000;

    /// Its state at `now`.
    pub fn state(&self, now: Timestamp) -> SilenceState {
        match &self.removed {
            Some(_) => SilenceState::Removed,
            None if self.expires_at <= now => SilenceState::Expired,
            None => SilenceState::Active,
        }
    }

    /// When it ended, or will.
    pub fn end(&self) -> Timestamp {
        self.removed.as_ref().map_or(self.expires_at, |removed| removed.at.min(self.expires_at))
    }

    /// Whether it is about a finding of this code and one of these objects. It may not cover all of them.
    pub fn is_about(&self, code: Code, objects: &[ObjectRef]) -> bool {
        let is_among = |object: &ObjectRef| objects.iter().any(|other| object.includes(other));
        self.code == code && self.object.as_ref().is_none_or(is_among)
    }
}

/// The silences that are active at one moment.
#[derive(Debug, Clone, Default)]
pub struct ActiveSilences(BTreeMap<Code, Vec<Arc<Silence>>>);

impl ActiveSilences {
    /// The silence of a finding; none if the finding is active. Of several, it is the one by whose end the finding is
    /// active again.
    ///
    /// A silence without an object covers each finding of its code. Silences with objects cover a finding only if they
    /// cover all of its objects: a problem of an object that no operator silenced is never hidden.
    pub fn covering(&self, code: Code, objects: &[ObjectRef]) -> Option<&Silence> {
        let silences = self.0.get(&code)?;
        let whole = silences.iter().filter(|one| one.object.is_none());
        let whole = whole.max_by_key(|one| one.expires_at);
        let of_object = |object: &ObjectRef| {
            let is_it = |one: &&Arc<Silence>| {
                one.object.as_ref().is_some_and(|silenced| silenced.includes(object))
            };
            silences.iter().filter(is_it).max_by_key(|one| one.expires_at)
        };
        let each: Option<Vec<_>> = objects.iter().map(of_object).collect();
        let first_end = each.and_then(|each| each.into_iter().min_by_key(|one| one.expires_at));
        whole.into_iter().chain(first_end).max_by_key(|one| one.expires_at).map(|one| &**one)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Silence> {
        self.0.values().flatten().map(|silence| &**silence)
    }
}

impl FromIterator<Arc<Silence>> for ActiveSilences {
    fn from_iter<I: IntoIterator<Item = Arc<Silence>>>(silences: I) -> Self {
        let mut by_code = BTreeMap::<_, Vec<_>>::new();
        for silence in silences {
            by_code.entry(silence.code).or_default().push(silence);
        }
        Self(by_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn silence(number: u32, code: u16, object: Option<&str>, end: i64) -> Silence {
        Silence {
            id: SilenceId::new(number),
            code: Code(code),
            object: object.map(|object| object.parse().unwrap()),
            reason: "maintenance".to_owned(),
            by: "root".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: Timestamp::from_second(end).unwrap(),
            removed: None,
            unknown: UnknownFields::default(),
        }
    }

    fn covering(silences: &[Silence], code: u16, objects: &[&str]) -> Option<String> {
        let active: ActiveSilences = silences.iter().cloned().map(Arc::new).collect();
        let objects: Vec<ObjectRef> = objects.iter().map(|text| text.parse().unwrap()).collect();
        active.covering(Code(code), &objects).map(|silence| silence.id.to_string())
    }

    #[test]
    fn finding_is_covered_only_if_each_of_its_objects_is() {
        let one = [silence(1, 734, Some("service:shop/a"), 60)];
        assert_eq!(covering(&one, 734, &["service:shop/a"]).as_deref(), Some("00000001"));
        assert_eq!(covering(&one, 734, &["port:shop/a|80"]).as_deref(), Some("00000001"));
        assert_eq!(covering(&one, 733, &["service:shop/a"]), None);
        assert_eq!(covering(&one, 734, &["service:shop/b"]), None);
        assert_eq!(covering(&one, 734, &["service:shop/a", "service:shop/b"]), None);
        assert_eq!(covering(&one, 734, &[]), None);
        let two = [one[0].clone(), silence(2, 734, Some("service:shop/b"), 30)];
        let both = covering(&two, 734, &["service:shop/a", "service:shop/b"]);
        assert_eq!(both.as_deref(), Some("00000002"), "the first end makes the finding active");
    }

    #[test]
    fn silence_without_object_covers_all_findings_of_its_code() {
        let all = [silence(1, 734, None, 60), silence(2, 734, Some("service:shop/a"), 90)];
        assert_eq!(covering(&all, 734, &[]).as_deref(), Some("00000001"));
        assert_eq!(covering(&all, 734, &["service:shop/b"]).as_deref(), Some("00000001"));
        assert_eq!(covering(&all, 734, &["service:shop/a"]).as_deref(), Some("00000002"));
        assert_eq!(covering(&all, 735, &[]), None);
    }

    #[test]
    fn state_follows_expiry_and_removal() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let silence = silence(1, 734, None, 60);
        assert_eq!(silence.state(at(59)), SilenceState::Active);
        assert_eq!(silence.state(at(60)), SilenceState::Expired, "exactly at its time");
        let removal = SilenceRemoval { at: at(30), by: "root".to_owned() };
        let removed = Silence { removed: Some(removal), ..silence };
        assert_eq!(removed.state(at(59)), SilenceState::Removed);
        assert_eq!(removed.end(), at(30));
    }

    #[test]
    fn record_of_a_newer_version_keeps_its_fields_and_objects() {
        let json = serde_json::json!({
            "id": "0000000a", "code": "IM0734", "object": "region:eu", "reason": "r", "by": "b",
            "created_at": "2026-01-01T00:00:00Z", "expires_at": "2026-01-02T00:00:00Z", "later": 1,
        });
        let silence: Silence = serde_json::from_value(json.clone()).unwrap();
        assert_eq!(serde_json::to_value(&silence).unwrap(), json);
    }

    #[test]
    fn malformed_id_is_rejected() {
        assert_eq!(SilenceId::new(0xab).to_string(), "000000ab");
        for bad in ["", "ab", "000000AB", "../../x", "0000000ab"] {
            assert!(bad.parse::<SilenceId>().is_err(), "{bad}");
        }
    }
}
