//! `[log]`: the level and the format of the control plane's log.

use ironmesh_catalog::{InvalidLogDirectives, LogDirectives};
use ironmesh_config_language::codes;
use ironmesh_config_language::table::{FindingReported, Value};

/// Settings of the control plane's log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogSettings {
    /// Which lines it has. The environment variable `RUST_LOG` replaces them.
    pub level: LogDirectives,
    /// Whether each line is a JSON object, also without `--output json`.
    pub is_json: bool,
}

pub(super) fn read(value: Value<'_>) -> Result<LogSettings, FindingReported> {
    let mut table = value.table("`log`")?;
    let level = table.optional("level", |value| {
        value.string()?.parse().map_err(|invalid: InvalidLogDirectives| {
            let message = format!("`level` must be a level of the log: {invalid}");
            value.report(value.error(codes::INVALID_VALUE, message).label("not a level"))
        })
    });
    let format = table.optional("format", |value| {
        value.word("format of the log", &[("text", false), ("json", true)])
    });
    table.finish();
    Ok(LogSettings { level: level?.unwrap_or_default(), is_json: format?.unwrap_or_default() })
}
