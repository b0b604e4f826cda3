//! Verdicts: whether a call would be let through, by which rule and on which way; and if not, what is
//! missing. A pure function of one moment of the mesh, which says what the resources say that are compiled
//! of the same moment.

mod destination;
mod judgement;
mod matching;
mod path;
mod question;
mod request;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::endpoint::{MeshEndpoint, Transport};
use crate::name::{ServiceAccount, ServicePort};
use crate::service::{Port, Service};
use crate::snapshot::Snapshot;
use crate::way::Cited;
use destination::{destinations, is_known};
use judgement::judge;
pub use judgement::{Judgement, Miss, Permit};
pub use matching::Mismatch;
pub use question::{Question, QuestionError};
use request::Arrival;
pub use request::Request;

/// How much is known of the mesh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// All of it.
    Mesh,
    /// Policy alone: who has joined and where endpoints are is not known.
    PolicyAlone,
}

/// The answer to a [`Question`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// Who calls.
    pub caller: ServiceAccount,
    /// Whether a service of policy runs as the caller. If not, no proxy calls as it.
    pub caller_runs: bool,
    /// What it calls.
    pub asked: ServicePort,
    /// What is spoken there.
    pub protocol: String,
    /// The request; none where all are asked about, or none can be told apart.
    pub request: Option<Request>,
    /// The path as it is compared, where it is not the one that was asked about.
    pub compared_path: Option<String>,
    /// Whether policy lets it through.
    pub answer: Answer,
    /// Whether the caller's proxies are told of the service port at all.
    pub known: bool,
    /// What sends the calls to others, if anything.
    pub split: Option<Cited>,
    /// Who answers, each with its share.
    pub destinations: Vec<Destination>,
}

/// Whether policy lets a call through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// Whoever of the destinations is chosen.
    Allowed,
    /// Only where some of the destinations are chosen.
    InPart,
    /// Nobody lets it through.
    Denied,
    /// The split has nobody to send it to.
    Nowhere,
    /// It is answered with 400 before anybody asks who calls, for this reason.
    Rejected(String),
}

/// One of those who answer the calls of a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// The service port.
    pub port: ServicePort,
    /// Its weight among the destinations.
    pub weight: u32,
    /// As whom it runs: policy is about that.
    pub account: ServiceAccount,
    /// Its mode.
    pub mode: String,
    /// What it makes of the call.
    pub judgement: Judgement,
    /// Where it is called, by address; none where that is not known.
    pub endpoints: Option<Vec<MeshEndpoint>>,
    /// Why endpoints of it get no traffic, or are called in plaintext.
    pub findings: Vec<String>,
    /// Whether who is not let through is kept out.
    pub enforcement: Enforcement,
    /// What the caller gets from it.
    pub gets: Gets,
}

/// Whether a judgement is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// By the proxies in front of all endpoints. Whether the ports of the applications behind them can be
    /// reached around them is not known.
    AtTheProxies,
    /// Not where endpoints are called in plaintext: no proxy is in front of these.
    NotInPlaintext,
    /// It is not known where the endpoints are, or there is none.
    Unknown,
}

/// What a caller gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gets {
    /// The answer of the application.
    Application,
    /// 403 from the server's sidecar.
    Forbidden,
    /// Its own sidecar does not know the port: 403 at a declared upstream, 404 by `Host`; on TCP nobody
    /// listens.
    Unknown,
    /// No handshake: the connection ends before the application sees it.
    Handshake,
    /// There is no endpoint: 503, or on TCP a connection that ends at once.
    NoEndpoint,
}

