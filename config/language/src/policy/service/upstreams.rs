//! `upstreams` of a service: local ports of its proxies that lead to other services.

use std::collections::BTreeMap;

use ironmesh_catalog::{
    Finding, Name, PolicyUpstream, Port, PortReference, ServiceName, Spot, reserved_ports,
};

use crate::codes;
use crate::policy::part::{Reference, ReferenceTarget};
use crate::table::{FindingReported, Value};

/// Reads the upstreams of a service with these `ports`. Names without a namespace are in `home`, which is `None` if
/// it could not be read.
pub(super) fn read(
    value: Value<'_>,
    home: Option<&Name>,
    ports: Option<&[Port]>,
    references: &mut Vec<Reference>,
) -> Result<Vec<PolicyUpstream>, FindingReported> {
    let count = value.items()?.len();
    if count > PolicyUpstream::MAX {
        let message = format!("a service has at most {} upstreams: {count}", PolicyUpstream::MAX);
        return Err(value.report(value.error(codes::TOO_LARGE, message).label("too many")));
    }
    let mut local_ports: BTreeMap<u16, Spot> = BTreeMap::new();
    value.each(|item| {
        let mut table = item.table("an upstream")?;
        let service = table.required("service", |value| {
            let service = read_service(value, home)?;
            references.push(Reference {
                referenced: ReferenceTarget::Service(service.clone()),
                spot: value.spot(),
            });
            Ok((service, value.spot()))
        });
        let port = table.optional("port", read_port_reference);
        let local_port = table.required("local_port", |value| {
            let number = read_local_port(value, ports)?;
            if let Some(first) = local_ports.get(&number) {
                let message = format!("local port `{number}` is given twice");
                let finding = value.error(codes::DUPLICATE_NAME, message).label("given again");
                return Err(value.report(finding.related(first.clone(), "first given here")));
            }
            local_ports.insert(number, value.spot());
            Ok(number)
        });
        table.finish();
        let (service, spot) = service?;
        Ok(PolicyUpstream { service, port: port?, local_port: local_port?, spot })
    })
}

/// A service of `home`, or of the namespace before a `/`.
fn read_service(value: Value<'_>, home: Option<&Name>) -> Result<ServiceName, FindingReported> {
    let text = value.string()?;
    let name = |text: &str| {
        Name::new(text).map_err(|invalid| {
            let message = format!("`service` {}: `{text}`", invalid.problem);
            let finding = value.error(codes::INVALID_NAME, message).label("not a service");
            value.report(finding.help("write `name`, or `namespace/name`"))
        })
    };
    match text.split_once('/') {
        Some((namespace, service)) => Ok(ServiceName::new(name(namespace)?, name(service)?)),
        None => Ok(ServiceName::new(home.cloned().ok_or(FindingReported)?, name(text)?)),
    }
}

/// A port of a service: its number or its name.
pub(super) fn read_port_reference(value: Value<'_>) -> Result<PortReference, FindingReported> {
    match value.string_if_any() {
        Some(_) => value.name().map(PortReference::Name),
        None => value.port().map(PortReference::Number),
    }
}

/// A port on which the proxies of the service can listen beside its applications.
fn read_local_port(value: Value<'_>, ports: Option<&[Port]>) -> Result<u16, FindingReported> {
    let number = value.port()?;
    let reject = |message: String, label: &str, help: &str| {
        let finding: Finding = value.error(codes::INVALID_VALUE, message).label(label);
        Err(value.report(finding.help(help)))
    };
    if number < PolicyUpstream::MIN_LOCAL_PORT {
        return reject(
            format!("`local_port` must be from 1024 to 65535: `{number}`"),
            "a privileged port",
            "Envoy needs a privilege to listen on ports below 1024: choose a higher one",
        );
    }
    if reserved_ports::all().any(|reserved| reserved == number) {
        return reject(
            format!("`local_port` {number} is a port of Ironmesh itself"),
            "reserved",
            "choose a port outside 15000 to 15199",
        );
    }
    let of_application = ports.unwrap_or_default().iter().find(|port| port.target == number);
    if let Some(port) = of_application {
        return reject(
            format!("`local_port` {number} is the target port of port {}", port.number),
            "the application listens there",
            "choose a port that no program of the machine uses",
        );
    }
    Ok(number)
}
