//! A backend of an ingress backend: a service port, and the entry at which callers outside of the mesh reach
//! its proxies.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::{
    Finding, Hostname, IngressEntry, IngressPort, Name, ServiceName, ServicePort, Spot,
    reserved_ports,
};

use super::super::part::{Reference, ReferenceTarget};
use super::refer;
use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// The most names of a backend: each becomes a match of its filter chain.
const MOST_HOSTS: usize = 100;

/// What the sources of a backend must agree with: the spots of its protocol, and of the key by which it
/// requires no client certificates.
#[derive(Debug)]
pub(super) struct Meaning<'a> {
    pub(super) protocol: Value<'a>,
    pub(super) skips: Option<Value<'a>>,
}

/// The ingress entries that a list of backends has named, with their spots.
pub(super) type NamedEntries = BTreeMap<(Name, u16, &'static str), Spot>;

/// Reads one backend of the namespace `home`, which is `None` if it could not be read.
pub(super) fn read<'a>(
    item: Value<'a>,
    home: Option<&Name>,
    seen: &mut NamedEntries,
    references: &mut Vec<Reference>,
) -> Result<(IngressPort, Meaning<'a>), FindingReported> {
    let mut table = item.table("a backend of an ingress backend")?;
    let service = table.required("name", |value| Ok((value.name()?, value)));
    let port = table.required("port", read_port);
    let protocol = port.as_ref().ok().map(|port| port.protocol.0);
    let tls = table.optional("tls", |value| match protocol {
        Some(Protocol::Http) => read_tls(value).and_then(|_| Err(reject_tls_of_http(value))),
        Some(Protocol::Https) | None => read_tls(value),
    });
    if matches!((protocol, &tls), (Some(Protocol::Https), Ok(None))) {
        return Err(without_hosts(&table));
    }
    table.finish();
    let (name, value) = service?;
    let home = home.cloned().ok_or(FindingReported)?;
    let service = ServiceName::new(home, name.clone());
    references.push(refer(ReferenceTarget::Service(service.clone()), value));
    let (port, tls) = (port?, tls?);
    let (entry, skips) = match tls {
        None => (IngressEntry::Http { port: port.entry.unwrap_or(port.number) }, None),
        Some(Tls { hosts, skips }) => {
            (IngressEntry::Https { hosts, skips_client_certificates: skips.is_some() }, skips)
        }
    };
    check_not_reserved(&port, &entry)?;
    let key = (name.clone(), port.number, entry.protocol());
    if let Some(first) = seen.insert(key, value.spot()) {
        let message =
            format!("port {} of `{name}` is given twice with `{}`", port.number, entry.protocol());
        let finding = value.error(codes::INGRESS_COLLISION, message).label("given again");
        return Err(value.report(finding.related(first, "first given here")));
    }
    let port_of_service = ServicePort::new(service, port.number);
    let port_read = IngressPort { port: port_of_service, entry, spot: value.spot() };
    Ok((port_read, Meaning { protocol: port.protocol.1, skips }))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http,
    Https,
}

const PROTOCOLS: [(&str, Protocol); 2] = [("http", Protocol::Http), ("https", Protocol::Https)];

struct Port<'a> {
    number: u16,
    protocol: (Protocol, Value<'a>),
    /// The port of an entry over HTTP, if it is given.
    entry: Option<u16>,
    /// The spot of the port of an entry over HTTP.
    at: Value<'a>,
}

