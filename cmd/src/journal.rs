//! `ironmesh journal`: who changed what, when and with which outcome.

mod follow;

use ironmesh_api::JournalPage;
use ironmesh_catalog::JournalQuery;
use ironmesh_command_line::{JournalArguments, JournalStart, Output};
use jiff::Timestamp;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::journal_table as table;
use ironmesh_terminal::stdout::{out, outln};

/// How many entries are listed without `--since` and `--limit`.
const DEFAULT_LIMIT: usize = 100;

/// Lists entries, once or until stdout closes.
pub(crate) async fn journal(arguments: JournalArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let query = query(&arguments, Timestamp::now());
    let page = client.journal_pages(query).await?;
    if arguments.follow {
        return follow::follow(&client, query.kind, page, output).await;
    }
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&page)?)?,
        Output::Text => out!("{}{}", table::HEADER, table::rows(&page.entries))?,
    }
    warn_of_loss(&page);
    Ok(())
}

fn query(arguments: &JournalArguments, now: Timestamp) -> JournalQuery {
    let since = arguments.since.map(|start| match start {
        JournalStart::At(at) => at,
        JournalStart::Ago(ago) => now.saturating_sub(ago).unwrap_or(Timestamp::MIN),
    });
    let limit = match (arguments.limit, since) {
        (Some(limit), _) => Some(usize::from(limit)),
        (None, None) => Some(DEFAULT_LIMIT),
        (None, Some(_)) => None,
    };
    JournalQuery { since, kind: arguments.kind, limit, ..JournalQuery::default() }
}

/// Tells that entries are missing.
#[expect(clippy::print_stderr, reason = "a notice beside the results")]
fn warn_of_loss(page: &JournalPage) {
    if page.dropped > 0 {
        eprintln!(
            "ironmesh: {} entries were lost since the control plane started; its log has the cause",
            page.dropped
        );
    }
}
