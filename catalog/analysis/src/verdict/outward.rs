//! Calls that leave the mesh: whether egress lets them, and to where.

use std::net::IpAddr;

use ironmesh_catalog::allowed_traffic::{AllowedTraffic, AllowingRule};
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::exits::{self, EgressRules};
use ironmesh_catalog::hosts;
use ironmesh_catalog::ip_range::IpRange;
use ironmesh_catalog::name::ServiceAccount;
use ironmesh_catalog::policy::{Egress, EgressProtocol};
use ironmesh_catalog::proxy::{OutsideAuthority, OutsideHost};
use ironmesh_catalog::reserved_ports;
use ironmesh_catalog::service::EscapedSlashes;
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::matching::{Mismatch, mismatches};
use super::question::known_account;
use super::request::Arrival;
use super::{Answer, QuestionError, Request, path};

/// A call to a host or an address outside of the mesh that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutwardQuestion {
    /// Who calls.
    pub caller: ServiceAccount,
    /// What it calls.
    pub to: OutsideAuthority,
    /// The request in plain HTTP; all there may be, and connections, where left out.
    pub request: Option<Request>,
}

/// The answer to an [`OutwardQuestion`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutwardVerdict {
    /// Who calls.
    pub caller: ServiceAccount,
    /// Whether a service of policy runs as the caller. If not, no proxy calls as it.
    pub caller_runs: bool,
    /// What it calls: a host or an address, with its port.
    pub to: String,
    /// The request; none where all are asked about, and connections.
    pub request: Option<Request>,
    /// The path as it is compared, where it is not the one that was asked about.
    pub compared_path: Option<String>,
    /// Whether policy lets it through.
    #[serde(flatten)]
    pub answer: Answer,
    /// Why it is never called, whatever policy says.
    pub never: Option<String>,
    /// Whether all calls of the caller pass that policy does not speak of.
    pub passes_through: bool,
    /// The host by which policy speaks of it: `*.example.com`, say.
    pub known_as: Option<String>,
    /// What egresses say of the host or address on this port.
    pub ways: Vec<WayOut>,
}

/// What an egress says of a host or an address on one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayOut {
    /// The egress.
    pub egress: Cited,
    /// What is spoken there: `http`, `https` or `tcp`.
    pub protocol: String,
    /// The match that it names, if it names any.
    pub rule: Option<Cited>,
    /// What it allows.
    pub way: AllowedTraffic,
    /// The addresses at which the host must be; anywhere if there are none.
    pub addresses: Vec<String>,
    /// What of the match does not hold of the request.
    pub mismatches: Vec<Mismatch>,
}

impl WayOut {
    /// Whether it lets through what was asked about.
    fn lets_through(&self, request: Option<&Arrival>) -> bool {
        // On connections no request is told from another.
        request.is_none() || (self.way != AllowedTraffic::Connections && self.mismatches.is_empty())
    }
}

/// Answers a question about a call that leaves the mesh.
pub fn outward(
    snapshot: &Snapshot,
    question: &OutwardQuestion,
) -> Result<OutwardVerdict, QuestionError> {
    let OutwardQuestion { caller, to, request } = question;
    known_account(snapshot, caller)?;
    if let Some(problem) = request.as_ref().and_then(Request::problem) {
        return Err(QuestionError::Request(problem));
    }
    if request.as_ref().is_some_and(|request| request.host().is_some()) {
        let problem = "the host is the one that is called: leave the header host out";
        return Err(QuestionError::Request(problem.to_owned()));
    }
    if let OutsideHost::Name(name) = &to.host {
        inside(snapshot, caller, name.as_str(), to.port)?;
    }
    let services = snapshot.specification.services.values();
    let mut verdict = OutwardVerdict {
        caller: caller.clone(),
        caller_runs: services.into_iter().any(|service| service.account == *caller),
        to: to.to_string(),
        request: request.clone(),
        compared_path: None,
        answer: Answer::Denied,
        never: never(to),
        passes_through: snapshot.passes_through(&caller.namespace),
        known_as: None,
        ways: Vec::new(),
    };
    let arrival = request.as_ref().map(|request| {
        let path = path::normalized(&request.path, EscapedSlashes::Reject)?;
        Ok(Arrival::of(request, path, &verdict.to))
    });
    let arrival = match arrival.transpose() {
        Ok(arrival) => arrival,
        Err(path::Rejected(reason)) => {
            return Ok(OutwardVerdict { answer: Answer::Rejected(reason.to_owned()), ..verdict });
        }
    };
    let is_other = |path: &String| request.as_ref().is_some_and(|one| one.path != *path);
    verdict.compared_path = arrival.as_ref().map(|one| one.path.clone()).filter(is_other);
    // What lets all pass lets these pass as well.
    if !verdict.passes_through {
        (verdict.known_as, verdict.ways) = ways(snapshot, caller, to, arrival.as_ref());
    }
    let mut ways = verdict.ways.iter();
    let is_allowed = verdict.passes_through || ways.any(|way| way.lets_through(arrival.as_ref()));
    if is_allowed && verdict.never.is_none() {
        verdict.answer = Answer::Allowed;
    }
    Ok(verdict)
}

