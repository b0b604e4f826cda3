//! `[service.endpoints]`: which endpoints providers are asked for the endpoints of a service.

mod consul;
mod fixed;

use ironmesh_catalog::{EndpointSource, Finding, Name, Port, Providers};

use crate::codes;
use crate::table::{Told, Value};

/// Reads where the endpoints of a service come from, whose name and ports are `None` if they are not known.
pub(super) fn read(
    value: Value<'_>,
    name: Option<&Name>,
    ports: Option<&[Port]>,
) -> Result<EndpointSource, Told> {
    let mut table = value.table("the endpoints of a service")?;
    let later = table.not_served(
        &["azure_scale_set", "azure_vm"],
        "this version knows static lists, Consul, and the proxies that joined",
    );
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
    let registered = table.optional("registered", Value::boolean);
    table.finish();
    later?;
    let asked = Providers {
        registered: registered?.unwrap_or(false),
        fixed: fixed?.unwrap_or_default(),
        consul: consul?,
    };
    if asked == Providers::default() {
        let finding =
            value.error(codes::MISSING_KEY, "the endpoints of a service name no provider");
        let help = "say `static`, `consul` or `registered = true`; where `endpoints` is left out, they are \
                    the proxies that joined as this service";
        return Err(value.tell(finding.label("found by nobody").help(help)));
    }
    Ok(EndpointSource::Providers(asked))
}

fn warn_without_ports(value: Value<'_>, ports: Option<&[Port]>) {
    if ports.is_some_and(<[Port]>::is_empty) {
        let message = "the service has endpoints and no ports, so nothing can call them";
        let finding = Finding::warning(codes::INVALID_VALUE, Some(value.spot()), message);
        value.tell(finding.label("never called").help("give the service `ports`"));
    }
}
