//! Versions of Envoy, as `envoy --version` prints them.

use std::fmt;
use std::str::FromStr;

/// The version of an Envoy release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct EnvoyRelease {
    /// The major version.
    pub major: u32,
    /// The minor version.
    pub minor: u32,
    /// The patch.
    pub patch: u32,
}

/// The text is no version of the form `1.40.0`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no version such as `1.40.0`")]
pub struct MalformedRelease(String);

impl fmt::Display for EnvoyRelease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, patch } = self;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl FromStr for EnvoyRelease {
    type Err = MalformedRelease;

    fn from_str(text: &str) -> Result<Self, MalformedRelease> {
        let malformed = || MalformedRelease(text.to_owned());
        // Builds of a developer have a suffix: `1.41.0-dev`.
        let numbers = text.split('-').next().unwrap_or_default();
        let mut numbers = numbers.split('.').map(str::parse);
        let mut next = || numbers.next().and_then(Result::ok).ok_or_else(malformed);
        let release = Self { major: next()?, minor: next()?, patch: next()? };
        if numbers.next().is_some() { Err(malformed()) } else { Ok(release) }
    }
}

impl EnvoyRelease {
    /// The version in Envoy's long form, `HASH/1.40.0/Clean/RELEASE/BoringSSL`.
    pub(crate) fn in_build(build: &str) -> Option<Self> {
        let mut parts = build.trim().split('/');
        let hash = parts.next().filter(|hash| hash.bytes().all(|b| b.is_ascii_alphanumeric()))?;
        let release = parts.next()?.parse().ok()?;
        // Commit, version, state of the source, kind of build, TLS library.
        (!hash.is_empty() && parts.count() >= 2).then_some(release)
    }

    /// The version in the output of `envoy --version`; `None` if it is that of a different program.
    pub(crate) fn in_output(output: &str) -> Option<Self> {
        output.lines().find_map(|line| Self::in_build(line.split_once(" version: ")?.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_envoys_output_only() {
        let read =
            |output: &str| EnvoyRelease::in_output(output).map(|version| version.to_string());
        let hash = "9e5580933739775e8bce696a57a2e1bc99368f23";
        let of = |version| format!("\n/usr/bin/envoy  version: {hash}/{version}\n\n");
        assert_eq!(read(&of("1.40.0/Clean/RELEASE/BoringSSL")).as_deref(), Some("1.40.0"));
        assert_eq!(read(&of("1.41.0-dev/Modified/DEBUG/BoringSSL")).as_deref(), Some("1.41.0"));
        for other in ["", "bash, version 5.2.15", "nginx version: nginx/1.22.1"] {
            assert_eq!(read(other), None, "{other}");
        }
        assert_eq!(read(&of("1.40/Clean/RELEASE/BoringSSL")), None);
    }

    #[test]
    fn versions_are_ordered_by_number() {
        let version = |text: &str| text.parse::<EnvoyRelease>().unwrap();
        assert!(version("1.9.10") < version("1.39.0") && version("1.39.0") < version("1.40.0"));
        for text in ["", "1", "1.2", "1.2.3.4", "1.2.x", "v1.2.3"] {
            assert!(text.parse::<EnvoyRelease>().is_err(), "{text}");
        }
    }
}
