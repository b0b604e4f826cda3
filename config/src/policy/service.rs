//! `[[service]]`: a logical name with ports.

use std::collections::BTreeMap;

use ironmesh_catalog::{
    EndpointSource, Mode, Name, Port, Protocol, Service, ServiceAccount, ServiceName, Spot,
};

use super::endpoints;
use super::part::{Id, Part};
use crate::codes;
use crate::mode;
use crate::suggest::{closest, did_you_mean};
use crate::table::{Table, Told, Value, list};

/// Reads one service into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let account = table.optional("service_account", Value::name);
    let ports = table.optional("ports", read_ports).map(Option::unwrap_or_default);
    let mode = table.optional("mode", mode::read);
    let endpoints =
        table.optional("endpoints", |value| endpoints::read(value, ports.as_deref().ok()));
    if let Ok(id) = id {
        let account = account.map(|account| {
            let account = account.unwrap_or_else(|| id.name.clone());
            ServiceAccount::new(id.namespace.clone(), account)
        });
        let name = ServiceName::new(id.namespace.clone(), id.name.clone());
        match &account {
            Ok(account) => {
                part.accounts.insert(account.clone());
            }
            Err(Told) => {
                part.may_be_defined.insert(id.name.to_string());
            }
        }
        let service = service(name, account, ports, endpoints, mode, id.spot.clone());
        part.services.push(&id, service);
    }
    table.finish();
}

fn service(
    name: ServiceName,
    account: Result<ServiceAccount, Told>,
    ports: Result<Vec<Port>, Told>,
    endpoints: Result<Option<EndpointSource>, Told>,
    mode: Result<Option<Mode>, Told>,
    spot: Spot,
) -> Result<Service, Told> {
    let mut ports = ports?;
    ports.sort_by_key(|port| port.number);
    let endpoints = endpoints?.unwrap_or(EndpointSource::Registered);
    Ok(Service { name, account: account?, ports, endpoints, mode: mode?, spot })
}

fn read_ports(value: Value<'_>) -> Result<Vec<Port>, Told> {
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
            item.tell(
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
fn read_port(table: &mut Table<'_>, several: bool) -> Result<(Port, Spot, Spot), Told> {
    let with_spot = |value: Value<'_>| Ok((value.name()?, value.spot()));
    let name = if several {
        table.required("name", with_spot).map(Some)
    } else {
        table.optional("name", with_spot)
    };
    let number = table.required("port", |value| Ok((value.port()?, value.spot())));
    let protocol = table.required("protocol", read_protocol);
    let target = table.optional("target_port", Value::port);
    let (number, number_spot) = number?;
    let (name, name_spot) = match name? {
        Some(given) => given,
        None => (Name::new(&format!("port-{number}")).map_err(|_| Told)?, number_spot.clone()),
    };
    let port = Port { name, number, protocol: protocol?, target: target?.unwrap_or(number) };
    Ok((port, number_spot, name_spot))
}

fn read_protocol(value: Value<'_>) -> Result<Protocol, Told> {
    let text = value.string()?;
    if let Some((_, protocol)) = Protocol::ALL.iter().find(|(word, _)| *word == text) {
        return Ok(*protocol);
    }
    let words = Protocol::ALL.map(|(word, _)| word);
    let served = format!("this version serves {}", list(&words));
    let finding = if UNSERVED_PROTOCOLS.contains(&text) {
        let message = format!("protocol `{text}` is not served by this version");
        value.error(codes::NOT_SERVED, message).label("not served").help(served)
    } else {
        let near = closest(&text.to_lowercase(), words).map(did_you_mean);
        value
            .error(codes::INVALID_VALUE, format!("there is no protocol `{text}`"))
            .label("unknown protocol")
            .help(near.unwrap_or(served))
    };
    Err(value.tell(finding))
}

/// Protocols of the field, by Istio's names.
const UNSERVED_PROTOCOLS: [&str; 8] =
    ["tls", "https", "mysql", "redis", "mongo", "udp", "grpc-web", "http3"];
