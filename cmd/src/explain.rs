//! `ironmesh explain CODE`: the documentation of a finding code.

use serde_json::json;

use ironmesh_command_line::{ExplainArguments, Output};
use ironmesh_terminal::stdout::{StdoutError, out, outln};

/// Prints the page of a code.
pub(crate) fn explain(arguments: &ExplainArguments, output: Output) -> Result<(), StdoutError> {
    let explained = &arguments.code;
    match output {
        Output::Json => {
            let (code, title) = (explained.code.to_string(), explained.title());
            outln!("{:#}", json!({ "code": code, "title": title, "page": explained.page }))
        }
        Output::Text => out!("{}", explained.text()),
    }
}
