//! The content of an attested document: JSON, which is read only after its signature was verified.

use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use super::{AttestedDocumentError, AttestedMachine, MAX_CLOCK_SKEW};

/// The longest nonce that IMDS accepts, in letters and digits.
pub(super) const MAX_NONCE: usize = 32;

/// The form of Azure's times, such as `11/28/26 00:16:17 -0000`.
const TIME: &str = "%m/%d/%y %H:%M:%S %z";

/// The most characters of a field that an error shows.
const MAX_SHOWN: usize = 64;

/// The fields that matter. All are optional here, so that an error can name the missing one.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Content {
    nonce: Option<String>,
    vm_id: Option<String>,
    subscription_id: Option<String>,
    time_stamp: Option<TimeStamp>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct TimeStamp {
    created_on: Option<String>,
    expires_on: Option<String>,
}

impl Content {
    pub(super) fn parse(json: &[u8]) -> Result<Self, AttestedDocumentError> {
        serde_json::from_slice(json).map_err(AttestedDocumentError::Content)
    }

    /// The machine, if the content is for `expected` and valid at `now`.
    pub(super) fn check(
        self,
        expected: &str,
        now: Timestamp,
    ) -> Result<AttestedMachine, AttestedDocumentError> {
        // Without a nonce in the request, IMDS writes the time instead: an empty one would match nothing, and
        // a caller that passes one has a bug.
        let is_fit = (1..=MAX_NONCE).contains(&expected.len())
            && expected.bytes().all(|b| b.is_ascii_alphanumeric());
        if !is_fit {
            return Err(AttestedDocumentError::UnfitNonce { length: expected.len() });
        }
        if present(self.nonce, "nonce")? != expected {
            return Err(AttestedDocumentError::OtherNonce);
        }
        let time_stamp = present(self.time_stamp, "timeStamp")?;
        let created_at = time(time_stamp.created_on, "timeStamp.createdOn")?;
        let expires_at = time(time_stamp.expires_on, "timeStamp.expiresOn")?;
        if created_at.duration_since(now) > MAX_CLOCK_SKEW {
            return Err(AttestedDocumentError::NotYetValid { created_at, now });
        }
        if expires_at <= now {
            return Err(AttestedDocumentError::Expired { expires_at, now });
        }
        Ok(AttestedMachine {
            vm_id: id(self.vm_id, "vmId")?,
            subscription_id: id(self.subscription_id, "subscriptionId")?,
            created_at,
            expires_at,
        })
    }
}

fn present<T>(value: Option<T>, field: &'static str) -> Result<T, AttestedDocumentError> {
    value.ok_or(AttestedDocumentError::MissingField { field })
}

fn time(value: Option<String>, field: &'static str) -> Result<Timestamp, AttestedDocumentError> {
    let value = present(value, field)?;
    Timestamp::strptime(TIME, &value).map_err(|_| unreadable(field, &value))
}

/// A UUID that names something: an id of zeros would match every machine without one.
fn id(value: Option<String>, field: &'static str) -> Result<Uuid, AttestedDocumentError> {
    let value = present(value, field)?;
    let id = Uuid::try_parse(&value).ok().filter(|id| !id.is_nil());
    id.ok_or_else(|| unreadable(field, &value))
}

fn unreadable(field: &'static str, value: &str) -> AttestedDocumentError {
    let value = value.chars().take(MAX_SHOWN).collect();
    AttestedDocumentError::UnreadableField { field, value }
}
