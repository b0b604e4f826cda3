//! The service certificates that were issued to one proxy, for keys of its machine.
//!
//! The join record has them, so that a revocation can name each of them to the peers. This module decides how many a proxy
//! may have, and for how long each counts.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::certificate::may_be_accepted;
use crate::name::ServiceAccount;

/// A service certificate that was issued to one proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedWorkloadCertificate {
    /// Its serial number, in lower-case hexadecimal.
    pub serial: String,
    /// The account that it identifies.
    pub account: ServiceAccount,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl IssuedWorkloadCertificate {
    /// Whether a peer may still accept it.
    fn is_accepted(&self, now: Timestamp) -> bool {
        may_be_accepted(self.expires_at, now)
    }
}

/// The service certificates of one proxy that peers may accept, in the order of their issue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkloadCertificates(Vec<IssuedWorkloadCertificate>);

impl WorkloadCertificates {
    /// The most certificates of one proxy that have not expired. A machine has two for each of its 64 secrets: one in use,
    /// and its successor.
    pub const MAX: usize = 128;

    /// The most certificates in all, with those that expired a moment ago.
    const MAX_WITH_EXPIRED: usize = 2 * Self::MAX;

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, with those that have expired since the last issue.
    pub fn iter(&self) -> impl Iterator<Item = &IssuedWorkloadCertificate> {
        self.0.iter()
    }

    /// Whether one more may be issued.
    pub fn check_limit(&self, now: Timestamp) -> Result<(), TooManyCertificates> {
        let ends = || self.0.iter().map(|one| one.expires_at).filter(|end| *end > now);
        match ends().min() {
            Some(next_expiry) if ends().count() >= Self::MAX => {
                Err(TooManyCertificates { next_expiry })
            }
            _ => Ok(()),
        }
    }

    /// These with one more, and without those that have expired.
    pub fn with(
        &self,
        issued: IssuedWorkloadCertificate,
        now: Timestamp,
    ) -> Result<Self, TooManyCertificates> {
        self.check_limit(now)?;
        let mut all: Vec<_> =
            self.0.iter().filter(|one| one.is_accepted(now)).cloned().chain([issued]).collect();
        // Of lifetimes of minutes, many expire within the time in which a wrong clock may accept them.
        while all.len() > Self::MAX_WITH_EXPIRED
            && let Some(expired) = all.iter().position(|one| one.expires_at <= now)
        {
            all.remove(expired);
        }
        Ok(Self(all))
    }
}

/// A proxy has as many service certificates as it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub struct TooManyCertificates {
    /// When the first of them expires.
    pub next_expiry: Timestamp,
}

impl fmt::Display for TooManyCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} service certificates that have not expired, the most that one proxy may have: the next one expires on {:.0}",
            WorkloadCertificates::MAX,
            self.next_expiry
        )
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(hour: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_hours(hour)
    }

    fn issued(number: usize, end: i64) -> IssuedWorkloadCertificate {
        IssuedWorkloadCertificate {
            serial: format!("{number:032x}"),
            account: "shop/till".parse().unwrap(),
            expires_at: at(end),
        }
    }

    #[test]
    fn unexpired_certificates_have_a_limit() {
        let mut known = WorkloadCertificates::default();
        for number in 0..WorkloadCertificates::MAX {
            let end = if number == 9 { 20 } else { 24 };
            known = known.with(issued(number, end), at(0)).unwrap();
        }
        let full = known.with(issued(200, 24), at(19)).unwrap_err();
        assert_eq!(full, TooManyCertificates { next_expiry: at(20) });
        assert!(full.to_string().contains("the next one expires on 1970-01-01T20:00:00Z"));
        assert!(known.check_limit(at(20)).is_ok());
        let more = known.with(issued(200, 44), at(21)).unwrap();
        assert_eq!(more.0.len(), WorkloadCertificates::MAX + 1, "a clock may be wrong");
        let rest = more.with(issued(201, 130), at(97)).unwrap();
        assert_eq!(rest.0.len(), 2, "expired ones are dropped after three days: {rest:?}");
    }

    #[test]
    fn short_lived_certificates_keep_the_record_bounded() {
        let minute = |n: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_mins(n);
        let mut known = WorkloadCertificates::default();
        for number in 0..600 {
            let now = minute(i64::try_from(number).unwrap() / 10);
            let end = now + SignedDuration::from_mins(5);
            let issued = IssuedWorkloadCertificate { expires_at: end, ..issued(number, 0) };
            known = known.with(issued, now).unwrap();
        }
        assert_eq!(known.0.len(), WorkloadCertificates::MAX_WITH_EXPIRED);
        let unexpired = known.0.iter().filter(|one| one.expires_at > minute(59)).count();
        assert_eq!(unexpired, 50);
    }
}
