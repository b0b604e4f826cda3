//! The credentials of a proxy: its key, and the certificates by which it may connect and renew.
//!
//! This module decides which certificate of the key counts. It verifies none: that is the caller's work.

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::name::ServiceName;

/// The hash of a public key: SHA-256 of its SubjectPublicKeyInfo, in lower-case hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyHash(pub String);

impl fmt::Display for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A certificate that was issued to a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuedCertificate {
    /// Its serial number, in lower-case hexadecimal.
    pub serial: String,
    /// The service that its SPIFFE ID names; none if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ServiceName>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// When the first xDS stream with it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_used_at: Option<Timestamp>,
    /// The certificate with its issuers, in PEM, until its first use: a machine that lost the response gets the same one
    /// again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chain: Option<String>,
}

/// The key of a proxy, and its certificates. The key is bound: a certificate for another key needs a new enrollment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyCredentials {
    /// The key of all its certificates.
    pub key: KeyHash,
    /// The certificate that was issued last.
    pub current: IssuedCertificate,
    /// The one before, which is accepted until [`ProxyCredentials::OVERLAP`] after the first use of the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predecessor: Option<IssuedCertificate>,
    /// The latest expiry of all its certificates. (A clock that was ahead may have issued an earlier one that expires later
    /// than its successors.)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_expiry: Option<Timestamp>,
}

/// A certificate that a proxy presents. The caller has verified that this mesh issued it for this proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PresentedCertificate {
    /// The hash of its key.
    pub key: KeyHash,
    /// Its serial number, in lower-case hexadecimal.
    pub serial: String,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// What a presented certificate is to the credentials of its proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CertificateRecognition {
    /// The one that was issued last.
    Current,
    /// The one before, while it is accepted.
    Predecessor,
    /// One that is newer than the stored state, which was restored from a backup.
    Newer,
    /// An older one: a copy of the machine's files, or a machine that was restored from a backup.
    Older,
    /// One with another key: a copy from before the key was bound.
    OtherKey,
}

impl ProxyCredentials {
    /// How long the predecessor is still accepted after the first use of the current certificate: connections that an
    /// Envoy opens at that moment may still present it.
    pub const OVERLAP: SignedDuration = SignedDuration::from_mins(10);

    /// The credentials of a key with its first certificate.
    pub fn new(key: KeyHash, current: IssuedCertificate) -> Self {
        Self { key, latest_expiry: Some(current.expires_at), current, predecessor: None }
    }

    /// The credentials that the first use of a certificate binds, in a record without any. (A certificate does not have
    /// the time of its issue: its validity begins earlier.)
    pub fn bound_by(presented: &PresentedCertificate, issued_at: Timestamp) -> Self {
        let current = IssuedCertificate {
            serial: presented.serial.clone(),
            service: None,
            issued_at,
            expires_at: presented.expires_at,
            first_used_at: None,
            chain: None,
        };
        Self::new(presented.key.clone(), current)
    }

    /// The credentials with a certificate that is newer than the stored state. Its lifetime is taken to be that of the
    /// current one.
    #[must_use]
    pub fn restored_by(&self, presented: &PresentedCertificate) -> Self {
        let lifetime = self.current.expires_at.duration_since(self.current.issued_at);
        Self::bound_by(
            presented,
            presented.expires_at.saturating_sub(lifetime).unwrap_or(presented.expires_at),
        )
    }

    /// What a presented certificate is to these credentials.
    pub fn recognize(
        &self,
        presented: &PresentedCertificate,
        now: Timestamp,
    ) -> CertificateRecognition {
        if presented.key != self.key {
            return CertificateRecognition::OtherKey;
        }
        if presented.serial == self.current.serial {
            return CertificateRecognition::Current;
        }
        let is_predecessor =
            self.predecessor.as_ref().is_some_and(|one| one.serial == presented.serial);
        if is_predecessor {
            return match self.accepted_predecessor(now) {
                Some(_) => CertificateRecognition::Predecessor,
                None => CertificateRecognition::Older,
            };
        }
        if presented.expires_at > self.latest_expiry.unwrap_or(self.current.expires_at) {
            return CertificateRecognition::Newer;
        }
        CertificateRecognition::Older
    }

    /// The predecessor, while it is accepted.
    pub fn accepted_predecessor(&self, now: Timestamp) -> Option<&IssuedCertificate> {
        // (A clock that goes back does not prolong it.)
        let is_over = |used: Timestamp| now.duration_since(used).abs() > Self::OVERLAP;
        self.predecessor.as_ref().filter(|_| !self.current.first_used_at.is_some_and(is_over))
    }

