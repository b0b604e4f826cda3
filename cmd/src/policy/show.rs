//! `ironmesh policy show`: the documents of a stored revision of policy.

use ironmesh_api::DocumentsQuery;
use ironmesh_command_line::{Output, PolicyShowArguments};
use ironmesh_views::configuration::documents_text;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Prints the documents.
pub(crate) async fn show(arguments: PolicyShowArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let query = DocumentsQuery { revision: arguments.revision };
    let documents = client.policy_documents(&query).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&documents)?)?,
        Output::Text => out!("{}", documents_text(&documents))?,
    }
    Ok(())
}
