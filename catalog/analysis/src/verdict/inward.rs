//! Calls that come from outside of the mesh: whether ingress backends let them in, and where.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ironmesh_catalog::allowed_traffic::{AllowedTraffic, AllowingRule};
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::ingress::IngressRule;
use ironmesh_catalog::ip_range::IpRange;
use ironmesh_catalog::name::{ServiceName, ServicePort};
use ironmesh_catalog::policy::IngressEntry;
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::matching::{Mismatch, mismatches};
use super::question::{can_be_asked, known_service, port_of};
use super::request::Arrival;
use super::{Answer, QuestionError, Request, path};

/// A call from outside of the mesh that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InwardQuestion {
    /// What is called.
    pub service: ServiceName,
    /// The service's port; its only one where left out, or 80.
    pub port: Option<u16>,
    /// The names that the caller's certificate says: SPIFFE IDs or names of DNS. None where it shows none.
    pub names: Vec<String>,
    /// From where it connects.
    pub address: Option<IpAddr>,
    /// The request; all there may be where left out.
    pub request: Option<Request>,
}

/// The answer to an [`InwardQuestion`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InwardVerdict {
    /// What is called.
    pub asked: ServicePort,
    /// What is spoken there.
    pub protocol: String,
    /// The names that the caller shows.
    pub names: Vec<String>,
    /// From where it connects.
    pub address: Option<IpAddr>,
    /// The request; none where all are asked about.
    pub request: Option<Request>,
    /// The path as it is compared, where it is not the one that was asked about.
    pub compared_path: Option<String>,
    /// Whether policy lets it in.
    #[serde(flatten)]
    pub answer: Answer,
    /// The ways in to the service port, in the order of their policies.
    pub ways: Vec<WayInward>,
}

/// What an ingress backend says of a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WayInward {
    /// The ingress backend.
    pub policy: Cited,
    /// Where proxies are called for it, in words.
    pub entry: String,
    /// Whether it lets the call in.
    pub lets_in: bool,
    /// What the caller lacks; nothing if it is one of those who may call.
    pub lacking: Vec<Lacking>,
    /// The requests that may be made; all of them where there is none.
    pub rules: Vec<RuleInward>,
}

/// What keeps a caller from being one of those who may call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lacking {
    /// Its certificate must say one of these names.
    Name(Vec<String>),
    /// It must connect from one of these addresses. None of them is nobody.
    Address(Vec<String>),
}

/// Requests that may be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleInward {
    /// The match.
    pub rule: Cited,
    /// What it allows.
    pub way: AllowedTraffic,
    /// What of it does not hold of the request.
    pub mismatches: Vec<Mismatch>,
}

/// Answers a question about a call from outside of the mesh.
pub fn inward(
    snapshot: &Snapshot,
    question: &InwardQuestion,
) -> Result<InwardVerdict, QuestionError> {
    let service = known_service(snapshot, &question.service)?;
    let port = port_of(service, question.port)?;
    if let Some(request) = &question.request {
        can_be_asked(service, port, request)?;
    }
    let asked = ServicePort::new(service.name.clone(), port.number);
    let mut verdict = InwardVerdict {
        protocol: port.protocol.to_string(),
        names: question.names.clone(),
        address: question.address,
        request: question.request.clone(),
        compared_path: None,
        answer: Answer::Denied,
        ways: Vec::new(),
        asked,
    };
    let path = question.request.as_ref().map(|one| {
        let path = path::normalized(&one.path, service.escaped_slashes)?;
        Ok((one, path))
    });
    let request = match path.transpose() {
        Ok(request) => request,
        Err(path::Rejected(reason)) => {
            return Ok(InwardVerdict { answer: Answer::Rejected(reason.to_owned()), ..verdict });
        }
    };
    verdict.compared_path = request
        .as_ref()
        .filter(|(request, path)| request.path != *path)
        .map(|(_, path)| path.clone());
    let ways = snapshot.ways_in.get(&verdict.asked);
    let told = ways.into_iter().flat_map(|ways| ways.iter()).map(|way| {
        let host = match &way.entry {
            IngressEntry::Https { hosts, .. } => hosts.first().map(ToString::to_string),
            IngressEntry::Http { .. } => None,
        };
        let host = host.unwrap_or_else(|| snapshot.mesh.domain.hostname(&service.name));
        let arrival = request.as_ref();
        let arrival =
            arrival.map(|(request, path)| Arrival::from_outside(request, path.clone(), &host));
        told(snapshot, question, way, arrival.as_ref())
    });
    verdict.ways = told.collect();
    if verdict.ways.iter().any(|way| way.lets_in) {
        verdict.answer = Answer::Allowed;
    }
    Ok(verdict)
}

fn told(
    snapshot: &Snapshot,
    question: &InwardQuestion,
    way: &IngressRule,
    arrival: Option<&Arrival>,
) -> WayInward {
    let lacking = lacking(question, way);
    let policy = &way.policy;
    let rules: Vec<_> = policy
        .requests(&snapshot.specification)
        .map(|(group, one)| RuleInward {
            rule: AllowingRule::Match(group, one).cited(),
            way: AllowedTraffic::from(one),
            mismatches: arrival.map(|arrival| mismatches(one, arrival)).unwrap_or_default(),
        })
        .collect();
    let may_ask = policy.matches.is_empty() || rules.iter().any(|rule| rule.mismatches.is_empty());
    WayInward {
        policy: Cited::ingress_backend(policy),
        entry: way.entry.to_string(),
        lets_in: lacking.is_empty() && may_ask,
        lacking,
        rules,
    }
}

/// What the caller lacks, of the names and of the addresses that may call.
fn lacking(question: &InwardQuestion, way: &IngressRule) -> Vec<Lacking> {
    let mut lacking = Vec::new();
    let asks_for_name =
        matches!(way.entry, IngressEntry::Https { skips_client_certificates: false, .. });
    if asks_for_name && !way.principals().any(|name| question.names.iter().any(|own| own == name)) {
        lacking.push(Lacking::Name(way.principals().map(str::to_owned).collect()));
    }
    let is_in = |ranges: &BTreeSet<IpRange>| {
        let here = question.address.map(IpRange::of);
        here.is_some_and(|here| ranges.iter().any(|range| range.includes(here)))
    };
    match &way.ranges {
        Some(ranges) if !is_in(ranges) => {
            lacking.push(Lacking::Address(ranges.iter().map(ToString::to_string).collect()));
        }
        // Nobody has shown who it is: somewhere it must be.
        None if !asks_for_name => lacking.push(Lacking::Address(Vec::new())),
        Some(_) | None => {}
    }
    lacking
}
