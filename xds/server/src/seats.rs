//! Seats for connections: so many are there for all, and so many for each certificate.

use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::sync::Arc;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;

use crate::limits::Limits;

#[derive(Debug)]
pub(crate) struct Seats {
    limits: Limits,
    hasher: RandomState,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    all: usize,
    /// By the hash of a certificate, whose key is ours alone: nobody can look for two that share a seat.
    by_certificate: BTreeMap<u64, usize>,
}

/// What the one who shows a certificate may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Have streams.
    Granted,
    /// Be told why it may have none.
    TooMany,
    /// Nothing: too many with this certificate are being told already.
    FarTooMany,
}

impl Seats {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, hasher: RandomState::new(), taken: Mutex::default() })
    }

    /// A seat for a connection, if there is one.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Seat> {
        let mut taken = self.taken.lock();
        if taken.all >= self.limits.connections {
            return None;
        }
        taken.all += 1;
        Some(Seat { seats: Arc::clone(self), certificate: None })
    }
}

/// A seat of a connection, for as long as this is there.
#[derive(Debug)]
pub(crate) struct Seat {
    seats: Arc<Seats>,
    certificate: Option<u64>,
}

impl Seat {
    /// Says whose seat it is.
    pub(crate) fn claim(&mut self, certificate: &CertificateDer<'_>) -> Claim {
        let certificate = self.seats.hasher.hash_one(certificate.as_ref());
        let most = self.seats.limits.connections_per_certificate;
        let mut taken = self.seats.taken.lock();
        let count = taken.by_certificate.entry(certificate).or_default();
        let claim = match *count {
            count if count < most => Claim::Granted,
            count if count < 2 * most => Claim::TooMany,
            _ => return Claim::FarTooMany,
        };
        *count += 1;
        self.certificate = Some(certificate);
        claim
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock();
        taken.all = taken.all.saturating_sub(1);
        let Some(certificate) = self.certificate else { return };
        if let Some(count) = taken.by_certificate.get_mut(&certificate) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.by_certificate.remove(&certificate);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_for_all_and_for_each_certificate_and_come_back() {
        let limits = Limits { connections: 7, connections_per_certificate: 2, ..Limits::default() };
        let seats = Seats::new(limits);
        let one = CertificateDer::from(vec![1]);
        let sit = |certificate: &CertificateDer<'_>| {
            let mut seat = seats.take().unwrap();
            (seat.claim(certificate), seat)
        };
        let mut taken: Vec<_> = (0..4).map(|_| sit(&one)).collect();
        let claims: Vec<_> = taken.iter().map(|(claim, _)| *claim).collect();
        assert_eq!(claims, [Claim::Granted, Claim::Granted, Claim::TooMany, Claim::TooMany]);
        assert_eq!(sit(&one).0, Claim::FarTooMany);
        assert_eq!(sit(&CertificateDer::from(vec![2])).0, Claim::Granted);
        let others: Vec<_> = (0..3).map(|_| seats.take().unwrap()).collect();
        assert!(seats.take().is_none());
        taken.clear();
        drop(others);
        assert_eq!(sit(&one).0, Claim::Granted);
        assert_eq!(seats.taken.lock().by_certificate, BTreeMap::new());
        assert_eq!(seats.taken.lock().all, 0);
    }
}
