//! `ironmesh policy schema`: the JSON schema of policy files.

use ironmesh_config_language::schema::json_schema;

use ironmesh_terminal::stdout::{StdoutError, outln};

/// Prints the schema, which docs/reference/policy.schema.json publishes.
pub(super) fn print() -> Result<(), StdoutError> {
    outln!("{:#}", json_schema())
}
