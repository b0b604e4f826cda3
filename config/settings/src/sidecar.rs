//! `[sidecar]`: the sidecar driver of proxies.

use ironmesh_catalog::DriverName;
use ironmesh_config_language::table::{FindingReported, Value};
use ironmesh_sidecar::DRIVERS;

pub(super) fn read(value: Value<'_>) -> Result<DriverName, FindingReported> {
    let mut table = value.table("`sidecar`")?;
    let known: Vec<_> = DRIVERS.names().map(|name| (name, name)).collect();
    let class = table.optional("class", |value| value.word("sidecar class", &known));
    table.finish();
    let name = class?.unwrap_or_default();
    Ok(name.parse().unwrap_or_default())
}
