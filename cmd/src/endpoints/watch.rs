//! `ironmesh endpoints --watch`: polls the endpoints and shows changes.

use std::io;
use std::time::Duration;

use ironmesh_admin::{Client, ClientError};
use ironmesh_api::EndpointList;
use ironmesh_catalog::ServiceName;
use ironmesh_catalog::text::{escape_line, escape_output};
use ironmesh_command_line::Output;
use ironmesh_views::endpoints;
use jiff::Timestamp;
use tokio::time::MissedTickBehavior;

use ironmesh_catalog::text::chain;
use ironmesh_terminal::color;
use ironmesh_terminal::stdout::write_styled_if_open;

/// The poll interval.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The escape sequences that clear the screen and move the cursor home (ECMA-48: CUP, ED).
const CLEAR_SCREEN: &str = "\x1b[H\x1b[2J";

/// Shows endpoints until stdout closes. After a first answer, an unreachable control plane is polled further.
pub(super) async fn watch(
    client: &Client,
    service: Option<&ServiceName>,
    output: Output,
) -> anyhow::Result<()> {
    let is_screen = output == Output::Text && color::can_redraw(&io::stdout());
    let mut shown: Option<EndpointList> = None;
    let mut is_unreachable = false;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let list = match client.endpoints(service).await {
            Ok(list) => list,
            Err(error) if shown.is_none() || matches!(error, ClientError::Rejected(_)) => {
                return Err(error.into());
            }
            Err(error) => {
                if !is_unreachable {
                    print_retry(&chain(&error));
                }
                is_unreachable = true;
                continue;
            }
        };
        is_unreachable = false;
        let now = Timestamp::now();
        let before = shown.as_ref();
        let is_same = before == Some(&list);
        let text = match output {
            // Ages advance even if nothing else changes.
            Output::Text if is_screen => {
                format!("{CLEAR_SCREEN}{}", escape_output(&endpoints::text(&list, now)))
            }
            Output::Json if is_same => String::new(),
            Output::Json => format!("{}\n", serde_json::to_string(&list)?),
            Output::Text => {
                let none = EndpointList::default();
                let lines = endpoints::changes(before.unwrap_or(&none), &list);
                let lines = lines.iter().map(|line| escape_line(line));
                lines.fold(String::new(), |text, line| format!("{text}{now:.0} {line}\n"))
            }
        };
        if !text.is_empty() && !write_styled_if_open(&text)? {
            return Ok(());
        }
        shown = Some(list);
    }
}

#[expect(clippy::print_stderr, reason = "a notice beside the results")]
fn print_retry(error: &str) {
    eprintln!("ironmesh: {}; retrying", escape_output(error));
}
