//! `[traces]`: where the control plane exports its traces.

use super::servers;
use ironmesh_config_language::codes;
use ironmesh_config_language::table::{FindingReported, Value};

pub(super) fn read(value: Value<'_>) -> Result<String, FindingReported> {
    let mut table = value.table("`traces`")?;
    let endpoint = table.required("endpoint", |value| {
        let text = value.string()?;
        if servers::is_url(text) && !servers::is_plaintext_over_network(&[text.to_owned()]) {
            return Ok(text.to_owned());
        }
        let (message, label, help) = if servers::is_url(text) {
            (
                format!("`endpoint` of another machine must be `https`: `{text}`"),
                "in the clear",
                "let the collector listen with TLS, or run one on this machine: traces name proxies and policy",
            )
        } else {
            (
                format!("`endpoint` must be `https://host:port`: `{text}`"),
                "not `https://host:port`",
                "write the address of OTLP over gRPC, without a path, as in `http://127.0.0.1:4317`",
            )
        };
        Err(value.report(value.error(codes::INVALID_VALUE, message).label(label).help(help)))
    });
    table.finish();
    endpoint
}
