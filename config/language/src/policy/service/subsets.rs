//! `subsets` of a service: named parts of it, selected by labels.

use ironmesh_catalog::{Labels, Name};

use crate::codes;
use crate::policy::labels;
use crate::policy::part::{Id, Part};
use crate::table::{FindingReported, Value};

/// An external service has no proxies with labels.
pub(super) fn reject_subsets(value: Value<'_>) -> FindingReported {
    let finding = value.error(codes::INVALID_VALUE, "an external service has no subsets");
    value.report(finding.label("outside of the mesh").help("define several external services"))
}

/// Reads the subsets of a service of `namespace`, which is `None` if it could not be read. A subset with
/// unreadable labels counts as defined, so that no reference to it is reported as missing.
pub(super) fn read(
    value: Value<'_>,
    namespace: Option<&Name>,
    part: &mut Part,
) -> Vec<(Id, Result<Labels, FindingReported>)> {
    let mut subsets = Vec::new();
    let meaning = "leave `subsets` out where there are none";
    // (The finding of an unreadable subset already rejects the service.)
    let _ = value.at_least_one(meaning, |item| {
        let mut table = item.table("a subset")?;
        let written = table.get("name").and_then(Value::string_if_any);
        let name = table.required("name", |value| Ok((value.name()?, value.spot())));
        let labels = table.required("labels", |value| {
            labels::read(value, "a subset is those endpoints that have its labels")
        });
        table.finish();
        match (namespace, name) {
            (Some(namespace), Ok((name, spot))) => {
                let namespace = namespace.clone();
                subsets.push((Id { namespace, name, spot }, labels));
            }
            _ => part.may_be_defined.extend(written.map(str::to_owned)),
        }
        Ok(())
    });
    subsets
}
