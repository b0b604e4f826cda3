//! The version of a sidecar program.

use std::fmt;
use std::str::FromStr;

/// The version of a sidecar program, as `1.40.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProgramVersion {
    /// The first number.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

/// A text that is no version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no version: expected three numbers, as in `1.40.0`")]
pub struct InvalidProgramVersion(String);

/// Parses three numbers; a suffix such as `-dev` is ignored.
impl FromStr for ProgramVersion {
    type Err = InvalidProgramVersion;

    fn from_str(text: &str) -> Result<Self, InvalidProgramVersion> {
        let numbers = text.split_once(['-', '+']).map_or(text, |(numbers, _)| numbers);
        let mut numbers = numbers.split('.').map(|number| number.parse().ok());
        match (numbers.next(), numbers.next(), numbers.next(), numbers.next()) {
            (Some(Some(major)), Some(Some(minor)), Some(Some(patch)), None) => {
                Ok(Self { major, minor, patch })
            }
            _ => Err(InvalidProgramVersion(text.to_owned())),
        }
    }
}

impl fmt::Display for ProgramVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_parsed_and_ordered_by_number() {
        let version = |text: &str| text.parse::<ProgramVersion>().unwrap();
        assert!(version("1.9.9") < version("1.39.0") && version("1.39.0") < version("1.40.0-dev"));
        assert_eq!(version("1.40.2").to_string(), "1.40.2");
        for bad in ["", "1.40", "1.40.0.1", "1.40.x", "v1.40.0"] {
            assert!(bad.parse::<ProgramVersion>().is_err(), "{bad}");
        }
    }
}
