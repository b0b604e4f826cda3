//! Which lines a log has: a level, and levels of single targets.
//!
//! This module owns the form, which the settings, the API and the command line share. It never filters anything.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The directives of a log, as text: a level, and levels of targets, separated by commas. Targets without a level of their
/// own have the level; it is `info` if it is omitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogDirectives(Box<str>);

/// The levels, from the fewest lines to the most.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// The level of targets for which the directives set none.
const DEFAULT_LEVEL: &str = "info";

impl LogDirectives {
    /// The most bytes of the text.
    pub const MAX_BYTES: usize = 500;

    /// The directives as text: the level first, then the targets as they were given.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether they include lines of libraries at the level `trace`: these may have the content of requests, such as tokens.
    pub fn traces_libraries(&self) -> bool {
        self.0.split(',').any(|part| match part.split_once('=') {
            None => part == "trace",
            // A target stands for all that begin with it.
            Some((target, level)) => level == "trace" && !target.starts_with(OWN_TARGETS),
        })
    }
}

impl Default for LogDirectives {
    fn default() -> Self {
        Self(DEFAULT_LEVEL.into())
    }
}

/// Why a text has no directives.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{problem}; write a level (error, warn, info, debug or trace), or levels of targets too, as `info,ironmesh_xds_server=debug`"
)]
pub struct InvalidLogDirectives {
    problem: String,
}

/// What the targets of Ironmesh begin with.
const OWN_TARGETS: &str = "ironmesh";

impl FromStr for LogDirectives {
    type Err = InvalidLogDirectives;

    fn from_str(text: &str) -> Result<Self, InvalidLogDirectives> {
        let invalid = |problem: String| InvalidLogDirectives { problem };
        if text.len() > Self::MAX_BYTES {
            let problem = format!("the level has more than {} bytes", Self::MAX_BYTES);
            return Err(invalid(problem));
        }
        let (mut level, mut targets) = (None, Vec::new());
        for part in text.split(',').map(str::trim) {
            let Some((target, of_target)) = part.split_once('=') else {
                let named = word(part, &LEVELS);
                let named = named.ok_or_else(|| invalid(format!("`{part}` is no level")))?;
                if level.replace(named).is_some() {
                    return Err(invalid("there are two levels without a target".to_owned()));
                }
                continue;
            };
            let is_in_target =
                |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-');
            if target.is_empty() || !target.bytes().all(is_in_target) {
                return Err(invalid(format!("`{target}` is no target")));
            }
            // (`off` exists for targets only: the log as a whole always has its errors.)
            let named = match of_target {
                "off" => Some("off"),
                _ => word(of_target, &LEVELS),
            };
            let named = named.ok_or_else(|| invalid(format!("`{of_target}` is no level")))?;
            let is_own = target.starts_with(OWN_TARGETS) || OWN_TARGETS.starts_with(target);
            if named == "off" && is_own {
                let problem =
                    format!("`{target}=off` would hide errors of Ironmesh: use `{target}=error`");
                return Err(invalid(problem));
            }
            targets.push(format!(",{target}={named}"));
        }
        Ok(Self(format!("{}{}", level.unwrap_or(DEFAULT_LEVEL), targets.concat()).into()))
    }
}

fn word(text: &str, words: &[&'static str]) -> Option<&'static str> {
    words.iter().find(|word| word.eq_ignore_ascii_case(text)).copied()
}

impl TryFrom<String> for LogDirectives {
    type Error = InvalidLogDirectives;

    fn try_from(text: String) -> Result<Self, InvalidLogDirectives> {
        text.parse()
    }
}

impl From<LogDirectives> for String {
    fn from(directives: LogDirectives) -> Self {
        directives.0.into()
    }
}

impl fmt::Display for LogDirectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directives_have_one_level_and_any_targets() {
        for (text, expected) in [
            ("debug", "debug"),
            (" WARN ", "warn"),
            ("ironmesh_xds_server=debug", "info,ironmesh_xds_server=debug"),
            ("h2=off, trace", "trace,h2=off"),
            ("a::b-c=error,a=info,warn", "warn,a::b-c=error,a=info"),
        ] {
            let parsed: LogDirectives = text.parse().unwrap();
            assert_eq!(parsed.as_str(), expected);
            assert_eq!(parsed.as_str().parse(), Ok(parsed.clone()), "its own text");
        }
        assert_eq!(LogDirectives::default().as_str(), "info");
    }

    #[test]
    fn trace_of_libraries_is_recognized() {
        for (text, expected) in [
            ("trace", true),
            ("TRACE", true),
            ("debug,h2=trace", true),
            ("iron=trace", true),
            ("trace,h2=off", true),
            ("debug", false),
            ("debug,ironmesh=trace", false),
            ("ironmesh_xds_server::service=trace,h2=debug", false),
        ] {
            let directives: LogDirectives = text.parse().unwrap();
            assert_eq!(directives.traces_libraries(), expected, "{text}");
        }
    }

    #[test]
    fn directives_that_hide_errors_or_mean_nothing_are_rejected() {
        let long = "a".repeat(LogDirectives::MAX_BYTES + 1);
        for (text, expected) in [
            ("off", "`off` is no level"),
            ("verbose", "`verbose` is no level"),
            ("", "`` is no level"),
            ("info,debug", "two levels"),
            ("=debug", "`` is no target"),
            ("a b=debug", "`a b` is no target"),
            ("a=loud", "`loud` is no level"),
            ("[span]=debug", "`[span]` is no target"),
            (&long, "more than 500 bytes"),
        ] {
            let error = text.parse::<LogDirectives>().unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("write a level"), "{error}");
        }
    }
}
