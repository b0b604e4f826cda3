//! Localities: `eu`, `eu/eu-1`, `eu/eu-1/rack-7`.

use ironmesh_catalog::{InvalidName, Locality};

use crate::codes;
use crate::table::{FindingReported, Value};

/// Reads a locality, as far as it is given.
pub(super) fn read(value: Value<'_>) -> Result<Locality, FindingReported> {
    let text = value.string()?;
    text.parse().map_err(|InvalidName { problem, .. }| {
        let message = format!("`{}` {problem}: `{text}`", value.key());
        let finding = value.error(codes::INVALID_VALUE, message).label("not a locality");
        let help = "write a region, a zone in it as in `eu/eu-1`, or a part of that as in `eu/eu-1/rack-7`; a locality includes all localities below it";
        value.report(finding.help(help))
    })
}
