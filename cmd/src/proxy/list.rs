//! `ironmesh proxy list`.

use ironmesh_api::ProxyQuery;
use ironmesh_command_line::{ListArguments, OutputFormat};
use ironmesh_views::proxies;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// The note of an empty list.
const FIRST_STEPS: &str = "no proxy is enrolled; `ironmesh proxy token --service NS/NAME` creates a token by which a machine enrolls, and `ironmesh proxy bootstrap` enrolls without one";

/// Lists the enrolled proxies.
pub(crate) async fn list(arguments: &ListArguments, format: OutputFormat) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    let query = ProxyQuery {
        service: arguments.service.clone(),
        state: arguments.state,
        limit: arguments.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        after: None,
    };
    let page = resolved.client().proxies(query).await?;
    match format {
        OutputFormat::Json => {
            outln!("{}", serde_json::to_string_pretty(&page.proxies)?)?;
            if let Some(note) = proxies::hidden(&page) {
                print_note(&note);
            }
        }
        OutputFormat::Text => out!("{}", proxies::narrow(&page))?,
        OutputFormat::Wide => out!("{}", proxies::wide(&page))?,
    }
    let is_all = arguments.service.is_none() && arguments.state.is_none();
    if format != OutputFormat::Json && is_all && page.matching == 0 {
        print_note(FIRST_STEPS);
    }
    Ok(())
}

#[expect(clippy::print_stderr, reason = "a notice beside the result")]
fn print_note(note: &str) {
    eprintln!("ironmesh: {note}");
}
