//! Verdicts on calls to hosts and addresses outside the mesh.
//!
//! This module owns the evaluation of egress objects. It never evaluates traffic targets, which are about
//! services.

use std::net::IpAddr;

use ironmesh_catalog::allowed_traffic::{AllowedTraffic, AllowingRule};
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::egress_rules::{self, EgressRules};
use ironmesh_catalog::hosts;
use ironmesh_catalog::ip_range::IpRange;
use ironmesh_catalog::name::ServiceAccount;
use ironmesh_catalog::policy::{Egress, EgressProtocol};
use ironmesh_catalog::proxy::{OutsideAuthority, OutsideHost};
use ironmesh_catalog::reserved_ports;
use ironmesh_catalog::service::EscapedSlashes;
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::matching::{Mismatch, mismatches};
use super::question::known_account;
use super::request::Arrival;
use super::{Answer, QuestionError, Request, path};

/// A question about a call to a host or an address outside the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressQuestion {
    /// The account that calls.
    pub caller: ServiceAccount,
    /// The host or address that it calls, with the port.
    pub to: OutsideAuthority,
    /// The request in plain HTTP; without one, the question is about every request and connections.
    pub request: Option<Request>,
}

/// The answer to an [`EgressQuestion`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressVerdict {
    /// The account that calls.
    pub caller: ServiceAccount,
    /// Whether a service of policy runs as the caller. Otherwise no proxy calls as this account.
    pub caller_runs: bool,
    /// The host or address that it calls, with the port.
    pub to: String,
    /// The request; none if the question is about every request and connections.
    pub request: Option<Request>,
    /// The normalized path that rules compare, if it differs from the request's path.
    pub compared_path: Option<String>,
    /// Whether policy allows the call.
    #[serde(flatten)]
    pub answer: Answer,
    /// Why proxies block the destination, whatever policy allows.
    pub blocked_reason: Option<String>,
    /// Whether egress is `passthrough` for the caller: no egress object is needed.
    pub passes_through: bool,
    /// The host of policy that covers it, if its name differs, such as `*.example.com`.
    pub matched_host: Option<String>,
    /// The verdict of each egress with the host or address on this port.
    pub rules: Vec<EgressRuleVerdict>,
}

/// The verdict of one egress rule on a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressRuleVerdict {
    /// The egress.
    pub egress: Cited,
    /// The protocol of the port: `http`, `https` or `tcp`.
    pub protocol: String,
    /// The match that the egress names, if any.
    pub rule: Option<Cited>,
    /// The traffic that it allows.
    pub traffic: AllowedTraffic,
    /// The address ranges in which the host must be; empty if any address will do.
    pub addresses: Vec<String>,
    /// The conditions of the match that the request does not meet.
    pub mismatches: Vec<Mismatch>,
}

impl EgressRuleVerdict {
    /// Whether it allows the call.
    fn allows(&self, request: Option<&Arrival>) -> bool {
        // Requests on a connection are not visible to the proxy.
        request.is_none()
            || (self.traffic != AllowedTraffic::Connections && self.mismatches.is_empty())
    }
}

/// Evaluates a call that leaves the mesh.
pub fn egress_verdict(
    snapshot: &Snapshot,
    question: &EgressQuestion,
) -> Result<EgressVerdict, QuestionError> {
    let EgressQuestion { caller, to, request } = question;
    known_account(snapshot, caller)?;
    if let Some(problem) = request.as_ref().and_then(Request::problem) {
        return Err(QuestionError::Request(problem));
    }
    if request.as_ref().is_some_and(|request| request.host().is_some()) {
        let problem = "the host is the one that is called: leave the header host out";
        return Err(QuestionError::Request(problem.to_owned()));
    }
    if let OutsideHost::Name(name) = &to.host {
        reject_mesh_name(snapshot, caller, name.as_str(), to.port)?;
    }
    let services = snapshot.specification.services.values();
    let mut verdict = EgressVerdict {
        caller: caller.clone(),
        caller_runs: services.into_iter().any(|service| service.account == *caller),
        to: to.to_string(),
        request: request.clone(),
        compared_path: None,
        answer: Answer::Denied,
        blocked_reason: blocked_reason(to),
        passes_through: snapshot.passes_through(&caller.namespace),
        matched_host: None,
        rules: Vec::new(),
    };
    let arrival = request.as_ref().map(|request| {
        let path = path::normalized(&request.path, EscapedSlashes::Reject)?;
        Ok(Arrival::of(request, path, &verdict.to))
    });
    let arrival = match arrival.transpose() {
        Ok(arrival) => arrival,
        Err(path::Rejected(reason)) => {
            return Ok(EgressVerdict { answer: Answer::Rejected(reason.to_owned()), ..verdict });
        }
    };
    let is_other = |path: &String| request.as_ref().is_some_and(|one| one.path != *path);
    verdict.compared_path = arrival.as_ref().map(|one| one.path.clone()).filter(is_other);
    // Passthrough allows everything that an egress could.
    if !verdict.passes_through {
        (verdict.matched_host, verdict.rules) = rules(snapshot, caller, to, arrival.as_ref());
    }
    let mut rules = verdict.rules.iter();
    let is_allowed = verdict.passes_through || rules.any(|rule| rule.allows(arrival.as_ref()));
    if is_allowed && verdict.blocked_reason.is_none() {
        verdict.answer = Answer::Allowed;
    }
    Ok(verdict)
}

