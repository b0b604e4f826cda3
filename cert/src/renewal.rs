//! When a certificate is due for renewal, by clocks that may be wrong.
//!
//! Decides only; issues nothing and reads no clock.

use std::time::Duration;

use jiff::Timestamp;

use crate::authority::Authority;
use crate::validity::BACKDATE;

/// What the caller's clocks show.
#[derive(Debug, Clone, Copy)]
pub struct ClockReading {
    /// The wall clock.
    pub now: Timestamp,
    /// How long the wall clock has run without a jump, by a clock that nobody sets.
    pub steady_for: Duration,
}

/// The times that decide when a certificate is renewed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Renewal {
    /// When it was issued, by the clock of that time.
    pub issued_at: Timestamp,
    /// From when on it is valid.
    pub not_before: Timestamp,
    /// When two thirds of its life are over.
    pub renew_at: Timestamp,
    /// How long the wall clock must run steadily before a certificate "of the future" is replaced.
    pub patience: Duration,
}

impl Renewal {
    /// Whether a new certificate of `authority` should replace this one.
    ///
    /// Both bounds count. A certificate whose issue date is in the future was issued by a clock that
    /// was ahead, unless today's clock is behind; nobody can tell which. So it stays at first: peers
    /// accept it in both cases, whereas a certificate that a slow clock issues may have expired for
    /// them. It is replaced at once only where peers reject it and would accept a new one, and
    /// otherwise after `patience` (a third of its life, which every certificate has left when a
    /// clock jumps): longer it would not hold in the second case.
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
