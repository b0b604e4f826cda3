//! `[service.endpoints]`: the queries by which providers discover the endpoints of a service.

mod azure;
mod consul;
mod fixed;

use ironmesh_catalog::{AzureQuery, EndpointSource, Finding, Name, Port, Providers};

use crate::codes;
use crate::table::{FindingReported, Value};

/// Reads the source of the endpoints of a service, whose name and ports are `None` if they are not known.
pub(super) fn read(
    value: Value<'_>,
    name: Option<&Name>,
    ports: Option<&[Port]>,
) -> Result<EndpointSource, FindingReported> {
    let mut table = value.table("the endpoints of a service")?;
    let fixed = table.optional("static", |value| {
        let listed = fixed::read(value, ports)?;
        warn_without_ports(value, ports);
        Ok(listed)
    });
    let consul = table.optional("consul", |value| {
        let query = consul::read(value, name)?;
        warn_without_ports(value, ports);
        Ok(query)
    });
    let scale_sets = table.optional("azure_scale_set", |value| {
        let queries = azure::read_scale_sets(value, ports)?;
        warn_without_use(value, ports, &queries);
        Ok(queries)
    });
    let machines = table.optional("azure_vm", |value| {
        let queries = azure::read_machines(value, ports)?;
        warn_without_use(value, ports, &queries);
        Ok(queries)
    });
    let registered = table.optional("registered", Value::boolean);
    table.finish();
    let azure = [scale_sets, machines].into_iter().map(|queries| Ok(queries?.unwrap_or_default()));
    let azure = azure.collect::<Result<Vec<_>, FindingReported>>();
    let queried = Providers {
        registered: registered?.unwrap_or(false),
        fixed: fixed?.unwrap_or_default(),
        consul: consul?,
        azure: azure?.concat(),
    };
    if queried == Providers::default() {
        let finding =
            value.error(codes::MISSING_KEY, "the endpoints of a service name no provider");
        let help = "set `static`, `consul`, `azure_scale_set`, `azure_vm` or `registered = true`; without `endpoints`, they are the proxies enrolled for this service";
        return Err(value.report(finding.label("no provider").help(help)));
    }
    Ok(EndpointSource::Providers(queried))
}

/// Reads the port on which the application listens on a machine.
fn read_port(value: Value<'_>, ports: Option<&[Port]>) -> Result<u16, FindingReported> {
    let port = value.port()?;
    if ports.is_some_and(|ports| ports.len() > 1) {
        let message = "an endpoint of a service with several ports cannot have a `port`";
        let finding =
            value.error(codes::INVALID_VALUE, message).label("ambiguous with several ports");
        let help = "give each of the service's ports its `target_port`, and leave this out";
        return Err(value.report(finding.help(help)));
    }
    Ok(port)
}

/// Machines that join as a pure client are of use without ports.
fn warn_without_use(value: Value<'_>, ports: Option<&[Port]>, queries: &[AzureQuery]) {
    if queries.iter().any(|query| query.join.is_none()) {
        warn_without_ports(value, ports);
    }
}

fn warn_without_ports(value: Value<'_>, ports: Option<&[Port]>) {
    if ports.is_some_and(<[Port]>::is_empty) {
        let message = "the service has endpoints and no ports, so nothing can call them";
        let finding = Finding::warning(codes::INVALID_VALUE, Some(value.spot()), message);
        value.report(finding.label("never called").help("give the service `ports`"));
    }
}
