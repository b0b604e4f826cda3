//! `ironmesh events`: prints events as they happen, also after a restart of the control plane.

use std::time::Duration;

use ironmesh_admin::{Client, ClientError};
use ironmesh_api::{EventKind, EventsQuery, ReceivedEvent};
use ironmesh_catalog::text::{chain, escape_output};
use ironmesh_command_line::{EventsArguments, Output};
use ironmesh_terminal::journal_table;
use ironmesh_terminal::stdout::write_if_open;
use ironmesh_views::events::{ProxyNames, event_line, named_proxies};
use tokio::time::{Instant, sleep, timeout};

use crate::resolved_settings::ResolvedSettings;

/// The pause before a new connection.
const RETRY: Duration = Duration::from_secs(1);

/// The time for the names of an event's proxies. Without them, the line has ids.
const LOOK_UP: Duration = Duration::from_secs(1);

/// A connection that breaks after this time is a stream that was cut, such as by a proxy on the way.
const LASTING: Duration = Duration::from_secs(5);

/// Prints events until stdout closes; with `--no-follow` those that are stored.
pub(crate) async fn events(arguments: EventsArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let follow = !arguments.no_follow;
    let mut query = EventsQuery { since: arguments.since, follow: Some(follow) };
    let mut names = Names::default();
    let (mut written, mut has_connected, mut is_unreachable) = (Ok(true), false, false);
    loop {
        let (mut newest, mut is_cut, start) = (None, false, Instant::now());
        let read = client
            .events(&query, async |event: ReceivedEvent| {
                if output == Output::Text {
                    // A slow control plane must not delay the events themselves.
                    let _ = timeout(LOOK_UP, names.learn(&client, &event)).await;
                }
                written = print(&event, &names.known, output);
                is_cut = event.event == EventKind::Lagged.word();
                newest = event.id.or_else(|| newest.take());
                matches!(written, Ok(true))
            })
            .await;
        if !std::mem::replace(&mut written, Ok(true))? {
            return Ok(());
        }
        if newest.is_some() {
            (query.since, has_connected, is_unreachable) = (newest, true, false);
        }
        match read {
            Ok(_) if !follow && !is_cut => return Ok(()),
            Ok(_) => has_connected = true,
            Err(error) if !follow || !has_connected => return Err(error.into()),
            Err(error @ ClientError::Rejected(_)) => return Err(error.into()),
            // A stream that was cut is resumed. If that fails, the next error is printed.
            Err(ClientError::Broken(_)) if start.elapsed() >= LASTING => {}
            Err(error) if !is_unreachable => {
                print_retry(&chain(&error));
                is_unreachable = true;
            }
            Err(_) => {}
        }
        sleep(RETRY).await;
    }
}

/// The names of proxies, which events name by their ids.
#[derive(Default)]
struct Names {
    known: ProxyNames,
}

impl Names {
    /// The most kept names.
    const MOST: usize = 10_000;

    /// Reads the names that the line of an event needs.
    async fn learn(&mut self, client: &Client, event: &ReceivedEvent) {
        if self.known.len() > Self::MOST {
            self.known.clear();
        }
        for id in named_proxies(event) {
            if !self.known.contains_key(&id)
                && let Ok(detail) = client.proxy(&id.to_string()).await
            {
                self.known.insert(id, detail.proxy.record.name.to_string());
            }
        }
    }
}

/// Prints an event. Returns whether stdout is open.
fn print(event: &ReceivedEvent, names: &ProxyNames, output: Output) -> anyhow::Result<bool> {
    let text = match output {
        Output::Json => serde_json::to_string(event)? + "\n",
        Output::Text => match serde_json::from_value(event.data.clone()) {
            Ok(entry) if event.event == "journal" => journal_table::rows(&[entry]),
            _ => event_line(event, names),
        },
    };
    Ok(write_if_open(format_args!("{text}"))?)
}

#[expect(clippy::print_stderr, reason = "a notice beside the results")]
fn print_retry(error: &str) {
    eprintln!("ironmesh: {}; retrying", escape_output(error));
}
