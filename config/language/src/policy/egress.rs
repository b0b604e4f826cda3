//! `[[egress]]`: these sources may call these hosts or addresses outside of the mesh.

use std::net::IpAddr;

use ironmesh_catalog::{
    Egress, EgressPort, EgressProtocol, Finding, Hostname, IpRange, Name, ServiceAccount,
    SplitMatch, egress_rules, reserved_ports,
};

use super::group_match::read_match;
use super::part::{Id, Part, Reference, Wanted};
use super::repeats::without_repeats;
use super::service::external::read_hostname;
use crate::codes;
use crate::table::{Table, Told, Value};

/// How many items each list of an egress may have, and how many hosts times ports: each of these is a
/// part of what every caller is told.
const MOST: usize = 1000;

/// Reads one egress into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let home = id.as_ref().ok().map(|id| &id.namespace);
    let mut references = Vec::new();
    let sources = table.required("sources", |value| {
        let meaning = "an empty list never means anyone: name who may call";
        not_too_many(value, MOST)?;
        value.at_least_one(meaning, |item| read_source(item, home, &mut references))
    });
    let hosts = table.optional("hosts", |value| {
        not_too_many(value, MOST)?;
        let meaning = "an empty list never means any host: leave it out, and name `ip_addresses`";
        value.at_least_one(meaning, read_hostname)
    });
    let ip_addresses = table.optional("ip_addresses", |value| {
        not_too_many(value, MOST)?;
        let meaning = "an empty list never means any address: leave it out, and name `hosts`";
        value.at_least_one(meaning, read_range)
    });
    let is_by_address = table.get("hosts").is_none() && table.get("ip_addresses").is_some();
    let of = Of { is_by_address, hosts: hosts.as_ref().ok() };
    let ports = table.required("ports", |value| {
        let meaning = "an empty list never means any port: name those that may be called";
        let hosts = of.hosts.and_then(Option::as_ref).map_or(1, Vec::len);
        not_too_many(value, MOST / hosts.clamp(1, MOST))?;
        value.at_least_one(meaning, |item| read_port(item, &of))
    });
    let matches = table.optional("matches", |value| {
        let is_http = |port: &EgressPort| port.protocol == EgressProtocol::Http;
        if ports.as_ref().is_ok_and(|ports| !ports.iter().any(is_http)) {
            return Err(no_requests(value));
        }
        let meaning = "leave `matches` out for all requests";
        let what = "a match of an egress";
        value.at_least_one(meaning, |item| read_match(item, what, home, &mut references))
    });
    let nothing = matches!((&hosts, &ip_addresses), (Ok(None), Ok(None)));
    let named = if nothing { Err(table.missing("hosts` or `ip_addresses")) } else { Ok(()) };
    if let Ok(id) = id {
        part.references.extend(references);
        let read = Lists { sources, hosts, ip_addresses, ports, matches };
        part.egresses.push(&id, named.and_then(|()| read.egress(&id)));
    }
    table.finish();
}

/// The keys of an egress, as far as they could be read.
struct Lists {
    sources: Result<Vec<ServiceAccount>, Told>,
    hosts: Result<Option<Vec<Hostname>>, Told>,
    ip_addresses: Result<Option<Vec<IpRange>>, Told>,
    ports: Result<Vec<EgressPort>, Told>,
    matches: Result<Option<Vec<SplitMatch>>, Told>,
}

impl Lists {
    fn egress(self, id: &Id) -> Result<Egress, Told> {
        let mut ports = self.ports?;
        ports.sort_by_key(|port| (port.number, port.protocol));
        ports.dedup();
        Ok(Egress {
            namespace: id.namespace.clone(),
            name: id.name.clone(),
            sources: without_repeats(self.sources?),
            hosts: without_repeats(self.hosts?.unwrap_or_default()),
            ip_addresses: without_repeats(self.ip_addresses?.unwrap_or_default()),
            ports,
            matches: self.matches?.unwrap_or_default(),
            spot: id.spot.clone(),
        })
    }
}

fn not_too_many(value: Value<'_>, most: usize) -> Result<(), Told> {
    if value.items()?.len() <= most {
        return Ok(());
    }
    let message = format!("`{}` of an egress has at most {most} items", value.key());
    let finding = value.error(codes::TOO_LARGE, message).label("too many");
    let help = "write several; an egress has at most 1000 hosts times ports, and 1000 sources and \
                ranges of addresses";
    Err(value.tell(finding.help(help)))
}

