//! `ironmesh endpoints --watch`: looks again and again, and shows what is others than before.

use std::io;
use std::time::Duration;

use ironmesh_admin::{Client, ClientError, EndpointList};
use ironmesh_catalog::ServiceName;
use ironmesh_catalog::text::{escape_line, escape_output};
use jiff::Timestamp;
use tokio::time::MissedTickBehavior;

use super::{changes, table};
use crate::cli::Output;
use crate::color;
use crate::stdout::offer_styled;
use ironmesh_catalog::text::chain;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

/// Puts the cursor to the beginning of an empty screen (ECMA-48: CUP, ED).
const EMPTY_SCREEN: &str = "\x1b[H\x1b[2J";

/// Shows endpoints until nobody reads it any more. A control plane that is away, once it was there, is waited
/// for.
pub(super) async fn watch(
    client: &Client,
    service: Option<&ServiceName>,
    output: Output,
) -> anyhow::Result<()> {
    let is_screen = output == Output::Text && color::can_redraw(&io::stdout());
    let mut shown: Option<EndpointList> = None;
    let mut is_away = false;
    let mut ticks = tokio::time::interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let list = match client.endpoints(service).await {
            Ok(list) => list,
            Err(error) if shown.is_none() || matches!(error, ClientError::Rejected(_)) => {
                return Err(error.into());
            }
            Err(error) => {
                if !is_away {
                    tell(&chain(&error));
                }
                is_away = true;
                continue;
            }
        };
        is_away = false;
        let now = Timestamp::now();
        let before = shown.as_ref();
        let is_same = before == Some(&list);
        let words = match output {
            // Ages move on also where nothing changes.
            Output::Text if is_screen => {
                format!("{EMPTY_SCREEN}{}", escape_output(&table::text(&list, now)))
            }
            Output::Json if is_same => String::new(),
            Output::Json => format!("{}\n", serde_json::to_string(&list)?),
            Output::Text => {
                let none = EndpointList::default();
                let lines = changes::changes(before.unwrap_or(&none), &list);
                let lines = lines.iter().map(|line| escape_line(line));
                lines.fold(String::new(), |text, line| format!("{text}{now:.0} {line}\n"))
            }
        };
        if !words.is_empty() && !offer_styled(&words)? {
            return Ok(());
        }
        shown = Some(list);
    }
}

#[expect(clippy::print_stderr, reason = "what is not a result, and does not hinder")]
fn tell(words: &str) {
    eprintln!("ironmesh: {}; waiting for it", escape_output(words));
}