/// An error if the name belongs to a service of the mesh: questions about services are different ones.
fn reject_mesh_name(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    name: &str,
    port: u16,
) -> Result<(), QuestionError> {
    let authority = format!("{name}:{port}");
    if hosts::is_mesh_host(snapshot, name) {
        return Err(QuestionError::Request(format!(
            "`{authority}` is a name of the mesh: ask about its service, by `--to`"
        )));
    }
    let mut services = snapshot.specification.services.values();
    let external_service = services.find_map(|service| {
        let external = service.external.as_ref()?;
        let mut ports = service.service_ports();
        let known = hosts::is_passed_through(service) || external.hostname.is_some();
        let is_same = known
            && ports.any(|(port, _)| {
                let all = hosts::hosts(snapshot, caller, service, &port);
                all.iter().any(|host| host.eq_ignore_ascii_case(&authority))
            });
        is_same.then_some(&service.name)
    });
    match external_service {
        None => Ok(()),
        Some(service) => Err(QuestionError::Request(format!(
            "`{authority}` is the external service `{service}`: ask about that, by `--to {service}`"
        ))),
    }
}

/// Why proxies block the destination for every caller, by its address or port.
fn blocked_reason(to: &OutsideAuthority) -> Option<String> {
    if reserved_ports::all().any(|port| port == to.port) {
        return Some(format!("the port {} is the mesh's own", to.port));
    }
    let OutsideHost::Address(address) = to.host else { return None };
    let here = IpRange::of(match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    });
    let mut ranges = egress_rules::blocked_ranges();
    let range = ranges.find(|(range, _)| range.includes(here));
    range.map(|(range, what)| format!("`{range}` is {what}"))
}

/// The verdicts of the egresses with this destination, and the host by which policy names it.
fn rules(
    snapshot: &Snapshot,
    caller: &ServiceAccount,
    to: &OutsideAuthority,
    arrival: Option<&Arrival>,
) -> (Option<String>, Vec<EgressRuleVerdict>) {
    let egresses = snapshot.specification.egresses.values();
    let own = egresses.into_iter().filter(|egress| egress.sources.contains(caller));
    let egress_rules = EgressRules::of(own.map(|egress| &**egress));
    match &to.host {
        OutsideHost::Address(address) => {
            let known = egress_rules.at_address(*address, to.port);
            let rules = known.iter().map(|one| connections(one.egress, one.protocol, false));
            (None, rules.collect())
        }
        OutsideHost::Name(host) => {
            let Some((known, exit)) = egress_rules.at_host(host, to.port) else {
                return (None, Vec::new());
            };
            let requests = exit.requests.iter().flat_map(|one| requests(snapshot, one, arrival));
            let connected = exit.connections.iter();
            let connected =
                connected.map(|(egress, protocol)| connections(egress, *protocol, true));
            let matched_host = (known.as_str() != host.as_str()).then(|| known.to_string());
            (matched_host, requests.chain(connected).collect())
        }
    }
}

fn connections(egress: &Egress, protocol: EgressProtocol, by_name: bool) -> EgressRuleVerdict {
    let addresses = if by_name { addresses(egress) } else { Vec::new() };
    EgressRuleVerdict {
        egress: Cited::egress(egress),
        protocol: protocol.to_string(),
        rule: None,
        traffic: AllowedTraffic::Connections,
        addresses,
        mismatches: Vec::new(),
    }
}

fn requests(
    snapshot: &Snapshot,
    egress: &Egress,
    arrival: Option<&Arrival>,
) -> Vec<EgressRuleVerdict> {
    let all = EgressRuleVerdict {
        egress: Cited::egress(egress),
        protocol: EgressProtocol::Http.to_string(),
        rule: None,
        traffic: AllowedTraffic::EveryRequest,
        addresses: addresses(egress),
        mismatches: Vec::new(),
    };
    if egress.matches.is_empty() {
        return vec![all];
    }
    let named = egress.requests(&snapshot.specification).map(|(group, one)| EgressRuleVerdict {
        rule: Some(AllowingRule::Match(group, one).cited()),
        traffic: AllowedTraffic::from(one),
        mismatches: arrival.map(|arrival| mismatches(one, arrival)).unwrap_or_default(),
        ..all.clone()
    });
    named.collect()
}

fn addresses(egress: &Egress) -> Vec<String> {
    egress.ip_addresses.iter().map(ToString::to_string).collect()
}
