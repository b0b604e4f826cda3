//! `ironmesh journal --follow`: prints entries as they are recorded.

use std::time::Duration;

use ironmesh_admin::{Client, ClientError};
use ironmesh_api::JournalPage;
use ironmesh_catalog::text::{chain, escape_output};
use ironmesh_catalog::{JournalEntry, JournalKind, JournalQuery};
use ironmesh_command_line::Output;
use tokio::time::{MissedTickBehavior, interval};

use ironmesh_terminal::journal_table as table;
use ironmesh_terminal::stdout::write_if_open;

/// The poll interval.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Prints the first page and then new entries, until stdout closes. An unreachable control plane is polled further:
/// the numbers of entries continue over restarts.
pub(super) async fn follow(
    client: &Client,
    kind: Option<JournalKind>,
    first: JournalPage,
    output: Output,
) -> anyhow::Result<()> {
    if output == Output::Text && !write_if_open(format_args!("{}", table::HEADER))? {
        return Ok(());
    }
    let (mut page, mut cursor, mut is_unreachable) = (first, 0, false);
    let mut ticks = interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if !write_if_open(format_args!("{}", text(&page.entries, output)?))? {
            return Ok(());
        }
        cursor = page.next_cursor(cursor);
        page = loop {
            ticks.tick().await;
            let query = JournalQuery { kind, after: Some(cursor), ..JournalQuery::default() };
            match client.journal(&query).await {
                Ok(page) => break page,
                Err(error @ ClientError::Rejected(_)) => return Err(error.into()),
                Err(error) if !is_unreachable => print_retry(&chain(&error)),
                Err(_) => {}
            }
            is_unreachable = true;
        };
        is_unreachable = false;
    }
}

fn text(entries: &[JournalEntry], output: Output) -> serde_json::Result<String> {
    match output {
        Output::Text => Ok(table::rows(entries)),
        Output::Json => {
            entries.iter().map(|entry| Ok(serde_json::to_string(entry)? + "\n")).collect()
        }
    }
}

#[expect(clippy::print_stderr, reason = "a notice beside the results")]
fn print_retry(error: &str) {
    eprintln!("ironmesh: {}; retrying", escape_output(error));
}
