//! `ironmesh endpoints`: the endpoints of services, and whether callers use them.

use std::fmt::Write as _;

use ironmesh_admin::Client;
use ironmesh_api::{AcceptedEndpoints, EndpointList};
use ironmesh_catalog::ServiceName;
use ironmesh_catalog::text::escape_line;
use ironmesh_command_line::{AcceptArguments, EndpointsArguments, EndpointsCommand, Output};
use ironmesh_views::endpoints as views;
use jiff::Timestamp;
use serde_json::Value;

use crate::resolved_settings::ResolvedSettings;
use crate::watch::{Watched, watch};
use ironmesh_terminal::stdout::{out, outln};

/// Lists the endpoints of one service or of all, once or until stdout closes.
pub(crate) async fn endpoints(arguments: EndpointsArguments, output: Output) -> anyhow::Result<()> {
    let EndpointsArguments { command, config, service, watch: is_watched } = arguments;
    if let Some(EndpointsCommand::Accept(arguments)) = command {
        return accept(&arguments, output).await;
    }
    let client = ResolvedSettings::connect(&config)?.client();
    let endpoints = Endpoints { client, service };
    if is_watched {
        return watch(&endpoints, output).await;
    }
    let list = endpoints.read().await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        Output::Text => out!("{}", views::text(&list, Timestamp::now()))?,
    }
    Ok(())
}

/// The endpoints of one service or of all.
struct Endpoints {
    client: Client,
    service: Option<ServiceName>,
}

impl Watched for Endpoints {
    type State = EndpointList;

    async fn read(&self) -> anyhow::Result<EndpointList> {
        Ok(self.client.endpoints(self.service.as_ref()).await?)
    }

    fn json(&self, list: &EndpointList, _now: Timestamp) -> serde_json::Result<Value> {
        serde_json::to_value(list)
    }

    fn text(&self, list: &EndpointList, now: Timestamp) -> String {
        views::text(list, now)
    }

    /// A line for each change.
    fn changes(
        &self,
        before: Option<&EndpointList>,
        list: &EndpointList,
        now: Timestamp,
    ) -> String {
        let none = EndpointList::default();
        let mut text = String::new();
        for line in views::changes(before.unwrap_or(&none), list) {
            let _ = writeln!(text, "{now:.0} {}", escape_line(&line));
        }
        text
    }
}

/// Accepts a held-back endpoint removal of a service.
async fn accept(arguments: &AcceptArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let accepted = client.accept_endpoints(&arguments.service).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&accepted)?)?,
        Output::Text => {
            let AcceptedEndpoints { service } = accepted;
            outln!("accepted: `{service}` has the endpoints that its providers report now")?;
        }
    }
    Ok(())
}
