//! Mirrors: copies of calls to another service.

use ironmesh_catalog::{Mirror, Name, Percent, ServiceName};

use crate::policy::part::{Reference, ReferenceTarget};
use crate::table::{FindingReported, Value};

/// The default share of mirrored calls: all.
const ALL: Percent = Percent(1_000_000);

/// Reads the service to which calls are mirrored. Its default namespace is `home`, which is `None` if it
/// could not be read.
pub(super) fn read_mirror(
    value: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<Mirror, FindingReported> {
    let mut table = value.table("a mirror")?;
    let service = table.required("service", |value| Ok((value.name()?, value.spot())));
    let namespace = table.optional("namespace", Value::name);
    let percent = table.optional("percent", |value| value.percent().map(Percent));
    table.finish();
    let (name, spot) = service?;
    let namespace = namespace?.or_else(|| home.cloned()).ok_or(FindingReported)?;
    let service = ServiceName::new(namespace, name);
    references.push(Reference {
        referenced: ReferenceTarget::Service(service.clone()),
        spot: spot.clone(),
    });
    Ok(Mirror { service, percent: percent?.unwrap_or(ALL), spot })
}
