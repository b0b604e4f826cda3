//! The nonces of challenges: each is valid once, for 60 seconds.
//!
//! A nonce authenticates itself, so issuing one stores nothing: a flood of challenges does not displace those of
//! others. Only nonces that come back are stored, until they expire.
//!
//! A control plane rejects the nonces of all others, so that each is used once in the whole mesh: what they share would be
//! a write of the store for each request of a client that has proved nothing yet. A client sends its request to where its
//! challenge came from, and requests a new one if that is gone.

use std::collections::BTreeSet;
use std::time::Duration;

use aws_lc_rs::{error, hmac, rand};
use data_encoding::HEXLOWER;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The lifetime of a nonce.
const LIFETIME: Duration = Duration::from_secs(60);

/// The most used nonces that are stored. Each takes a handshake, and 60 seconds have fewer.
const MAX_USED: usize = 16_384;

/// The expiry in milliseconds and 16 random bytes, then the tag.
const CONTENT: usize = 24;
const LENGTH: usize = CONTENT + 32;

/// The nonces of one replica since its start.
pub(super) struct Nonces {
    key: Option<hmac::Key>,
    started: Instant,
    used: Mutex<BTreeSet<[u8; CONTENT]>>,
}

/// A nonce that does not prove that its sender has it from a recent challenge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NonceError {
    /// It is unknown, expired or used.
    Rejected,
    /// Too many nonces are stored.
    Full,
}

impl Nonces {
    pub(super) fn new() -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &rand::SystemRandom::new()).ok();
        Self { key, started: Instant::now(), used: Mutex::default() }
    }

    /// A new nonce.
    pub(super) fn issue(&self) -> Result<String, error::Unspecified> {
        let key = self.key.as_ref().ok_or(error::Unspecified)?;
        let mut random = [0; CONTENT - 8];
        rand::fill(&mut random)?;
        let mut nonce = (self.now() + millis(LIFETIME)).to_be_bytes().to_vec();
        nonce.extend_from_slice(&random);
        let tag = hmac::sign(key, &nonce);
        nonce.extend_from_slice(tag.as_ref());
        Ok(HEXLOWER.encode(&nonce))
    }

    /// Uses a nonce up.
    pub(super) fn redeem(&self, nonce: &str) -> Result<(), NonceError> {
        let key = self.key.as_ref().ok_or(NonceError::Rejected)?;
        let is_plausible = nonce.len() == 2 * LENGTH;
        let nonce = HEXLOWER.decode(nonce.as_bytes()).ok().filter(|_| is_plausible);
        let nonce = nonce.ok_or(NonceError::Rejected)?;
        let (content, tag) = nonce.split_first_chunk::<CONTENT>().ok_or(NonceError::Rejected)?;
        hmac::verify(key, content, tag).map_err(|_| NonceError::Rejected)?;
        let (expiry, _) = content.split_first_chunk::<8>().ok_or(NonceError::Rejected)?;
        let now = self.now();
        if u64::from_be_bytes(*expiry) <= now {
            return Err(NonceError::Rejected);
        }
        // Stored nonces begin with their expiry, too.
        let mut begin = [0; CONTENT];
        begin.iter_mut().zip((now + 1).to_be_bytes()).for_each(|(byte, of_now)| *byte = of_now);
        let mut used = self.used.lock();
        *used = used.split_off(&begin);
        if used.len() >= MAX_USED {
            return Err(NonceError::Full);
        }
        if used.insert(*content) { Ok(()) } else { Err(NonceError::Rejected) }
    }

    /// Milliseconds since the start.
    fn now(&self) -> u64 {
        millis(self.started.elapsed())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nonce_is_valid_once_and_for_a_minute() {
        let nonces = Nonces::new();
        let (one, other) = (nonces.issue().unwrap(), nonces.issue().unwrap());
        assert_eq!(nonces.redeem(&one), Ok(()));
        assert_eq!(nonces.redeem(&one), Err(NonceError::Rejected));
        tokio::time::advance(Duration::from_millis(59_999)).await;
        let late = nonces.issue().unwrap();
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(nonces.redeem(&other), Err(NonceError::Rejected));
        assert_eq!(nonces.redeem(&late), Ok(()));
        assert_eq!(nonces.used.lock().len(), 1, "expired ones are forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn forged_nonce_is_rejected() {
        let nonces = Nonces::new();
        let nonce = nonces.issue().unwrap();
        let later = format!("{}{}", "f".repeat(16), &nonce[16..]);
        for bad in ["", "00", &nonce[1..], &later, &Nonces::new().issue().unwrap()] {
            assert_eq!(nonces.redeem(bad), Err(NonceError::Rejected), "{bad}");
        }
        assert!(nonces.used.lock().is_empty());
    }
}
