//! The validity of certificates: its beginning and its end.
//!
//! Only this module converts to the clock types of the certificate library.

use std::time::Duration;

use aws_lc_rs::rand;
use jiff::{SignedDuration, Timestamp};
use time::OffsetDateTime;

/// The validity of a certificate, in whole seconds, as certificates have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) issued_at: Timestamp,
    pub(crate) not_before: Timestamp,
    pub(crate) not_after: Timestamp,
}

impl Validity {
    /// The validity from the beginning of the issuer's until `lifetime` after `now`, and never longer than
    /// the issuer's: no peer trusts a certificate whose issuer has expired.
    ///
    /// It does not begin at `now`, which may be wrong: peers with correct clocks would reject a certificate
    /// from a fast clock (docs/decisions/0047).
    pub(crate) fn new(
        now: Timestamp,
        lifetime: Duration,
        issuer: &IssuerSpan,
    ) -> Result<Self, ValidityError> {
        let second = |t: Timestamp| Timestamp::from_second(t.as_second());
        let issued_at = second(now).map_err(|_| ValidityError::OutOfRange)?;
        let lifetime = SignedDuration::try_from(lifetime).map_err(|_| ValidityError::OutOfRange)?;
        let not_before = issued_at.checked_sub(BACKDATE).map_err(|_| ValidityError::OutOfRange)?;
        let not_before = not_before.min(issuer.begins);
        let not_after = issued_at
            .checked_add(lifetime)
            .and_then(second)
            .map_err(|_| ValidityError::OutOfRange)?
            .min(issuer.ends);
        if not_after <= issued_at {
            return Err(ValidityError::Empty);
        }
        Ok(Self { issued_at, not_before, not_after })
    }

    /// The time at which two thirds of its life are over, counted from its issue.
    pub(crate) fn renew_at(&self) -> Timestamp {
        two_thirds(self.issued_at, self.not_after)
    }
}

/// The time for which the issuer of a certificate is valid.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IssuerSpan {
    pub(crate) begins: Timestamp,
    pub(crate) ends: Timestamp,
}

impl IssuerSpan {
    /// The validity of a root, which issues itself: it begins this long before `now`.
    pub(crate) fn for_root(now: Timestamp) -> Self {
        Self { begins: now.saturating_sub(ROOT_BACKDATE).unwrap_or(now), ends: Timestamp::MAX }
    }
}

/// The time at which two thirds of the time between `from` and `to` are over.
pub(crate) fn two_thirds(from: Timestamp, to: Timestamp) -> Timestamp {
    let (from, life) = (from.as_second(), to.as_second() - from.as_second());
    Timestamp::from_second(from + life * 2 / 3).unwrap_or(to)
}

/// The time is out of range.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ValidityError {
    #[error("lifetime is out of range")]
    OutOfRange,
    #[error(
        "certificate would have expired when it is issued: its lifetime or its issuer's is over"
    )]
    Empty,
}

/// `lifetime` plus or minus up to a tenth, so that certificates issued together are not renewed together.
///
/// Uniform, and by a cryptographic generator: replicas that start at once must differ.
pub(crate) fn jittered(lifetime: Duration) -> Result<Duration, aws_lc_rs::error::Unspecified> {
    let mut random = [0; 8];
    rand::fill(&mut random)?;
    Ok(jittered_by(lifetime, u64::from_le_bytes(random)))
}

/// `random` of 2^64 chooses the lifetime in the range.
fn jittered_by(lifetime: Duration, random: u64) -> Duration {
    let tenth = lifetime / 10;
    let range = u64::try_from((tenth * 2).as_millis()).unwrap_or(u64::MAX);
    // The upper half of the product: no division, and no relevant bias.
    let offset = (u128::from(range) * u128::from(random)) >> 64;
    let offset = Duration::from_millis(u64::try_from(offset).unwrap_or(range));
    lifetime.saturating_sub(tenth).saturating_add(offset)
}

/// `time` in the type of the certificate library.
pub(crate) fn to_offset(time: Timestamp) -> Result<OffsetDateTime, time::error::ComponentRange> {
    OffsetDateTime::from_unix_timestamp(time.as_second())
}

/// How far certificates begin at least before they are issued: the clocks of machines differ.
pub(crate) const BACKDATE: SignedDuration = SignedDuration::from_mins(5);

/// How far a root, and so all that it signs, begins before it is created: the clock of the first start may be
/// ahead by so much. (A clock in local time is hours ahead, one of a restored machine days.)
const ROOT_BACKDATE: SignedDuration = SignedDuration::from_hours(365 * 24);

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    #[test]
    fn jitter_spans_a_tenth_to_either_side_and_no_more() {
        assert_eq!(jittered_by(DAY, 0), DAY.mul_f64(0.9));
        let longest = jittered_by(DAY, u64::MAX);
        assert!(longest <= DAY.mul_f64(1.1) && longest > DAY.mul_f64(1.0999), "{longest:?}");
        let half = jittered_by(DAY, 1 << 63);
        assert!(half.abs_diff(DAY) < Duration::from_secs(5), "{half:?}");
        // Neither the shortest nor a very long lifetime overflows.
        assert_eq!(jittered_by(Duration::ZERO, u64::MAX), Duration::ZERO);
        assert_eq!(jittered_by(Duration::from_millis(100), 1 << 63), Duration::from_millis(100));
        let century = DAY * 36_525;
        assert!(jittered_by(century, u64::MAX) <= century.mul_f64(1.1));
        assert!(jittered_by(Duration::MAX, u64::MAX) > Duration::MAX / 2);
    }

    #[test]
    fn certificate_validity_stays_within_that_of_its_issuer() {
        let now: Timestamp = "2026-11-21T07:00:00.9Z".parse().unwrap();
        let root = IssuerSpan::for_root(now);
        assert_eq!(root.begins.to_string(), "2025-11-21T07:00:00.9Z");
        let begins: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let until = |ends| IssuerSpan { begins, ends };
        let validity = Validity::new(now, DAY, &until(Timestamp::MAX)).unwrap();
        assert_eq!(validity.not_before, begins);
        assert_eq!(validity.not_after.to_string(), "2026-11-22T07:00:00Z");
        assert_eq!(validity.renew_at().to_string(), "2026-11-21T23:00:00Z");

        let issuer_ends: Timestamp = "2026-11-21T10:00:00Z".parse().unwrap();
        let validity = Validity::new(now, DAY, &until(issuer_ends)).unwrap();
        assert_eq!(validity.not_after, issuer_ends);
        assert_eq!(validity.renew_at().to_string(), "2026-11-21T09:00:00Z");

        // For a clock behind the issuer's, the beginning is a little before now.
        let early = begins - SignedDuration::from_hours(1);
        let validity = Validity::new(early, DAY, &until(Timestamp::MAX)).unwrap();
        assert_eq!(validity.not_before, early - BACKDATE);

        assert!(Validity::new(issuer_ends, DAY, &until(issuer_ends)).is_err());
        assert!(Validity::new(now, Duration::ZERO, &until(Timestamp::MAX)).is_err());
        assert!(Validity::new(now, Duration::MAX, &until(Timestamp::MAX)).is_err());
    }
}
