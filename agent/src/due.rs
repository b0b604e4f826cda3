//! When the renewal of a certificate is due.

use ironmesh_cert::ENROLLED_PROXY_LIFETIME;
use ironmesh_cert::peer::VerifiedProxy;
use jiff::{SignedDuration, Timestamp};

/// The part of the lifetime after which a renewal is due at the earliest.
const EARLIEST: f64 = 0.5;

/// The length of the interval in which renewals are due, as a part of the lifetime. With a daily timer, a certificate of 30
/// days is renewed before two thirds of its lifetime, after which the control plane warns.
const SPREAD: f64 = 0.13;

/// The number of last hexadecimal digits of the serial that choose the point in the interval.
const DIGITS: usize = 8;

/// The time from which on the certificate is to be renewed: at 50 % to 63 % of its lifetime since `issued_at`. If
/// that is unknown, the lifetime counts as that of an enrollment by a token, the shortest.
///
/// The random serial chooses the point. So all runs of a timer agree, each certificate has its own point, and the
/// machines of a fleet that enrolled together renew at different times.
pub fn due_at(certificate: &VerifiedProxy, issued_at: Option<Timestamp>) -> Timestamp {
    let expires_at = certificate.not_after;
    let issued_at = issued_at.filter(|at| *at < expires_at).unwrap_or_else(|| {
        expires_at.checked_sub(ENROLLED_PROXY_LIFETIME).unwrap_or(Timestamp::UNIX_EPOCH)
    });
    let lifetime = expires_at.duration_since(issued_at);
    let part = EARLIEST + SPREAD * point(&certificate.serial);
    let age = SignedDuration::from_secs_f64((lifetime.as_secs_f64() * part).floor());
    issued_at.checked_add(age).unwrap_or(expires_at)
}

/// The point of a serial in the interval, from 0 to 1.
fn point(serial: &str) -> f64 {
    let last = serial.len().saturating_sub(DIGITS);
    let last = serial.get(last..).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    f64::from(last.unwrap_or_default()) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_of_serials_are_spread_from_zero_to_one() {
        assert!(point("00000000ffffffff00000000") < f64::EPSILON);
        assert!((point("00ffffffff") - 1.0).abs() < f64::EPSILON);
        assert!((point("007fffffff") - 0.5).abs() < 0.001);
        // A serial of another issuer may be short.
        assert!(point("ff") < 0.001 && point("") < f64::EPSILON);
    }
}
