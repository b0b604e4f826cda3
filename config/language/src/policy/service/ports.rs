//! `ports` of a service, and their protocols.

use std::collections::BTreeMap;

use ironmesh_catalog::reserved_ports;
use ironmesh_catalog::{Name, Port, PortRange, Protocol, Spot};

use crate::codes;
use crate::policy::udp::NO_UDP;
use crate::table::{FindingReported, Table, Value};

/// Reads the ports of a service.
pub(super) fn read(value: Value<'_>) -> Result<Vec<Port>, FindingReported> {
    let several = value.items()?.len() > 1;
    let mut numbers: BTreeMap<u16, Spot> = BTreeMap::new();
    let mut names: BTreeMap<Name, Spot> = BTreeMap::new();
    value.each(|item| {
        let mut table = item.table("a port")?;
        let port = read_port(&mut table, several);
        table.finish();
        let (port, number_spot, name_spot) = port?;
        let twice = |what: String, spot: Spot, first: &Spot| {
            let message = format!("port {what} is given twice");
            let finding = item.error(codes::DUPLICATE_NAME, message).label("given again");
            item.report(
                ironmesh_catalog::Finding { spot: Some(spot), ..finding }
                    .related(first.clone(), "first given here"),
            )
        };
        if let Some(first) = numbers.get(&port.number) {
            return Err(twice(format!("number `{}`", port.number), number_spot, first));
        }
        if let Some(first) = names.get(&port.name) {
            return Err(twice(format!("name `{}`", port.name), name_spot, first));
        }
        numbers.insert(port.number, number_spot);
        names.insert(port.name.clone(), name_spot);
        Ok(port)
    })
}

/// One port, with the spots of its number and of its name.
fn read_port(table: &mut Table<'_>, several: bool) -> Result<(Port, Spot, Spot), FindingReported> {
    let with_spot = |value: Value<'_>| Ok((value.name()?, value.spot()));
    let name = if several {
        table.required("name", with_spot).map(Some)
    } else {
        table.optional("name", with_spot)
    };
    let number = table.required("port", |value| Ok((value.port()?, value.spot())));
    let protocol = table.required("protocol", read_protocol);
    let target = table.optional("target_port", Value::port);
    let allowed = table.optional("allowed_target_ports", |value| read_allowed(value, several));
    let (number, number_spot) = number?;
    let (name, name_spot) = match name? {
        Some(given) => given,
        None => (
            Name::new(&format!("port-{number}")).map_err(|_| FindingReported)?,
            number_spot.clone(),
        ),
    };
    let port = Port {
        name,
        number,
        protocol: protocol?,
        target: target?.unwrap_or(number),
        allowed_targets: allowed?.unwrap_or_default(),
    };
    Ok((port, number_spot, name_spot))
}

/// Reads the ports that a provider may report.
fn read_allowed(value: Value<'_>, several: bool) -> Result<Vec<PortRange>, FindingReported> {
    let ranges = value.at_least_one("leave it out to allow `target_port` alone", read_range)?;
    if several {
        let message = "a port of a service with several ports cannot have `allowed_target_ports`";
        let finding =
            value.error(codes::INVALID_VALUE, message).label("ambiguous with several ports");
        let help = "a provider reports one port of an instance: give each of the service's ports its \
                    `target_port`, and leave this out";
        return Err(value.report(finding.help(help)));
    }
    Ok(ranges)
}

fn read_range(value: Value<'_>) -> Result<PortRange, FindingReported> {
    let range = if let Some(text) = value.string_if_any() {
        PortRange::parse(text).ok_or_else(|| {
            let message = format!("`{text}` is no range of ports");
            let finding = value.error(codes::INVALID_VALUE, message).label("not a range");
            value.report(finding.help("write one as in `\"20000-32000\"`, or a port as in `8081`"))
        })?
    } else {
        let port = value.port()?;
        PortRange::new(port, port).ok_or(FindingReported)?
    };
    let own: Vec<_> = reserved_ports::all().filter(|own| range.contains(*own)).collect();
    let (Some(first), Some(last)) = (own.iter().min(), own.iter().max()) else { return Ok(range) };
    let message = format!("`{range}` includes ports of Ironmesh itself: {first} to {last}");
    let finding = value.error(codes::INVALID_VALUE, message).label("not allowed");
    Err(value.report(finding.help("write the ranges below and above these")))
}

fn read_protocol(value: Value<'_>) -> Result<Protocol, FindingReported> {
    let text = value.string()?;
    if let Some((_, reason)) = UNSERVED.iter().find(|(word, _)| *word == text) {
        let message = format!("protocol `{text}` is not served");
        let finding = value.error(codes::NOT_SERVED, message).label("not served");
        return Err(value.report(finding.help(*reason)));
    }
    value.word("protocol", &Protocol::ALL)
}

/// Unsupported protocols, with the reasons.
const UNSERVED: [(&str, &str); 2] = [
    ("udp", NO_UDP),
    (
        "http3",
        "the mesh carries HTTP/1.1 and HTTP/2: HTTP/3 runs over UDP; proxies speak HTTP/2 to each other",
    ),
];
