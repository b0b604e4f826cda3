//! `[[egress]]`: these sources may call these hosts or addresses outside of the mesh.

use std::net::IpAddr;

use ironmesh_catalog::{
    Egress, EgressPort, EgressProtocol, Finding, Hostname, IpRange, Name, ServiceAccount,
    SplitMatch, egress_rules, reserved_ports,
};

use super::group_match::read_match;
use super::part::{Id, Part, Reference, ReferenceTarget};
use super::repeats::without_repeats;
use super::service::external::read_hostname;
use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// The most items of each list of an egress, and the most pairs of hosts and ports: each becomes a part of
/// the resources of every caller.
const MOST: usize = 1000;

/// Reads one egress into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let home = id.as_ref().ok().map(|id| &id.namespace);
    let mut references = Vec::new();
    let sources = table.required("sources", |value| {
        let meaning = "an empty list never means anyone: name who may call";
        check_length(value, MOST)?;
        value.at_least_one(meaning, |item| read_source(item, home, &mut references))
    });
    let hosts = table.optional("hosts", |value| {
        check_length(value, MOST)?;
        let meaning = "an empty list never means any host: leave it out, and name `ip_addresses`";
        value.at_least_one(meaning, read_hostname)
    });
    let ip_addresses = table.optional("ip_addresses", |value| {
        check_length(value, MOST)?;
        let meaning = "an empty list never means any address: leave it out, and name `hosts`";
        value.at_least_one(meaning, read_range)
    });
    let is_by_address = table.get("hosts").is_none() && table.get("ip_addresses").is_some();
    let of = EgressContext { is_by_address, hosts: hosts.as_ref().ok() };
    let ports = table.required("ports", |value| {
        let meaning = "an empty list never means any port: name those that may be called";
        let hosts = of.hosts.and_then(Option::as_ref).map_or(1, Vec::len);
        check_length(value, MOST / hosts.clamp(1, MOST))?;
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

/// The keys of an egress; unreadable ones are missing.
struct Lists {
    sources: Result<Vec<ServiceAccount>, FindingReported>,
    hosts: Result<Option<Vec<Hostname>>, FindingReported>,
    ip_addresses: Result<Option<Vec<IpRange>>, FindingReported>,
    ports: Result<Vec<EgressPort>, FindingReported>,
    matches: Result<Option<Vec<SplitMatch>>, FindingReported>,
}

impl Lists {
    fn egress(self, id: &Id) -> Result<Egress, FindingReported> {
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

fn check_length(value: Value<'_>, most: usize) -> Result<(), FindingReported> {
    if value.items()?.len() <= most {
        return Ok(());
    }
    let message = format!("`{}` of an egress has at most {most} items", value.key());
    let finding = value.error(codes::TOO_LARGE, message).label("too many");
    let help = "write several; an egress has at most 1000 hosts times ports, and 1000 sources and \
                ranges of addresses";
    Err(value.report(finding.help(help)))
}

/// Reads an account. Its default namespace is `home`, which is `None` if it could not be read.
fn read_source(
    value: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<ServiceAccount, FindingReported> {
    let mut table = value.table("a source of an egress")?;
    let kind =
        table.optional("kind", |value| value.word("kind of source", &[("ServiceAccount", ())]));
    let name = table.required("name", |value| Ok((value.name()?, value.spot())));
    let namespace = table.optional("namespace", Value::name);
    table.finish();
    let (name, spot) = name?;
    kind?;
    let namespace = namespace?.or_else(|| home.cloned()).ok_or(FindingReported)?;
    let account = ServiceAccount::new(namespace, name);
    references.push(Reference { referenced: ReferenceTarget::Account(account.clone()), spot });
    Ok(account)
}

/// The facts about an egress that its ports depend on.
struct EgressContext<'a> {
    /// Whether it names addresses and no hosts.
    is_by_address: bool,
    hosts: Option<&'a Option<Vec<Hostname>>>,
}

fn read_port(value: Value<'_>, of: &EgressContext<'_>) -> Result<EgressPort, FindingReported> {
    let mut table = value.table("a port of an egress")?;
    let number = table.required("number", |value| {
        let number = value.port()?;
        if reserved_ports::all().any(|own| own == number) {
            let message =
                format!("port `{number}` is reserved for the mesh, so proxies send no calls there");
            let finding = value.error(codes::UNREACHABLE_EGRESS, message).label("of the mesh");
            return Err(value.report(finding.help("name a port of the host outside")));
        }
        Ok(number)
    });
    let protocol = table.required("protocol", |value| {
        let protocol = value.word("protocol of an egress", &EgressProtocol::ALL)?;
        if protocol == EgressProtocol::Http && of.is_by_address {
            let message = "`http` selects requests by host, but the egress has no `hosts`";
            let finding = value.error(codes::INVALID_VALUE, message).label("no host");
            return Err(value.report(finding.help("name `hosts`, or use `tcp`")));
        }
        Ok(protocol)
    });
    table.finish();
    Ok(EgressPort { number: number?, protocol: protocol? })
}

/// The finding for matches without HTTP: they could match nothing, and all calls would be allowed.
fn no_requests(value: Value<'_>) -> FindingReported {
    let message = "`matches` apply to HTTP requests, but no port of the egress is `http`";
    let finding = value.error(codes::INVALID_VALUE, message).label("match nothing");
    value.report(finding.help("remove them; requests inside TLS cannot be matched"))
}

fn read_range(value: Value<'_>) -> Result<IpRange, FindingReported> {
    let text = value.string()?;
    let range: IpRange = text.parse().map_err(|invalid: ironmesh_catalog::InvalidIpRange| {
        let message = format!("`{}` {}: `{text}`", value.key(), invalid.problem);
        let finding = value.error(codes::INVALID_VALUE, message).label("not a range of addresses");
        let help = meant(text).map_or_else(
            || "write one as in `10.1.0.0/16` or `10.1.2.3/32`".to_owned(),
            |range| format!("did you mean `{range}`?"),
        );
        value.report(finding.help(help))
    })?;
    if let Some((_, what)) = egress_rules::blocked_ranges().find(|(never, _)| never.includes(range))
    {
        let message = format!("`{range}` is {what}, so proxies send no calls there");
        let finding = value.error(codes::UNREACHABLE_EGRESS, message).label("never called");
        return Err(value.report(finding.help("name addresses outside of the machine")));
    }
    if egress_rules::loopback().any(|loopback| loopback.includes(range)) {
        let message =
            format!("`{range}` is each machine's own loopback, to which proxies send no calls");
        let finding = Finding::warning(codes::UNREACHABLE_EGRESS, Some(value.spot()), message);
        let help = "only proxies whose own mesh address is one of the loopback go there: those of a \
                    mesh on one machine";
        value.report(finding.label("never called from another machine").help(help));
    }
    Ok(range)
}

/// The valid range nearest to an address without a length, or to a range with bits beyond its length.
fn meant(text: &str) -> Option<IpRange> {
    let (address, length) = text.split_once('/').map_or((text, None), |(a, l)| (a, Some(l)));
    let address: IpAddr = address.parse().ok()?;
    match length {
        None => Some(IpRange::of(address)),
        Some(length) => IpRange::around(address, length.parse().ok()?),
    }
}
