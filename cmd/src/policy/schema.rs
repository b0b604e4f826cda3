//! `ironmesh policy schema`: the JSON schema of policy files.

use ironmesh_config_language::schema::json_schema;

use crate::stdout::{Unwritten, outln};

/// Prints the schema as it is published in docs/reference/policy.schema.json.
pub(super) fn print() -> Result<(), Unwritten> {
    outln!("{:#}", json_schema())
}
