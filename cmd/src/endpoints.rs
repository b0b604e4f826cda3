//! `ironmesh endpoints`: where the endpoints of services are, and whether they are called.

mod changes;
mod table;
mod watch;

use ironmesh_admin::{AcceptedEndpoints, Client};
use jiff::Timestamp;

use crate::cli::{AcceptArguments, EndpointsArguments, EndpointsCommand, Output};
use crate::places::Places;
use crate::stdout::{out, outln};

/// Tells where the endpoints of one service or of all are, once or as long as somebody looks.
pub(crate) async fn endpoints(arguments: EndpointsArguments, output: Output) -> anyhow::Result<()> {
    let EndpointsArguments { command, config, service, watch } = arguments;
    if let Some(EndpointsCommand::Accept(arguments)) = command {
        return accept(&arguments, output).await;
    }
    let client = Client::new(&Places::find(&config)?.admin_socket());
    if watch {
        return watch::watch(&client, service.as_ref(), output).await;
    }
    let list = client.endpoints(service.as_ref()).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        Output::Text => out!("{}", table::text(&list, Timestamp::now()))?,
    }
    Ok(())
}

/// Believes what the providers of a service say, though it is doubted.
async fn accept(arguments: &AcceptArguments, output: Output) -> anyhow::Result<()> {
    let client = Client::new(&Places::find(&arguments.config)?.admin_socket());
    let accepted = client.accept_endpoints(&arguments.service).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&accepted)?)?,
        Output::Text => {
            let AcceptedEndpoints { service } = accepted;
            outln!("the endpoints of `{service}` are those that its providers tell now")?;
        }
    }
    Ok(())
}
