//! The settings of a machine, `agent.toml`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::SignedDuration;
use serde::{Deserialize, Deserializer};

/// The settings file, unless another one is named.
pub const AGENT_SETTINGS: &str = "/etc/ironmesh/agent.toml";

/// The settings of a machine.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentSettings {
    /// The folder of the proxy. A relative path is below the folder of the file.
    pub folder: PathBuf,
    /// How Envoy is run.
    #[serde(default)]
    pub envoy: EnvoySection,
}

/// The section `[envoy]`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EnvoySection {
    /// Envoy: a path, or a name in `PATH`.
    pub binary: PathBuf,
    /// Envoy's log level.
    pub log_level: String,
    /// The number of Envoy's worker threads; by default that of cores.
    pub concurrency: Option<u32>,
    /// How long HTTP connections of an old epoch or a removed listener are drained.
    #[serde(deserialize_with = "duration")]
    pub drain_time: Duration,
    /// How long an old epoch lives after a hot restart.
    #[serde(deserialize_with = "duration")]
    pub parent_shutdown_time: Duration,
    /// The shortest drain before a stop.
    #[serde(deserialize_with = "duration")]
    pub drain_minimum: Duration,
    /// The longest drain before a stop.
    #[serde(deserialize_with = "duration")]
    pub drain_maximum: Duration,
}

/// The settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AgentSettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings of the agent: set `--config` to the path of `agent.toml`")]
    Read(#[source] std::io::Error),
    /// A key or a value is invalid.
    #[error("settings `{}` are invalid: {problem}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The problem, with line and column.
        problem: String,
    },
}

impl Default for EnvoySection {
    fn default() -> Self {
        Self {
            binary: "envoy".into(),
            log_level: "warning".to_owned(),
            concurrency: None,
            drain_time: Duration::from_secs(30),
            parent_shutdown_time: Duration::from_secs(60),
            drain_minimum: Duration::from_secs(5),
            drain_maximum: Duration::from_secs(60),
        }
    }
}

impl AgentSettings {
    /// Reads the settings file.
    pub fn load(path: &Path) -> Result<Self, AgentSettingsError> {
        let text = fs_err::read_to_string(path).map_err(AgentSettingsError::Read)?;
        let invalid =
            |problem: String| AgentSettingsError::Invalid { path: path.to_owned(), problem };
        let mut settings: Self =
            toml::from_str(&text).map_err(|error| invalid(error.to_string()))?;
        settings.envoy.check().map_err(|problem| invalid(problem.to_owned()))?;
        let below = std::path::absolute(path).map_err(AgentSettingsError::Read)?;
        if let Some(folder) = below.parent() {
            settings.folder = folder.join(settings.folder);
        }
        Ok(settings)
    }
}

impl EnvoySection {
    fn check(&self) -> Result<(), &'static str> {
        if self.parent_shutdown_time <= self.drain_time {
            return Err("`parent_shutdown_time` must be longer than `drain_time`");
        }
        if self.drain_minimum > self.drain_maximum {
            return Err("`drain_minimum` must not be longer than `drain_maximum`");
        }
        Ok(())
    }
}

/// Reads a duration such as `30s`. Envoy counts whole seconds.
fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let duration = SignedDuration::deserialize(deserializer)?;
    let duration = Duration::try_from(duration).map_err(serde::de::Error::custom)?;
    if duration.subsec_nanos() == 0 && duration <= Duration::from_secs(24 * 60 * 60) {
        return Ok(duration);
    }
    Err(serde::de::Error::custom("write whole seconds, up to a day, as in `30s`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(text: &str) -> Result<AgentSettings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("agent.toml");
        fs_err::write(&path, text).unwrap();
        let mut settings = AgentSettings::load(&path).map_err(|error| error.to_string())?;
        settings.folder = settings.folder.strip_prefix(folder.path()).unwrap().to_owned();
        Ok(settings)
    }

    #[test]
    fn settings_have_defaults_and_relative_paths() {
        let settings = load("folder = \"proxy\"").unwrap();
        let folder = "proxy".into();
        assert_eq!(settings, AgentSettings { folder, envoy: EnvoySection::default() });
        let envoy =
            load("folder = \"p\"\n[envoy]\ndrain_maximum = \"2m\"\nconcurrency = 2").unwrap();
        assert_eq!(envoy.envoy.drain_maximum, Duration::from_secs(120));
        assert_eq!(envoy.envoy.concurrency, Some(2));
    }

    #[test]
    fn invalid_settings_are_rejected_with_line_and_column() {
        let unknown = load("folder = \"p\"\n[envoy]\nbinery = \"e\"").unwrap_err();
        assert!(unknown.contains("line 3, column 1") && unknown.contains("binery"), "{unknown}");
        let fraction = load("folder = \"p\"\n[envoy]\ndrain_time = \"1500ms\"").unwrap_err();
        assert!(fraction.contains("line 3") && fraction.contains("whole seconds"), "{fraction}");
        let order = load("folder = \"p\"\n[envoy]\nparent_shutdown_time = \"30s\"").unwrap_err();
        assert!(order.contains("longer than `drain_time`"), "{order}");
        assert!(load("").unwrap_err().contains("folder"));
    }
}