fn read_port(value: Value<'_>) -> Result<Port<'_>, FindingReported> {
    let mut table = value.table("the port of a backend")?;
    let number = table.required("number", |value| Ok((value.port()?, value)));
    let protocol = table.required("protocol", |value| {
        if value.string()? == "tcp" {
            let message = "ingress does not support `tcp`";
            let finding = value.error(codes::INVALID_VALUE, message).label("neither of both");
            let help = "ingress is for HTTP: write `http`, or `https` for TLS";
            return Err(value.report(finding.help(help)));
        }
        Ok((value.word("protocol of ingress", &PROTOCOLS)?, value))
    });
    let ingress_port = table.optional("ingress_port", |value| match protocol {
        Ok((Protocol::Https, _)) => value.port().and_then(|_| Err(reject_port_of_https(value))),
        Ok((Protocol::Http, _)) | Err(FindingReported) => Ok((value.port()?, value)),
    });
    table.finish();
    let (number, written) = number?;
    let ingress_port = ingress_port?;
    Ok(Port {
        number,
        protocol: protocol?,
        at: ingress_port.map_or(written, |(_, value)| value),
        entry: ingress_port.map(|(port, _)| port),
    })
}

struct Tls<'a> {
    hosts: Vec<Hostname>,
    skips: Option<Value<'a>>,
}

fn read_tls(value: Value<'_>) -> Result<Tls<'_>, FindingReported> {
    let mut table = value.table("the `tls` of a backend")?;
    let hosts = table.required("sni_hosts", |value| {
        if value.items()?.len() > MOST_HOSTS {
            let message = format!("`sni_hosts` has more than {MOST_HOSTS} names");
            let finding = value.error(codes::TOO_LARGE, message).label("too many");
            return Err(value.report(finding.help("name what is above them: `*.example.com`")));
        }
        value.at_least_one("name by what callers ask for the service in SNI", read_host)
    });
    let skips = table
        .optional("skip_client_cert_validation", |value| Ok(value.boolean()?.then_some(value)));
    table.finish();
    let mut seen = BTreeSet::new();
    let mut hosts = hosts?;
    hosts.retain(|host| seen.insert(host.clone()));
    Ok(Tls { hosts, skips: skips?.flatten() })
}

fn read_host(value: Value<'_>) -> Result<Hostname, FindingReported> {
    let text = value.string()?;
    Hostname::new(text).map_err(|invalid| {
        let message = format!("`{}` {}: `{text}`", value.key(), invalid.problem);
        let finding = value.error(codes::INVALID_NAME, message).label("not a hostname");
        value.report(finding.help("write one as in `shop.example.com` or `*.example.com`"))
    })
}

/// The finding for a port that is reserved for the proxy.
fn check_not_reserved(port: &Port<'_>, entry: &IngressEntry) -> Result<(), FindingReported> {
    let IngressEntry::Http { port: number } = entry else { return Ok(()) };
    if !reserved_ports::PROXY_PORTS.contains(number) {
        return Ok(());
    }
    let message = format!("port {number} is one of the proxy's own");
    let finding = port.at.error(codes::INGRESS_COLLISION, message).label("taken");
    let own: Vec<_> = reserved_ports::PROXY_PORTS.iter().map(u16::to_string).collect();
    let help = format!("give another as `ingress_port`, and none of {}", own.join(", "));
    Err(port.at.report(finding.help(help)))
}

fn reject_tls_of_http(value: Value<'_>) -> FindingReported {
    let message = "a backend over `http` has no `tls`";
    let finding = value.error(codes::INGRESS_CONTRADICTION, message).label("has no effect");
    value.report(finding.help("write `protocol = \"https\"`, or remove it"))
}

fn reject_port_of_https(value: Value<'_>) -> FindingReported {
    let message = "a backend over `https` has no port of its own";
    let finding = value.error(codes::INGRESS_CONTRADICTION, message).label("has no effect");
    let help = format!(
        "it is called at the mesh port of the proxies ({}), by `sni_hosts`: remove it",
        reserved_ports::MESH
    );
    value.report(finding.help(help))
}

fn without_hosts(table: &Table<'_>) -> FindingReported {
    let message = "a backend over `https` needs `tls`";
    let finding = Finding::error(codes::MISSING_KEY, Some(table.spot()), message);
    let help =
        "name the hosts that callers request: `tls = { sni_hosts = [\"shop.example.com\"] }`";
    table.report(finding.label("`tls` is missing").help(help))
}