    /// The certificate that a renewal by this one has issued already, if its response may have been lost: it is unused.
    /// The same again, instead of a new one, so that no repeated or late request makes a delivered certificate invalid.
    pub fn issued_before(
        &self,
        recognition: CertificateRecognition,
        now: Timestamp,
    ) -> Option<&IssuedCertificate> {
        let is_repeated = recognition == CertificateRecognition::Predecessor;
        let is_of_use = |one: &&IssuedCertificate| {
            let lifetime = one.expires_at.duration_since(one.issued_at);
            one.first_used_at.is_none() && one.expires_at.duration_since(now) > lifetime / 2
        };
        is_repeated.then_some(&self.current).filter(is_of_use)
    }

    /// The credentials after a renewal by a certificate that was recognized so. The presented one stays valid until the new
    /// one is used.
    #[must_use]
    pub fn renewed(&self, recognition: CertificateRecognition, new: IssuedCertificate) -> Self {
        let predecessor = match recognition {
            CertificateRecognition::Current => {
                Some(IssuedCertificate { chain: None, ..self.current.clone() })
            }
            _ => self.predecessor.clone(),
        };
        let latest = self.latest_expiry.unwrap_or(self.current.expires_at).max(new.expires_at);
        Self { key: self.key.clone(), current: new, predecessor, latest_expiry: Some(latest) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(minute)
    }

    fn presented(serial: &str, begins: i64) -> PresentedCertificate {
        PresentedCertificate {
            key: KeyHash("k".to_owned()),
            serial: serial.to_owned(),
            expires_at: at(begins + 1000),
        }
    }

    fn issued(serial: &str, at_minute: i64) -> IssuedCertificate {
        ProxyCredentials::bound_by(&presented(serial, at_minute), at(at_minute)).current
    }

    #[test]
    fn predecessor_counts_until_the_overlap_after_first_use_of_its_successor() {
        let first = ProxyCredentials::bound_by(&presented("1", 0), at(0));
        let mut second = first.renewed(CertificateRecognition::Current, issued("2", 500));
        let of = |credentials: &ProxyCredentials, serial, begins, minute| {
            credentials.recognize(&presented(serial, begins), at(minute))
        };
        assert_eq!(of(&second, "2", 500, 500), CertificateRecognition::Current);
        assert_eq!(of(&second, "1", 0, 999), CertificateRecognition::Predecessor, "2 is unused");
        second.current.first_used_at = Some(at(510));
        assert_eq!(of(&second, "1", 0, 520), CertificateRecognition::Predecessor);
        assert_eq!(of(&second, "1", 0, 521), CertificateRecognition::Older);
        let third = second.renewed(CertificateRecognition::Current, issued("3", 900));
        assert_eq!(of(&third, "1", 0, 900), CertificateRecognition::Older);
        assert_eq!(of(&third, "2", 500, 900), CertificateRecognition::Predecessor);
    }

    #[test]
    fn lost_renewal_yields_the_same_certificate_again() {
        let first = ProxyCredentials::bound_by(&presented("1", 0), at(0));
        assert_eq!(first.issued_before(CertificateRecognition::Current, at(1)), None);
        let mut lost = first.renewed(CertificateRecognition::Current, issued("2", 500));
        let again = lost.issued_before(CertificateRecognition::Predecessor, at(501)).unwrap();
        assert_eq!(again.serial, "2");
        lost.current.first_used_at = Some(at(501));
        assert_eq!(lost.issued_before(CertificateRecognition::Predecessor, at(502)), None);
    }

    #[test]
    fn certificate_of_a_clock_that_was_ahead_is_not_newer_than_the_state() {
        let first = ProxyCredentials::bound_by(&presented("1", 0), at(0));
        let ahead = first.renewed(CertificateRecognition::Current, issued("2", 9000));
        let next = ahead.renewed(CertificateRecognition::Current, issued("3", 500));
        let last = next.renewed(CertificateRecognition::Current, issued("4", 900));
        let recognition = last.recognize(&presented("2", 9000), at(901));
        assert_eq!(recognition, CertificateRecognition::Older);
    }

    #[test]
    fn other_key_and_newer_certificate_are_recognized() {
        let credentials = ProxyCredentials::bound_by(&presented("1", 0), at(0));
        assert_eq!(credentials.recognize(&presented("9", 1), at(2)), CertificateRecognition::Newer);
        let other = PresentedCertificate { key: KeyHash("x".to_owned()), ..presented("1", 0) };
        assert_eq!(credentials.recognize(&other, at(2)), CertificateRecognition::OtherKey);
    }
}
