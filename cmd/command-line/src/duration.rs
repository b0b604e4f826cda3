//! Durations on the command line: `90s`, `1h30m`, `7d`.

use std::time::Duration;

use ironmesh_api::{MAX_CREDENTIAL_LIFETIME, MAX_LOG_LEVEL_TIME, MAX_TOKEN_TTL};
use ironmesh_catalog::Silence;
use jiff::{Span, SpanRelativeTo};

/// Parses a duration; none if the text is not one, or is negative. A day has 24 hours, a week 7 days.
pub(crate) fn duration(text: &str) -> Option<Duration> {
    let span: Span = text.parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
}

/// Parses the value of `--timeout`.
pub(crate) fn time_limit(text: &str) -> Result<Duration, &'static str> {
    duration(text).ok_or("write a time as `60s` or `5m`")
}

/// Parses the lifetime of a token.
pub(crate) fn token_lifetime(text: &str) -> Result<Duration, String> {
    lifetime(text, MAX_TOKEN_TTL)
}

/// Parses the lifetime of a credential of an operator.
pub(crate) fn credential_lifetime(text: &str) -> Result<Duration, String> {
    lifetime(text, MAX_CREDENTIAL_LIFETIME)
}

/// Parses a lifetime of at most so many seconds.
fn lifetime(text: &str, most: u64) -> Result<Duration, String> {
    let allowed = Duration::from_secs(1)..=Duration::from_secs(most);
    duration(text).filter(|lifetime| allowed.contains(lifetime)).ok_or_else(|| {
        let days = most / 86_400;
        format!("write a time from 1 second to {days} days, as `90s`, `15m`, `12h` or `{days}d`")
    })
}

/// Parses the length of a silence.
pub(crate) fn silence_length(text: &str) -> Result<Duration, String> {
    let most = Duration::try_from(Silence::MAX_LENGTH).unwrap_or_default();
    let allowed = Duration::from_secs(1)..=most;
    duration(text).filter(|length| allowed.contains(length)).ok_or_else(|| {
        let days = most.as_secs() / 86_400;
        format!("write a time from 1 second to {days} days, as `90s`, `2h` or `{days}d`")
    })
}

/// Parses how long a changed level of the log lasts.
pub(crate) fn log_level_length(text: &str) -> Result<Duration, String> {
    let allowed = Duration::from_secs(1)..=Duration::from_secs(MAX_LOG_LEVEL_TIME);
    duration(text).filter(|length| allowed.contains(length)).ok_or_else(|| {
        let hours = MAX_LOG_LEVEL_TIME / 3_600;
        format!("write a time from 1 second to {hours} hours, as `90s`, `10m` or `{hours}h`")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn duration_units_reach_from_seconds_to_weeks() {
        let seconds = |text| duration(text).map(|duration| duration.as_secs());
        for (text, expected) in
            [("90s", 90), ("1h30m", 5_400), ("12h", 43_200), ("7d", 604_800), ("1w", 604_800)]
        {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        for invalid in ["", "7", "-5m", "1month", "soon"] {
            assert_eq!(seconds(invalid), None, "{invalid}");
        }
    }

    #[test]
    fn silence_of_at_most_90_days_is_accepted() {
        assert_eq!(silence_length("90d"), Ok(Duration::from_secs(90 * 86_400)));
        for invalid in ["91d", "0s", "-2h", "soon"] {
            let error = silence_length(invalid).unwrap_err();
            assert!(error.contains("from 1 second to 90 days"), "{error}");
        }
    }

    #[test]
    fn log_level_of_at_most_a_day_is_accepted() {
        assert_eq!(log_level_length("24h"), Ok(Duration::from_secs(86_400)));
        for invalid in ["25h", "0s", "-2h", "soon"] {
            let error = log_level_length(invalid).unwrap_err();
            assert!(error.contains("from 1 second to 24 hours"), "{error}");
        }
    }

    #[test]
    fn token_lifetime_of_at_most_seven_days_is_accepted() {
        assert_eq!(token_lifetime("7d"), Ok(Duration::from_secs(MAX_TOKEN_TTL)));
        for invalid in ["8d", "169h", "0s", "500ms", "-1h", "7"] {
            let error = token_lifetime(invalid).unwrap_err();
            assert!(error.contains("from 1 second to 7 days") && error.contains("`7d`"), "{error}");
        }
    }
}
