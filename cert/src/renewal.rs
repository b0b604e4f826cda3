//! The renewal of certificates: decides when one is due, with clocks that may be wrong.
//!
//! It only decides; it issues nothing and reads no clock.

use std::time::Duration;

use jiff::Timestamp;

use crate::authority::Authority;
use crate::validity::BACKDATE;

/// A reading of the caller's clocks.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// The wall clock.
    pub now: Timestamp,
    /// The time for which the wall clock has run without a jump, by the monotonic clock.
    pub steady_for: Duration,
}

/// The times that decide when a certificate is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// The time of its issue, by the clock of that time.
    pub issued_at: Timestamp,
    /// The beginning of its validity.
    pub not_before: Timestamp,
    /// The time at which two thirds of its life are over.
    pub renew_at: Timestamp,
    /// How long the wall clock must run steadily before a certificate "of the future" is replaced.
    pub patience: Duration,
}

impl Renewal {
    /// Whether a new certificate of `authority` should replace this one.
    ///
    /// Both bounds count. A certificate with an issue date in the future was issued by a clock that was
    /// ahead, or today's clock is behind; the control plane cannot know which. So the certificate stays at
    /// first: peers accept it in both cases, whereas a certificate from a slow clock may have expired for
    /// them.
    ///
    /// It is replaced at once only if peers reject it and would accept a new one. Otherwise it is replaced
    /// after `patience`: a third of its life, which every certificate has left when a clock jumps. In the
    /// second case it would not be valid for longer.
    pub fn is_due(&self, authority: &Authority, clock: ClockReading) -> bool {
        let ClockReading { now, steady_for } = clock;
        let is_issued_in_future = self.is_issued_after(now);
        let begins_too_late = now < self.not_before && authority.begins() < self.not_before;
        now >= self.renew_at
            || begins_too_late
            || is_issued_in_future && steady_for >= self.patience
    }

    /// Whether the clock that issued it was ahead of `now` by more than clocks usually differ.
    pub fn is_issued_after(&self, now: Timestamp) -> bool {
        self.issued_at.duration_since(now) > BACKDATE
    }
}