/// What is in the mesh, or has a name in it, is asked about by that.
fn inside(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    name: &str,
    port: u16,
) -> Result<(), QuestionError> {
    let authority = format!("{name}:{port}");
    if hosts::is_of_the_mesh(snapshot, name) {
        return Err(QuestionError::Request(format!(
            "`{authority}` is a name of the mesh: ask about its service, by `--to`"
        )));
    }
    let mut services = snapshot.specification.services.values();
    let called_so = services.find_map(|service| {
        let external = service.external.as_ref()?;
        let mut ports = service.service_ports();
        let known = hosts::is_passed_through(service) || external.hostname.is_some();
        let is_it = known
            && ports.any(|(port, _)| {
                let all = hosts::hosts(snapshot, caller, service, &port);
                all.iter().any(|host| host.eq_ignore_ascii_case(&authority))
            });
        is_it.then_some(&service.name)
    });
    match called_so {
        None => Ok(()),
        Some(service) => Err(QuestionError::Request(format!(
            "`{authority}` is the external service `{service}`: ask about that, by `--to {service}`"
        ))),
    }
}

/// Why nobody is let to call it, by its address or its port.
fn never(to: &OutsideAuthority) -> Option<String> {
    if reserved_ports::all().any(|port| port == to.port) {
        return Some(format!("the port {} is the mesh's own", to.port));
    }
    let OutsideHost::Address(address) = to.host else { return None };
    let here = IpRange::of(match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    });
    let mut ranges = exits::never_called();
    let range = ranges.find(|(range, _)| range.includes(here));
    range.map(|(range, what)| format!("`{range}` is {what}"))
}

/// What egresses say of it, and by which host.
fn ways(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    to: &OutsideAuthority,
    arrival: Option<&Arrival>,
) -> (Option<String>, Vec<WayOut>) {
    let egresses = snapshot.specification.egresses.values();
    let own = egresses.into_iter().filter(|egress| egress.sources.contains(caller));
    let exits = EgressRules::of(own.map(|egress| &**egress));
    match &to.host {
        OutsideHost::Address(address) => {
            let known = exits.at_address(*address, to.port);
            let ways = known.iter().map(|one| connections(one.egress, one.protocol, false));
            (None, ways.collect())
        }
        OutsideHost::Name(host) => {
            let Some((known, exit)) = exits.at_host(host, to.port) else {
                return (None, Vec::new());
            };
            let requests = exit.requests.iter().flat_map(|one| requests(snapshot, one, arrival));
            let connected = exit.connections.iter();
            let connected =
                connected.map(|(egress, protocol)| connections(egress, *protocol, true));
            let known_as = (known.as_str() != host.as_str()).then(|| known.to_string());
            (known_as, requests.chain(connected).collect())
        }
    }
}

fn connections(egress: &Egress, protocol: EgressProtocol, by_name: bool) -> WayOut {
    let addresses = if by_name { addresses(egress) } else { Vec::new() };
    WayOut {
        egress: Cited::egress(egress),
        protocol: protocol.to_string(),
        rule: None,
        way: AllowedTraffic::Connections,
        addresses,
        mismatches: Vec::new(),
    }
}

fn requests(snapshot: &Snapshot, egress: &Egress, arrival: Option<&Arrival>) -> Vec<WayOut> {
    let all = WayOut {
        egress: Cited::egress(egress),
        protocol: EgressProtocol::Http.to_string(),
        rule: None,
        way: AllowedTraffic::EveryRequest,
        addresses: addresses(egress),
        mismatches: Vec::new(),
    };
    if egress.matches.is_empty() {
        return vec![all];
    }
    let named = egress.requests(&snapshot.specification).map(|(group, one)| WayOut {
        rule: Some(AllowingRule::Match(group, one).cited()),
        way: AllowedTraffic::from(one),
        mismatches: arrival.map(|arrival| mismatches(one, arrival)).unwrap_or_default(),
        ..all.clone()
    });
    named.collect()
}

fn addresses(egress: &Egress) -> Vec<String> {
    egress.ip_addresses.iter().map(ToString::to_string).collect()
}
