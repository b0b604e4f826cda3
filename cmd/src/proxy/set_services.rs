//! `ironmesh proxy set-services`: changes the services of an enrolled proxy.

use ironmesh_api::{ChangedServices, ServicesRequest};
use ironmesh_catalog::ServiceName;
use ironmesh_command_line::{Output, SetServicesArguments};

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::outln;

/// Gives a proxy other services.
pub(crate) async fn set_services(
    arguments: SetServicesArguments,
    output: Output,
) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let request = ServicesRequest { services: arguments.services };
    let changed = client.set_services(&arguments.id, &request).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&changed)?)?,
        Output::Text => {
            let ChangedServices { id, name, before, services } = changed;
            let (services, before) = (list(&services), list(&before));
            outln!("proxy {name} ({id}) serves {services}; before: {before}")?;
        }
    }
    Ok(())
}

fn list(services: &[ServiceName]) -> String {
    services.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
