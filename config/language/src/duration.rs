//! Durations as people write them: `24h`, `1h 30m`, `20ms`.

use std::ops::RangeInclusive;
use std::time::Duration;

use jiff::{Span, SpanRelativeTo};

use crate::codes;
use crate::table::{FindingReported, Value};

/// Reads a duration within `range`, whose bounds are whole days, minutes, seconds or milliseconds.
pub fn read(
    value: Value<'_>,
    range: &RangeInclusive<Duration>,
) -> Result<Duration, FindingReported> {
    let text = value.string()?;
    let Some(duration) = parse(text) else {
        let message = format!("`{}` must be a duration: `{text}`", value.key());
        let finding = value.error(codes::INVALID_VALUE, message).label("not a duration");
        return Err(value.report(finding.help("write it as in `24h`, `1h 30m` or `20ms`")));
    };
    if range.contains(&duration) {
        return Ok(duration);
    }
    let (low, high) = (duration_text(*range.start()), duration_text(*range.end()));
    let message = format!("`{}` must be from {low} to {high}: `{text}`", value.key());
    Err(value.report(value.error(codes::INVALID_VALUE, message).label("out of range")))
}

fn parse(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    // A day of a certificate is 24 hours, even when the clocks change.
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?;
    Duration::try_from(duration).ok()
}

fn duration_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match (seconds / (24 * 60 * 60), seconds / 60, seconds) {
        (0, 0, 0) if !duration.is_zero() => format!("{}ms", duration.as_millis()),
        (0, 0, seconds) => format!("{seconds}s"),
        (0, minutes, _) => format!("{minutes}m"),
        (days, _, _) => format!("{days}d"),
    }
}
