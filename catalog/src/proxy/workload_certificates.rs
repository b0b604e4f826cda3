//! The service certificates that were issued to one proxy, for keys of its machine.
//!
//! The join record has them, so that a revocation can name each of them to the peers. This module decides how many a proxy
//! may have, and for how long each counts.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

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
    /// How long after its expiry a certificate still counts: the clock of a peer may be behind.
    const CLOCK_MARGIN: SignedDuration = SignedDuration::from_hours(1);

    /// Whether a peer may still accept it.
    pub fn is_accepted(&self, now: Timestamp) -> bool {
        now.duration_since(self.expires_at) < Self::CLOCK_MARGIN
    }
}

/// The service certificates of one proxy that peers may accept, in the order of their issue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WorkloadCertificates(Vec<IssuedWorkloadCertificate>);

impl WorkloadCertificates {
    /// The most certificates of one proxy that have not expired. A machine has two for each account: one in use, and its
    /// successor.
    pub const MAX: usize = 64;

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those that a peer may still accept.
    pub fn accepted(&self, now: Timestamp) -> impl Iterator<Item = &IssuedWorkloadCertificate> {
        self.0.iter().filter(move |one| one.is_accepted(now))
    }

    /// Whether one more may be issued.
    pub fn check_limit(&self, now: Timestamp) -> Result<(), TooManyCertificates> {
        let mut ends: Vec<_> = self.accepted(now).map(|one| one.expires_at).collect();
        ends.sort();
        match ends.first() {
            Some(first) if ends.len() >= Self::MAX => {
                Err(TooManyCertificates { next_expiry: *first })
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
        Ok(Self(self.accepted(now).cloned().chain([issued]).collect()))
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
    fn sixty_four_unexpired_certificates_leave_no_room_until_one_expires() {
        let mut known = WorkloadCertificates::default();
        for number in 0..WorkloadCertificates::MAX {
            let end = if number == 9 { 20 } else { 24 };
            known = known.with(issued(number, end), at(0)).unwrap();
        }
        let full = known.with(issued(64, 24), at(19)).unwrap_err();
        assert_eq!(full, TooManyCertificates { next_expiry: at(20) });
        assert!(full.to_string().contains("the next one expires on 1970-01-01T20:00:00Z"));
        assert!(known.check_limit(at(20)).is_err(), "a peer's clock may be an hour behind");
        let more = known.with(issued(64, 44), at(21)).unwrap();
        assert_eq!(more.accepted(at(21)).count(), WorkloadCertificates::MAX);
        let rest = more.with(issued(65, 70), at(25)).unwrap();
        assert_eq!(rest.0.len(), 2, "expired ones are dropped: {rest:?}");
    }
}
