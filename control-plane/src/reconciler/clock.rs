//! The wall clock, compared with the steady clock, which cannot be set: jumps, and how long it has run without one.
//!
//! It decides nothing about certificates, and it cannot know which of two clocks is right.

use std::fmt;
use std::time::Duration;

use ironmesh_catalog::codes::{CLOCK_DIFFERS, CLOCK_JUMPED, ISSUED_IN_FUTURE};
use ironmesh_catalog::{Finding, Provider};
use ironmesh_cert::ClockReading;
use ironmesh_providers::ClockDifference;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Reconciler;
use super::endpoints::current_time;

/// How often the wall clock is compared with the steady clock.
pub(super) const COMPARE: Duration = Duration::from_secs(1);

/// The smallest difference between two comparisons that is a jump. Time servers slew clocks, and a busy machine may
/// stop this process between reading the two clocks.
const JUMP: SignedDuration = SignedDuration::from_secs(5);

/// How long a jump is reported, and no proxy is retired because of the clock.
const JUMP_REPORT_TIME: Duration = Duration::from_secs(60 * 60);

/// A jump of the wall clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Jump {
    /// The time that the clock showed after it.
    at: Timestamp,
    /// The length of the jump; negative if the clock was set back.
    by: SignedDuration,
}

impl fmt::Display for Jump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let direction = if self.by.is_negative() { "back" } else { "ahead" };
        // To the nearest second: the comparison itself takes some milliseconds.
        let by = self.by.abs().saturating_add(SignedDuration::from_millis(500));
        let by = SignedDuration::from_secs(by.as_secs());
        write!(f, "jumped {direction} by {by:#}, to {:.0}", self.at)
    }
}

/// The comparison of the wall clock with the steady clock.
#[derive(Debug)]
pub(super) struct ClockWatch {
    /// The last comparison.
    compared: (Timestamp, Instant),
    /// Since when the wall clock has run without a jump.
    steady_since: Instant,
    last_jump: Option<Jump>,
}

impl ClockWatch {
    pub(super) fn new(now: Timestamp, instant: Instant) -> Self {
        Self { compared: (now, instant), steady_since: instant, last_jump: None }
    }

    /// Compares the clocks, and returns a jump since the last comparison.
    pub(super) fn compare(&mut self, now: Timestamp, instant: Instant) -> Option<Jump> {
        let (wall, steady) = std::mem::replace(&mut self.compared, (now, instant));
        let passed = SignedDuration::try_from(instant - steady).unwrap_or(SignedDuration::MAX);
        let by = now.duration_since(wall).saturating_sub(passed);
        if by.abs() < JUMP {
            return None;
        }
        self.steady_since = instant;
        self.last_jump = Some(Jump { at: now, by });
        self.last_jump
    }

    pub(super) fn reading(&self, now: Timestamp, instant: Instant) -> ClockReading {
        ClockReading { now, steady_for: instant.saturating_duration_since(self.steady_since) }
    }

    /// The last jump, unless the clock has run without one for long enough to be reliable.
    pub(super) fn recent_jump(&self, instant: Instant) -> Option<Jump> {
        let is_recent = instant.saturating_duration_since(self.steady_since) < JUMP_REPORT_TIME;
        self.last_jump.filter(|_| is_recent)
    }
}

impl Reconciler {
    /// Compares the clocks. After a jump everything that depends on the time is due. Returns whether there was one.
    pub(super) fn compare_clocks(&mut self) -> bool {
        let instant = Instant::now();
        let Some(jump) = self.clock.compare(Timestamp::now(), instant) else { return false };
        tracing::warn!(%jump, "the wall clock jumped: certificates are checked now");
        self.next_tick = instant;
        true
    }

    /// Compares the wall clock with those of providers. A difference that changes a little keeps its first value, so
    /// that it is reported once.
    pub(super) fn compare_provider_clocks(&mut self, now: Timestamp) {
        let known = std::mem::take(&mut self.clock_differences);
        let seen = self.endpoints.clock_differences(current_time(now));
        let stays = |old: &ClockDifference, new: &ClockDifference| {
            old.peer == new.peer && old.ahead.saturating_sub(new.ahead).abs() < SKEW / 2
        };
        let kept = |(provider, new): (Provider, ClockDifference)| {
            let old = known.get(&provider).filter(|old| stays(old, &new)).cloned();
            (provider, old.unwrap_or(new))
        };
        self.clock_differences = seen.into_iter().map(kept).collect();
    }

