//! Makes `xds/wire/src/canonical/fields.txt`: which fields of Envoy's messages lead to a map or to an `Any`.
//!
//! The control plane sorts map entries by this table (docs/decisions/0001), so that it does not need the
//! descriptors at run time.

use prost_reflect::{DescriptorPool, FieldDescriptor};

use super::fields;

/// The table for these descriptors.
pub(super) fn table(pool: &DescriptorPool) -> String {
    fields::table(pool, FieldDescriptor::is_map, |field, line| {
        let number = field.number();
        match (field.is_map(), line) {
            (true, None) => Some(format!("{number}*")),
            (true, Some(line)) => Some(format!("{number}*{line}")),
            (false, Some(line)) => Some(format!("{number}>{line}")),
            (false, None) => None,
        }
    })
}
