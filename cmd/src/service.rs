//! `ironmesh service`: lists the services of policy, and shows one of them.

use ironmesh_command_line::{Output, ServiceCommand, ServiceListArguments, ServiceShowArguments};
use ironmesh_views::services;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Runs a command about services.
pub(crate) async fn run(command: ServiceCommand, output: Output) -> anyhow::Result<()> {
    match command {
        ServiceCommand::List(arguments) => list(&arguments, output).await,
        ServiceCommand::Show(arguments) => show(&arguments, output).await,
    }
}

async fn list(arguments: &ServiceListArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let page = client.services(arguments.namespace.as_ref()).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&page)?)?,
        Output::Text => out!("{}", services::table(&page))?,
    }
    Ok(())
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
