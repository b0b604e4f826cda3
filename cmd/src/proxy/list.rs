//! `ironmesh proxy list`.

use ironmesh_admin::Client;
use ironmesh_api::{ProxyPage, ProxyQuery};
use ironmesh_command_line::{ListArguments, OutputFormat};
use ironmesh_views::proxies as views;
use jiff::Timestamp;
use serde_json::Value;

use crate::resolved_settings::ResolvedSettings;
use crate::watch::{Watched, watch};
use ironmesh_terminal::stdout::{out, outln};

/// The note of an empty list.
const FIRST_STEPS: &str = "no proxy is enrolled; `ironmesh proxy token --service NS/NAME` creates a token by which a machine enrolls, and `ironmesh proxy bootstrap` enrolls without one";

/// Lists the enrolled proxies.
pub(crate) async fn list(arguments: ListArguments, format: OutputFormat) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let is_all = arguments.service.is_none() && arguments.state.is_none();
    let query = ProxyQuery {
        service: arguments.service,
        state: arguments.state,
        limit: arguments.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        after: None,
    };
    let proxies = Proxies { client, query, format };
    if arguments.watch.watch {
        return watch(&proxies, format.into()).await;
    }
    let page = proxies.read().await?;
    match format {
        OutputFormat::Json => {
            outln!("{}", serde_json::to_string_pretty(&page.proxies)?)?;
            if let Some(note) = views::hidden(&page) {
                print_note(&note);
            }
        }
        OutputFormat::Text | OutputFormat::Wide => {
            out!("{}", proxies.text(&page, Timestamp::now()))?;
        }
    }
    if format != OutputFormat::Json && is_all && page.matching == 0 {
        print_note(FIRST_STEPS);
    }
    Ok(())
}

/// The enrolled proxies that a query selects.
struct Proxies {
    client: Client,
    query: ProxyQuery,
    format: OutputFormat,
}

impl Watched for Proxies {
    type State = ProxyPage;

    async fn read(&self) -> anyhow::Result<ProxyPage> {
        Ok(self.client.proxies(self.query.clone()).await?)
    }

    fn json(&self, page: &ProxyPage, _now: Timestamp) -> serde_json::Result<Value> {
        serde_json::to_value(&page.proxies)
    }

    fn text(&self, page: &ProxyPage, _now: Timestamp) -> String {
        match self.format {
            OutputFormat::Wide => views::wide(page),
            OutputFormat::Text | OutputFormat::Json => views::narrow(page),
        }
    }
}

#[expect(clippy::print_stderr, reason = "a notice beside the result")]
fn print_note(note: &str) {
    eprintln!("ironmesh: {note}");
}
