//! `ironmesh policy schema`: the JSON schema of policy files.

use ironmesh_config::schema::json_schema;

/// Prints the schema as it is published in docs/reference/policy.schema.json.
#[expect(clippy::print_stdout, reason = "the schema is this command's result")]
pub(super) fn print() {
    println!("{:#}", json_schema());
}
