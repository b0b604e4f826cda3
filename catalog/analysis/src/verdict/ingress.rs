//! Verdicts on calls from outside the mesh: whether an ingress backend allows them, and at which listener.
//!
//! This module owns the evaluation of ingress backends. It never evaluates traffic targets.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ironmesh_catalog::allowed_traffic::{AllowedTraffic, AllowingRule};
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::ingress::IngressRule;
use ironmesh_catalog::ip_range::IpRange;
use ironmesh_catalog::name::{ServiceName, ServicePort};
use ironmesh_catalog::network_address;
use ironmesh_catalog::policy::IngressEntry;
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::matching::{Mismatch, mismatches};
use super::question::{check_request, known_service, port_of};
use super::request::Arrival;
use super::{Answer, QuestionError, Request, path};

/// A question about a call from outside the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngressQuestion {
    /// The service that is called.
    pub service: ServiceName,
    /// The service's port. Default: its only port, or 80.
    pub port: Option<u16>,
    /// The names in the caller's certificate: SPIFFE IDs or DNS names. Empty without a certificate.
    pub names: Vec<String>,
    /// The address from which the caller connects.
    #[schema(value_type = Option<network_address::IpAddress>)]
    pub address: Option<IpAddr>,
    /// The request; without one, the question is about every request.
    pub request: Option<Request>,
}

/// The answer to an [`IngressQuestion`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngressVerdict {
    /// The service port that is called.
    pub service_port: ServicePort,
    /// The protocol of the port.
    pub protocol: String,
    /// The names in the caller's certificate.
    pub names: Vec<String>,
    /// The address from which the caller connects.
    #[schema(value_type = Option<network_address::IpAddress>)]
    pub address: Option<IpAddr>,
    /// The request; none if the question is about every request.
    pub request: Option<Request>,
    /// The normalized path that rules compare, if it differs from the request's path.
    pub compared_path: Option<String>,
    /// Whether policy allows the call.
    #[serde(flatten)]
    pub answer: Answer,
    /// The verdict of each ingress backend of the service port, in the order of their names.
    pub rules: Vec<IngressRuleVerdict>,
}

/// The verdict of one ingress backend on a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngressRuleVerdict {
    /// The ingress backend.
    pub policy: Cited,
    /// The listener of the proxies, in words.
    pub entry: String,
    /// Whether it allows the call.
    pub allows: bool,
    /// What the caller does not fulfil; empty if the ingress backend accepts the caller.
    pub caller_mismatches: Vec<CallerMismatch>,
    /// The requests that it allows; every request if empty.
    pub rules: Vec<IngressRequestRule>,
}

/// A condition on callers that a caller does not fulfil.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallerMismatch {
    /// Its certificate must have one of these names.
    Name(Vec<String>),
    /// It must connect from one of these address ranges. An empty list excludes every caller.
    Address(Vec<String>),
}

/// Requests that an ingress backend allows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct IngressRequestRule {
    /// The match.
    pub rule: Cited,
    /// The traffic that it allows.
    pub traffic: AllowedTraffic,
    /// The conditions that the request does not meet.
    pub mismatches: Vec<Mismatch>,
}

/// Evaluates a call from outside the mesh.
pub fn ingress_verdict(
    snapshot: &Snapshot,
    question: &IngressQuestion,
) -> Result<IngressVerdict, QuestionError> {
    let service = known_service(snapshot, &question.service)?;
    let port = port_of(service, question.port)?;
    if let Some(request) = &question.request {
        check_request(service, port, request)?;
    }
    let service_port = ServicePort::new(service.name.clone(), port.number);
    let mut verdict = IngressVerdict {
        protocol: port.protocol.to_string(),
        names: question.names.clone(),
        address: question.address,
        request: question.request.clone(),
        compared_path: None,
        answer: Answer::Denied,
        rules: Vec::new(),
        service_port,
    };
    let path = question.request.as_ref().map(|one| {
        let path = path::normalized(&one.path, service.escaped_slashes)?;
        Ok((one, path))
    });
    let request = match path.transpose() {
        Ok(request) => request,
        Err(path::Rejected(reason)) => {
            return Ok(IngressVerdict { answer: Answer::Rejected(reason.to_owned()), ..verdict });
        }
    };
    verdict.compared_path = request
        .as_ref()
        .filter(|(request, path)| request.path != *path)
        .map(|(_, path)| path.clone());
    let rules = snapshot.ingress_rules.get(&verdict.service_port);
    let evaluated = rules.into_iter().flat_map(|rules| rules.iter()).map(|rule| {
        let host = match &rule.entry {
            IngressEntry::Https { hosts, .. } => hosts.first().map(ToString::to_string),
            IngressEntry::Http { .. } => None,
        };
        let host = host.unwrap_or_else(|| snapshot.mesh.domain.hostname(&service.name));
        let arrival = request.as_ref();
        let arrival =
            arrival.map(|(request, path)| Arrival::from_outside(request, path.clone(), &host));
        evaluate(snapshot, question, rule, arrival.as_ref())
    });
    verdict.rules = evaluated.collect();
    if verdict.rules.iter().any(|rule| rule.allows) {
        verdict.answer = Answer::Allowed;
    }
    Ok(verdict)
}

/// The verdict of one ingress backend.
fn evaluate(
    snapshot: &Snapshot,
    question: &IngressQuestion,
    ingress_rule: &IngressRule,
    arrival: Option<&Arrival>,
) -> IngressRuleVerdict {
    let caller_mismatches = caller_mismatches(question, ingress_rule);
    let policy = &ingress_rule.policy;
    let rules: Vec<_> = policy
        .requests(&snapshot.specification)
        .map(|(group, one)| IngressRequestRule {
            rule: AllowingRule::Match(group, one).cited(),
            traffic: AllowedTraffic::from(one),
            mismatches: arrival.map(|arrival| mismatches(one, arrival)).unwrap_or_default(),
        })
        .collect();
    let allows_request =
        policy.matches.is_empty() || rules.iter().any(|rule| rule.mismatches.is_empty());
    IngressRuleVerdict {
        policy: Cited::ingress_backend(policy),
        entry: ingress_rule.entry.to_string(),
        allows: caller_mismatches.is_empty() && allows_request,
        caller_mismatches,
        rules,
    }
}

/// The conditions of an ingress backend on names and addresses that the caller does not fulfil.
fn caller_mismatches(question: &IngressQuestion, rule: &IngressRule) -> Vec<CallerMismatch> {
    let mut found = Vec::new();
    let needs_certificate =
        matches!(rule.entry, IngressEntry::Https { skips_client_certificates: false, .. });
    if needs_certificate
        && !rule.principals().any(|name| question.names.iter().any(|own| own == name))
    {
        found.push(CallerMismatch::Name(rule.principals().map(str::to_owned).collect()));
    }
    let is_in = |ranges: &BTreeSet<IpRange>| {
        let here = question.address.map(IpRange::of);
        here.is_some_and(|here| ranges.iter().any(|range| range.includes(here)))
    };
    match &rule.ranges {
        Some(ranges) if !is_in(ranges) => {
            found.push(CallerMismatch::Address(ranges.iter().map(ToString::to_string).collect()));
        }
        // Without a certificate, only an address range can identify the caller; this rule has none.
        None if !needs_certificate => found.push(CallerMismatch::Address(Vec::new())),
        Some(_) | None => {}
    }
    found
}
