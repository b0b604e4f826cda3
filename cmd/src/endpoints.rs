//! `ironmesh endpoints`: the endpoints of services, and whether callers use them.

mod watch;

use ironmesh_api::AcceptedEndpoints;
use ironmesh_command_line::{AcceptArguments, EndpointsArguments, EndpointsCommand, Output};
use ironmesh_views::endpoints::text;
use jiff::Timestamp;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Lists the endpoints of one service or of all, once or until stdout closes.
pub(crate) async fn endpoints(arguments: EndpointsArguments, output: Output) -> anyhow::Result<()> {
    let EndpointsArguments { command, config, service, watch } = arguments;
    if let Some(EndpointsCommand::Accept(arguments)) = command {
        return accept(&arguments, output).await;
    }
    let client = ResolvedSettings::connect(&config)?.client();
    if watch {
        return watch::watch(&client, service.as_ref(), output).await;
    }
    let list = client.endpoints(service.as_ref()).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        Output::Text => out!("{}", text(&list, Timestamp::now()))?,
    }
    Ok(())
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