/// Reads an account. Its namespace is `home` unless it says another; `home` is `None` if it could not be
/// read.
fn read_source(
    value: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<ServiceAccount, Told> {
    let mut table = value.table("a source of an egress")?;
    let kind =
        table.optional("kind", |value| value.word("kind of source", &[("ServiceAccount", ())]));
    let name = table.required("name", |value| Ok((value.name()?, value.spot())));
    let namespace = table.optional("namespace", Value::name);
    table.finish();
    let (name, spot) = name?;
    kind?;
    let namespace = namespace?.or_else(|| home.cloned()).ok_or(Told)?;
    let account = ServiceAccount::new(namespace, name);
    references.push(Reference { wanted: Wanted::Account(account.clone()), spot });
    Ok(account)
}

/// What a port needs to know of the egress.
struct Of<'a> {
    /// Whether addresses are named and no hosts.
    is_by_address: bool,
    hosts: Option<&'a Option<Vec<Hostname>>>,
}

fn read_port(value: Value<'_>, of: &Of<'_>) -> Result<EgressPort, Told> {
    let mut table = value.table("a port of an egress")?;
    let number = table.required("number", |value| {
        let number = value.port()?;
        if reserved_ports::all().any(|own| own == number) {
            let message =
                format!("port `{number}` is the mesh's own, where no proxy lets anybody go");
            let finding = value.error(codes::NO_WAY_OUT, message).label("of the mesh");
            return Err(value.tell(finding.help("name a port of the host outside")));
        }
        Ok(number)
    });
    let protocol = table.required("protocol", |value| {
        let protocol = value.word("protocol of an egress", &EgressProtocol::ALL)?;
        if protocol == EgressProtocol::Http && of.is_by_address {
            let message = "requests are told apart by their host, and the egress names no `hosts`";
            let finding = value.error(codes::INVALID_VALUE, message).label("which of them?");
            return Err(value.tell(finding.help("name `hosts`, or say `tcp`")));
        }
        Ok(protocol)
    });
    table.finish();
    Ok(EgressPort { number: number?, protocol: protocol? })
}

/// Without requests there is nothing that they could match, and all would pass.
fn no_requests(value: Value<'_>) -> Told {
    let message = "`matches` are about requests of HTTP, and no port of the egress is of `http`";
    let finding = value.error(codes::INVALID_VALUE, message).label("match nothing");
    value.tell(finding.help("take them out; what is in TLS cannot be told apart"))
}

fn read_range(value: Value<'_>) -> Result<IpRange, Told> {
    let text = value.string()?;
    let range: IpRange = text.parse().map_err(|invalid: ironmesh_catalog::InvalidName| {
        let message = format!("`{}` {}: `{text}`", value.key(), invalid.problem);
        let finding = value.error(codes::INVALID_VALUE, message).label("not a range of addresses");
        let help = meant(text).map_or_else(
            || "write one as in `10.1.0.0/16` or `10.1.2.3/32`".to_owned(),
            |range| format!("did you mean `{range}`?"),
        );
        value.tell(finding.help(help))
    })?;
    if let Some((_, what)) = egress_rules::blocked_ranges().find(|(never, _)| never.includes(range))
    {
        let message = format!("`{range}` is {what}, where no proxy lets anybody go");
        let finding = value.error(codes::NO_WAY_OUT, message).label("never called");
        return Err(value.tell(finding.help("name addresses outside of the machine")));
    }
    if egress_rules::loopback().any(|loopback| loopback.includes(range)) {
        let message =
            format!("`{range}` is each machine's own loopback, where proxies lead nobody");
        let finding = Finding::warning(codes::NO_WAY_OUT, Some(value.spot()), message);
        let help = "only proxies whose own mesh address is one of the loopback go there: those of a \
                    mesh on one machine";
        value.tell(finding.label("never called from another machine").help(help));
    }
    Ok(range)
}

/// The range that somebody meant who wrote an address, or one with bits behind its length.
fn meant(text: &str) -> Option<IpRange> {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().ok()?;
    match length {
        None => Some(IpRange::of(address)),
        Some(length) => IpRange::around(address, length.parse().ok()?),
    }
}
