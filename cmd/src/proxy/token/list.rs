//! `ironmesh proxy token list`.

use ironmesh_command_line::{OutputFormat, TokenListArguments};
use ironmesh_views::tokens;
use jiff::Timestamp;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::outln;

/// Lists the stored tokens.
pub(super) async fn list(
    arguments: &TokenListArguments,
    format: OutputFormat,
) -> anyhow::Result<()> {
    let mut list = ResolvedSettings::connect(&arguments.config)?.client().tokens().await?;
    let TokenListArguments { service, state, .. } = arguments;
    list.tokens.retain(|token| {
        service.as_ref().is_none_or(|service| token.services.contains(service))
            && state.is_none_or(|state| token.state == state.word())
    });
    let now = Timestamp::now();
    let lines = match format {
        OutputFormat::Json => vec![serde_json::to_string_pretty(&list)?],
        OutputFormat::Text => tokens::narrow(&list, now),
        OutputFormat::Wide => tokens::wide(&list, now),
    };
    for line in lines {
        outln!("{line}")?;
    }
    Ok(())
}