/// Answers a question. Its names must be those of the mesh.
pub fn verdict(
    snapshot: &Snapshot,
    question: &Question,
    sight: Sight,
) -> Result<Verdict, QuestionError> {
    let (service, port) = question.find(snapshot)?;
    let asked = ServicePort::new(service.name.clone(), port.number);
    let host = format!("{}:{}", snapshot.mesh.domain.hostname(&service.name), port.number);
    let arrival = question.request.as_ref().map(|request| Arrival::of(request, &host));
    let services = snapshot.specification.services.values();
    let mut verdict = Verdict {
        caller: question.caller.clone(),
        caller_runs: services.into_iter().any(|service| service.account == question.caller),
        known: is_known(snapshot, &question.caller, &asked),
        protocol: port.protocol.to_string(),
        request: question.request.clone(),
        compared_path: None,
        answer: Answer::Nowhere,
        split: None,
        destinations: Vec::new(),
        asked,
    };
    let arrival = match arrival.transpose() {
        Ok(arrival) => arrival,
        Err(path::Rejected(reason)) => {
            verdict.answer = Answer::Rejected(reason.to_owned());
            return Ok(verdict);
        }
    };
    let path = arrival.as_ref().map(|arrival| arrival.path.clone());
    verdict.compared_path =
        path.filter(|path| question.request.as_ref().is_some_and(|asked| asked.path != *path));
    let destinations = destinations(&snapshot.specification, &verdict.asked);
    verdict.split = destinations.split;
    for (leaf, weight) in destinations.leaves {
        let found = snapshot.service(&leaf.service);
        let Some((service, port)) =
            found.and_then(|service| Some((service, service.port(leaf.port)?)))
        else {
            continue;
        };
        let judgement = judge(snapshot, &question.caller, service, port, arrival.as_ref());
        let known = verdict.known;
        let weighed = Weighed { service, port, leaf, weight, judgement, known };
        verdict.destinations.push(weighed.destination(snapshot, sight));
    }
    let allowed = verdict.destinations.iter().filter(|one| one.judgement.allowed).count();
    verdict.answer = match (allowed, verdict.destinations.len()) {
        (_, 0) if !verdict.known => Answer::Denied,
        (_, 0) => Answer::Nowhere,
        (0, _) => Answer::Denied,
        (some, all) if some == all => Answer::Allowed,
        _ => Answer::InPart,
    };
    Ok(verdict)
}

/// A destination whose judgement is known.
struct Weighed<'a> {
    service: &'a Service,
    port: &'a Port,
    leaf: ServicePort,
    weight: u32,
    judgement: Judgement,
    /// Whether the caller's proxies are told of it.
    known: bool,
}

impl Weighed<'_> {
    fn destination(self, snapshot: &Snapshot, sight: Sight) -> Destination {
        let Self { service, port, leaf, weight, judgement, known } = self;
        let (endpoints, findings) = match sight {
            Sight::PolicyAlone => (None, Vec::new()),
            Sight::Mesh => {
                let endpoints = snapshot.endpoints.get(&leaf);
                let findings = snapshot.findings_of(&service.name);
                (
                    Some(endpoints.map(|known| (**known).clone()).unwrap_or_default()),
                    findings.iter().map(ToString::to_string).collect(),
                )
            }
        };
        let is_plaintext = |one: &MeshEndpoint| one.transport == Transport::Plaintext;
        let enforcement = match endpoints.as_deref() {
            None | Some([]) => Enforcement::Unknown,
            Some(some) if some.iter().any(is_plaintext) => Enforcement::NotInPlaintext,
            Some(_) => Enforcement::AtTheProxies,
        };
        let is_empty = endpoints.as_ref().is_some_and(Vec::is_empty);
        let gets = match (known, judgement.allowed, port.protocol.is_http()) {
            (false, ..) => Gets::Unknown,
            _ if is_empty => Gets::NoEndpoint,
            (true, true, _) => Gets::Application,
            (true, false, true) => Gets::Forbidden,
            (true, false, false) => Gets::Handshake,
        };
        Destination {
            account: service.account.clone(),
            mode: snapshot.mode_of(service).to_string(),
            port: leaf,
            weight,
            judgement,
            endpoints,
            findings,
            enforcement,
            gets,
        }
    }
}
