//! `[endpoints]`: how the provider guard works, and how long the start waits for providers.

use std::time::Duration;

use ironmesh_config_language::duration;
use ironmesh_config_language::table::{FindingReported, Value};

/// How the provider guard works, and how long the start waits for providers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndpointsSettings {
    /// The least share of a service's endpoints, from 0 to 1, that a provider must still report for a removal
    /// to take effect at once. With 0, every removal takes effect at once.
    pub keep_share: f64,
    /// How long the guard holds back a larger removal.
    pub grace: Duration,
    /// How long the start waits for providers before it continues with the endpoints that they reported last.
    pub sync_timeout: Duration,
    /// Whether providers may report loopback and link-local addresses; see
    /// [`Settings::allows_local_addresses`](super::Settings::allows_local_addresses).
    pub allow_local_addresses: Option<bool>,
}

impl Default for EndpointsSettings {
    fn default() -> Self {
        Self {
            keep_share: 0.5,
            grace: Duration::from_secs(60),
            sync_timeout: Duration::from_secs(5),
            allow_local_addresses: None,
        }
    }
}

pub(super) fn read(value: Value<'_>) -> Result<EndpointsSettings, FindingReported> {
    let mut table = value.table("`endpoints`")?;
    let at_most = |seconds| Duration::ZERO..=Duration::from_secs(seconds);
    let keep_share = table.optional("keep_share", Value::share);
    let grace = table.optional("grace", |value| duration::read(value, &at_most(24 * 60 * 60)));
    let sync_timeout = table.optional("sync_timeout", |value| duration::read(value, &at_most(600)));
    let allow_local_addresses = table.optional("allow_local_addresses", Value::boolean);
    table.finish();
    let default = EndpointsSettings::default();
    Ok(EndpointsSettings {
        keep_share: keep_share?.unwrap_or(default.keep_share),
        grace: grace?.unwrap_or(default.grace),
        sync_timeout: sync_timeout?.unwrap_or(default.sync_timeout),
        allow_local_addresses: allow_local_addresses?,
    })
}
