//! `ironmesh service`: lists the services of policy, and shows one of them.

use ironmesh_admin::Client;
use ironmesh_api::ServicePage;
use ironmesh_catalog::Name;
use ironmesh_command_line::{Output, ServiceCommand, ServiceListArguments, ServiceShowArguments};
use ironmesh_views::services;
use jiff::Timestamp;
use serde_json::Value;

use crate::resolved_settings::ResolvedSettings;
use crate::watch::{Watched, watch};
use ironmesh_terminal::stdout::{out, outln};

/// Runs a command about services.
pub(crate) async fn run(command: ServiceCommand, output: Output) -> anyhow::Result<()> {
    match command {
        ServiceCommand::List(arguments) => list(arguments, output).await,
        ServiceCommand::Show(arguments) => show(&arguments, output).await,
    }
}

async fn list(arguments: ServiceListArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let list = Services { client, namespace: arguments.namespace };
    if arguments.watch.watch {
        return watch(&list, output).await;
    }
    let page = list.read().await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&page)?)?,
        Output::Text => out!("{}", services::table(&page))?,
    }
    Ok(())
}

/// The services of one namespace or of all.
struct Services {
    client: Client,
    namespace: Option<Name>,
}

impl Watched for Services {
    type State = ServicePage;

    async fn read(&self) -> anyhow::Result<ServicePage> {
        Ok(self.client.services(self.namespace.as_ref()).await?)
    }

    fn json(&self, page: &ServicePage, _now: Timestamp) -> serde_json::Result<Value> {
        serde_json::to_value(page)
    }

    fn text(&self, page: &ServicePage, _now: Timestamp) -> String {
        services::table(page)
    }
}

async fn show(arguments: &ServiceShowArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let service = client.service(&arguments.service).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&service)?)?,
        Output::Text => out!("{}", services::detail(&service))?,
    }
    Ok(())
}