    /// The findings about the clock.
    pub(super) fn clock_findings(&self, now: Timestamp) -> Vec<Finding> {
        let jump = self.clock.recent_jump(Instant::now()).map(|jump| {
            let message = format!("the clock of the control plane {jump}");
            let help = "nothing that proxies use was withdrawn; check the time service of this machine \
                        (a machine that was suspended shows the same)";
            Finding::warning(CLOCK_JUMPED, None, message).help(help)
        });
        let newest = self.snapshot_builder.newest_issue();
        let ahead = newest.filter(|issued_at| issued_at.duration_since(now) > MAX_ISSUE_LEAD);
        let ahead = ahead.map(|issued_at| {
            let message = format!(
                "certificates in use were issued at {issued_at:.0}, which is in the future: the clock of \
                 the control plane was ahead then, or is behind now"
            );
            let help = "compare the clock with other machines; peers accept these certificates in both \
                        cases, and they are replaced once the clock has run steadily for a third of \
                        their lifetime";
            Finding::warning(ISSUED_IN_FUTURE, None, message).help(help)
        });
        let differs = self.clock_differences.iter().filter(|(_, one)| one.ahead.abs() >= SKEW);
        let differs = differs.map(|(provider, difference)| clock_differs(*provider, difference));
        jump.into_iter().chain(ahead).chain(differs).collect()
    }
}

fn clock_differs(provider: Provider, difference: &ClockDifference) -> Finding {
    let by = SignedDuration::from_mins((difference.ahead.abs().as_secs() + 30) / 60);
    let direction = if difference.ahead.is_negative() { "behind" } else { "ahead of" };
    let message = format!(
        "the clock of the control plane is {by:#} {direction} that of {provider} at `{}`",
        difference.peer
    );
    let help = "compare both with a third machine, and correct the clock that is wrong";
    Finding::warning(CLOCK_DIFFERS, None, message).object(provider).help(help)
}

/// The smallest difference from a provider's clock that is reported.
const SKEW: SignedDuration = SignedDuration::from_mins(1);

/// A certificate issued further in the future than this was issued by a different clock.
const MAX_ISSUE_LEAD: SignedDuration = SignedDuration::from_mins(5);

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn clock_in_step_with_the_steady_clock_reports_no_jump() {
        let (now, instant) = (at("2026-11-21T07:00:00Z"), Instant::now());
        let mut watch = ClockWatch::new(now, instant);
        assert_eq!(watch.compare(now + SECOND, instant + SECOND), None);
        // The process was stopped for an hour, or the clock is slewed.
        let hour = SECOND * 3600;
        assert_eq!(watch.compare(now + hour, instant + hour + SECOND * 4), None);
        assert_eq!(watch.reading(now, instant + hour).steady_for, hour);
        assert_eq!(watch.recent_jump(instant + hour), None);
    }

    #[test]
    fn clock_jump_is_detected_once_and_stays_recent_for_an_hour() {
        let (now, instant) = (at("2026-11-21T07:00:00Z"), Instant::now());
        let mut watch = ClockWatch::new(now, instant);
        let back = watch.compare(at("2026-11-21T06:00:01Z"), instant + SECOND).unwrap();
        assert_eq!(back.to_string(), "jumped back by 1h, to 2026-11-21T06:00:01Z");
        assert_eq!(watch.compare(at("2026-11-21T06:00:02Z"), instant + SECOND * 2), None);
        let ahead = watch.compare(at("2026-11-24T06:00:33Z"), instant + SECOND * 3).unwrap();
        assert_eq!(ahead.to_string(), "jumped ahead by 72h 30s, to 2026-11-24T06:00:33Z");
        assert_eq!(watch.reading(now, instant + SECOND * 5).steady_for, SECOND * 2);
        assert_eq!(watch.recent_jump(instant + SECOND * 5), Some(ahead));
        assert_eq!(watch.recent_jump(instant + SECOND * 3603), None);
    }
}
