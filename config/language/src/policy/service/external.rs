//! `external`, `hostname` and `resolution`: a service outside of the mesh.

use ironmesh_catalog::{EndpointSource, External, Finding, Hostname, Port, Providers, Resolution};

use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// Reads the external settings of a service with these endpoints and ports; `None` for a service of the mesh.
/// Ports are `None` if they could not be read.
pub(super) fn read(
    table: &mut Table<'_>,
    endpoints: &Result<Option<EndpointSource>, FindingReported>,
    ports: Option<&[Port]>,
) -> Result<Option<External>, FindingReported> {
    let external = table.optional("external", Value::boolean);
    let hostname = table.optional("hostname", |value| Ok((read_hostname(value)?, value)));
    let resolution = table
        .optional("resolution", |value| Ok((value.word("resolution", &Resolution::ALL)?, value)));
    let (is_external, hostname, resolution) = (external?, hostname?, resolution?);
    if !is_external.unwrap_or(false) {
        return match hostname.map(|(_, value)| value).or_else(|| resolution.map(|(_, value)| value))
        {
            None => Ok(None),
            Some(value) => Err(reject_for_mesh_service(value)),
        };
    }
    let source = endpoints.as_ref().map_err(|reported| *reported)?.as_ref();
    let is_listed = source.is_some();
    let is_found =
        |providers: &Providers| providers.registered || providers.external().next().is_some();
    if source.and_then(EndpointSource::providers).is_some_and(is_found)
        && let Some(value) = table.get("endpoints")
    {
        return Err(listed_alone(value));
    }
    let usual = if is_listed { Resolution::Static } else { Resolution::Dns };
    let resolution_value = resolution.map(|(_, value)| value);
    let resolution = resolution.map_or(usual, |(resolution, _)| resolution);
    let at = |finding: Finding| match resolution_value {
        Some(value) => value.report(finding),
        None => table.report(finding),
    };
    let spot = resolution_value.map_or_else(|| table.spot(), Value::spot);
    let wrong = |message: &str| Finding::error(codes::INVALID_VALUE, Some(spot.clone()), message);
    let is_wildcard = hostname.as_ref().is_some_and(|(name, _)| name.is_wildcard());
    match resolution {
        Resolution::Static if !is_listed => {
            let finding = wrong("an external service of resolution `static` has no endpoints");
            let help = "list them: `endpoints = { static = [{ address = \"…\" }] }`";
            return Err(at(finding.label("no list").help(help)));
        }
        Resolution::Dns | Resolution::Passthrough if is_listed => {
            let finding = wrong("an external service with a list of endpoints does not use DNS");
            return Err(at(finding.label("not `static`").help("remove the list, or `resolution`")));
        }
        Resolution::Dns | Resolution::Passthrough if hostname.is_none() => {
            return Err(table.missing("hostname"));
        }
        Resolution::Static | Resolution::Dns if is_wildcard => {
            let finding = wrong("a hostname with `*` can only be passed through");
            let help = "name one host, or set `resolution = \"passthrough\"`";
            return Err(at(finding.label("needs one host").help(help)));
        }
        Resolution::Passthrough => {
            let bytes = ports.into_iter().flatten().find(|port| !port.protocol.is_http());
            if let Some(port) = bytes {
                let message = format!(
                    "port `{}` cannot be passed through: `{}` names no host",
                    port.number, port.protocol
                );
                let finding = wrong(&message).label("of HTTP alone");
                let help = "name the host, and set `resolution = \"dns\"`";
                return Err(at(finding.help(help)));
            }
        }
        Resolution::Static | Resolution::Dns => {}
    }
    Ok(Some(External { hostname: hostname.map(|(name, _)| name), resolution }))
}

/// A service that is resolved by DNS has no endpoints in policy.
pub(super) fn reject_drained(value: Value<'_>) -> FindingReported {
    let finding = value.error(codes::INVALID_VALUE, "an external service cannot be drained");
    let help = "remove the service, or the traffic targets that allow calls to it";
    value.report(finding.label("outside of the mesh").help(help))
}

pub(super) fn without_sidecar(value: Value<'_>) -> FindingReported {
    let message = format!("`{}` is for services of the mesh", value.key());
    let finding = value.error(codes::INVALID_VALUE, message).label("outside of the mesh");
    value.report(finding.help(
        "remove it: it is for the sidecars of a service, and an external service has no sidecar",
    ))
}

fn listed_alone(value: Value<'_>) -> FindingReported {
    let message = "the endpoints of an external service are looked up by its hostname, or listed";
    let finding = value.error(codes::INVALID_VALUE, message).label("found by a provider");
    let help =
        "list them (`static = [{ address = \"…\" }]`), or set `hostname` and remove this provider";
    value.report(finding.help(help))
}

fn reject_for_mesh_service(value: Value<'_>) -> FindingReported {
    let message = format!("`{}` is only for external services", value.key());
    let finding = value.error(codes::INVALID_VALUE, message).label("a service of the mesh");
    let help = "remove it, or set `external = true`: a service of the mesh has the hostname `<service>.<namespace>.<domain>`";
    value.report(finding.help(help))
}

/// Reads the name of an external host, or a wildcard.
pub(in crate::policy) fn read_hostname(value: Value<'_>) -> Result<Hostname, FindingReported> {
    let text = value.string()?;
    Hostname::new(text).map_err(|invalid| {
        let message = format!("`{}` {}: `{text}`", value.key(), invalid.problem);
        let finding = value.error(codes::INVALID_NAME, message).label("not a hostname");
        value.report(finding.help("write one as in `api.example.com` or `*.example.com`"))
    })
}
