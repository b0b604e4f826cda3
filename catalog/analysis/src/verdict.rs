//! Verdicts: whether policy allows a call, by which rule and to which destinations; and if not, why.
//!
//! This module owns the answers of `policy explain`. It is a pure function of one snapshot, and agrees with the
//! resources that the compiler derives from the same snapshot. It never decides what a rule means; the model does.

mod destination;
mod egress;
mod host;
mod ingress;
mod matching;
mod outside_caller;
mod path;
mod port_verdict;
mod question;
mod request;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::endpoint::{Health, MeshEndpoint, Transport};
use ironmesh_catalog::endpoint_source::EndpointSource;
use ironmesh_catalog::http_routes::{HttpRoutes, Treatment};
use ironmesh_catalog::name::{Name, ServiceAccount, ServiceName, ServicePort};
use ironmesh_catalog::policy::Percent;
use ironmesh_catalog::service::{External, Port, Service};
use ironmesh_catalog::snapshot::Snapshot;
use ironmesh_catalog::telemetries::{ServiceTelemetry, Telemetries};
use ironmesh_catalog::upstream_settings::{EffectiveSetting, UpstreamSettings};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::routing::{MatchCondition, Routing, SplitBranch};
use destination::{
    branches, is_in_scope, mirror_exclusion, remove_private_backends, request_treatments,
};
pub use egress::{EgressQuestion, EgressRuleVerdict, EgressVerdict, egress_verdict};
pub use host::{ComparedHost, UpstreamAnswer};
pub use ingress::{
    CallerMismatch, IngressQuestion, IngressRequestRule, IngressRuleVerdict, IngressVerdict,
    ingress_verdict,
};
pub use matching::Mismatch;
pub use outside_caller::{InvalidOutsideCaller, OutsideCaller};
use port_verdict::evaluate_port;
pub use port_verdict::{GrantingRule, PortVerdict, UnmetRule};
pub use question::{Question, QuestionError};
use request::Arrival;
pub use request::Request;

/// The data on which a verdict is based.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictBasis {
    /// Policy, endpoints and proxies of a running mesh.
    Mesh,
    /// Policy alone: proxies and endpoints are unknown.
    PolicyOnly,
}

/// The answer to a [`Question`], with its reasons.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct Verdict {
    /// The account that calls.
    pub caller: ServiceAccount,
    /// Whether a service of policy runs as the caller. Otherwise no proxy calls as this account.
    pub caller_runs: bool,
    /// The service port that it calls.
    pub service_port: ServicePort,
    /// The protocol of the port.
    pub protocol: String,
    /// Whether the protocol is HTTP, so that policy can distinguish requests.
    pub is_http: bool,
    /// The request; none if the question is about every request, or the protocol is not HTTP.
    pub request: Option<Request>,
    /// The normalized path that rules compare, if it differs from the request's path.
    pub compared_path: Option<String>,
    /// The host of the request, if a rule compared it.
    pub compared_host: Option<ComparedHost>,
    /// Whether the service does not have the request's host. A call by `Host` then gets 404, so the verdict
    /// assumes a call of a declared upstream.
    pub only_at_upstream: bool,
    /// Whether policy allows the call.
    #[serde(flatten)]
    pub answer: Answer,
    /// Whether the service port is in the scope of the caller's proxies.
    pub in_scope: bool,
    /// The namespace of a private service, if the caller belongs to a different one.
    pub private_to: Option<Name>,
    /// The traffic splits that affect the calls: those of the service, then those of its backends.
    pub splits: Vec<Cited>,
    /// The branches of the calls, in order of evaluation; for one request, the branch that it follows.
    pub branches: Vec<SplitBranch>,
    /// Backends without a share of the calls: they are private to a namespace other than the caller's.
    pub left_out: BTreeSet<ServiceName>,
    /// The destinations of these branches, each once.
    pub destinations: Vec<Destination>,
    /// The HTTP settings of the calls, in order of evaluation; for one request, the settings that apply to it.
    /// Empty without settings.
    pub treatments: Vec<RequestTreatment>,
    /// The telemetry that the sidecars of the caller's services and of the destinations report.
    pub telemetry: Vec<ServiceTelemetry>,
}

/// The HTTP settings of some requests on their path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RequestTreatment {
    /// The condition that selects the requests, if no earlier treatment does. The last one has none.
    pub condition: Option<MatchCondition>,
    /// The settings. All others have the mesh's defaults.
    pub settings: Vec<EffectiveSetting>,
}

/// Whether policy allows a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", tag = "answer", content = "reason")]
pub enum Answer {
    /// Every destination allows it.
    Allowed,
    /// Only some destinations or branches allow it.
    InPart,
    /// No destination allows it.
    Denied,
    /// The split has no destination.
    NoBackend,
    /// The sidecar answers 400 before authorization, for this reason.
    Rejected(String),
    /// The caller's own sidecar redirects it, as this text describes, whatever traffic targets allow.
    Redirected(String),
}

/// A destination of the calls of a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Destination {
    /// The service port.
    pub port: ServicePort,
    /// The service of which it is a subset, if it is one.
    pub part_of: Option<ServiceName>,
    /// Its hostname and resolution outside the mesh; none for a service of the mesh.
    pub external: Option<ExternalDestination>,
    /// The account as which it runs, which traffic targets name.
    pub account: ServiceAccount,
    /// Its mode.
    pub mode: String,
    /// The verdict of its port on the call.
    pub port_verdict: PortVerdict,
    /// Its endpoints by address; none if they are unknown, or if the caller's proxy resolves them.
    pub endpoints: Option<Vec<MeshEndpoint>>,
    /// Findings about endpoints that get no traffic or are called in plaintext.
    pub findings: Vec<String>,
    /// Whether and where the verdict is enforced.
    pub enforcement: Enforcement,
    /// The result that the caller gets.
    pub result: CallResult,
    /// Its effective upstream traffic settings.
    pub settings: Vec<EffectiveSetting>,
}

/// The hostname and resolution of a destination outside the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExternalDestination {
    /// Its hostname, if it has one.
    pub hostname: Option<String>,
    /// How its endpoints are resolved: `static`, `dns` or `passthrough`.
    pub resolution: String,
}

/// Whether and where a verdict is enforced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Enforcement {
    /// By the proxies of all endpoints. Ironmesh cannot know whether the ports of the applications are reachable
    /// without them.
    AtTheProxies,
    /// Not at endpoints that are called in plaintext, since they have no proxy.
    NotInPlaintext,
    /// By the caller's proxy alone, since an external service has no proxy.
    ByTheCaller,
    /// The endpoints are unknown, or there are none.
    Unknown,
}

/// The result that a caller gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallResult {
    /// The answer of the application.
    Application,
    /// 403 from the server's sidecar.
    Forbidden,
    /// 400 from the server's sidecar: the path has an escaped slash.
    Rejected,
    /// 403 from the caller's own sidecar, which authorizes calls of external services.
    ForbiddenByCaller,
    /// The caller's own sidecar does not have the port: 403 at a declared upstream, 404 by `Host`, or 400 if the
    /// path has an escaped slash and no service in scope keeps these; on TCP there is no listener.
    Unknown,
    /// A failed TLS handshake: the connection ends before the application sees it.
    HandshakeFailed,
    /// No available endpoint: 503, or on TCP a connection that ends at once.
    NoEndpoint,
}

/// Evaluates a call. The names in the question must exist in the mesh.
pub fn verdict(
    snapshot: &Snapshot,
    question: &Question,
    basis: VerdictBasis,
) -> Result<Verdict, QuestionError> {
    let (service, port) = question.find(snapshot)?;
    let service_port = ServicePort::new(service.name.clone(), port.number);
    let routing = Routing::from(&snapshot.specification, &service_port.service);
    let services = snapshot.specification.services.values();
    let is_visible = service.is_visible_in(&question.caller.namespace);
    let mut verdict = Verdict {
        caller: question.caller.clone(),
        caller_runs: services.into_iter().any(|service| service.account == question.caller),
        in_scope: is_in_scope(snapshot, &routing, &question.caller, &service_port),
        private_to: (!is_visible).then(|| service.name.namespace.clone()),
        protocol: port.protocol.to_string(),
        is_http: port.protocol.is_http(),
        request: question.request.clone(),
        compared_path: None,
        compared_host: None,
        only_at_upstream: question.request.as_ref().is_some_and(|request| {
            host::is_foreign(snapshot, &question.caller, service, port, request)
        }),
        answer: Answer::NoBackend,
        splits: routing.splits_of(&service_port),
        branches: Vec::new(),
        left_out: BTreeSet::new(),
        destinations: Vec::new(),
        treatments: Vec::new(),
        telemetry: Vec::new(),
        service_port,
    };
    let host = format!("{}:{}", snapshot.mesh.domain.hostname(&service.name), port.number);
    let routes = HttpRoutes::of_specification(&snapshot.specification);
    let treat = |arrival: Option<&Arrival>| {
        destination::treatments(&routes, &question.caller, service, port, arrival)
    };
    let arrivals = question.request.as_ref().map(|request| {
        let of = |arrival: &Arrival| treat(Some(arrival));
        let mut arrivals = Arrivals::of(request, &host, service, of)?;
        // The caller's sidecar rewrites the host of a declared upstream.
        let keeps_host = !arrivals.has_other_host && service.external.is_none();
        if verdict.only_at_upstream && keeps_host {
            arrivals.at_server = arrivals.at_server.to_host(&host);
        }
        Ok::<_, path::Rejected>(arrivals)
    });
    let arrivals = match arrivals.transpose() {
        Ok(arrivals) => arrivals,
        Err(path::Rejected(reason)) => {
            verdict.answer = Answer::Rejected(reason.to_owned());
            return Ok(verdict);
        }
    };
    let at_caller = arrivals.as_ref().map(|arrivals| &arrivals.at_caller);
    let at_server = arrivals.as_ref().map(|arrivals| &arrivals.at_server);
    let evaluated = if service.external.is_some() { at_caller } else { at_server };
    let is_other = |path: &String| verdict.request.as_ref().is_some_and(|one| one.path != *path);
    verdict.compared_path = evaluated.map(|arrival| arrival.path.clone()).filter(is_other);
    verdict.branches = branches(&routing, &verdict.service_port, at_caller);
    let treatments = treat(at_caller);
    if is_visible {
        verdict.left_out =
            remove_private_backends(snapshot, &question.caller, &mut verdict.branches);
    }
    verdict.treatments = request_treatments(&treatments, |mirror| {
        mirror_exclusion(
            snapshot,
            &question.caller,
            &verdict.service_port,
            &verdict.branches,
            mirror,
        )
    });
    let shares = verdict.branches.iter().flat_map(|branch| &branch.shares);
    let mut seen = BTreeSet::new();
    // Whether the server sees a different host at a declared upstream. (Calls of external services are
    // authorized before the host is rewritten.)
    let has_other_host = arrivals.as_ref().is_some_and(|arrivals| arrivals.has_other_host);
    let is_other_host = |arrival: &&Arrival| {
        let is_own = arrival.host.eq_ignore_ascii_case(&host);
        service.external.is_none() && !is_own && !has_other_host
    };
    let at_upstream = at_server.filter(is_other_host).map(|arrival| arrival.to_host(&host));
    let mut allowed_at_upstream = 0;
    let settings = UpstreamSettings::of(&snapshot.specification);
    for leaf in shares.map(|share| &share.service).filter(|leaf| seen.insert(*leaf)) {
        let found = snapshot.service(leaf);
        let found =
            found.and_then(|service| Some((service, service.port(verdict.service_port.port)?)));
        let Some((service, port)) = found else { continue };
        // A call of a subset is a call of its service.
        let whole = snapshot.service(service.served_as()).unwrap_or(service);
        let port_verdict = evaluate_port(snapshot, &verdict.caller, whole, port, evaluated);
        if let Some(at_upstream) = &at_upstream {
            let port_verdict =
                evaluate_port(snapshot, &verdict.caller, whole, port, Some(at_upstream));
            allowed_at_upstream += usize::from(port_verdict.allowed);
        }
        let settings = settings.effective(service);
        let evaluated = EvaluatedDestination {
            service,
            port,
            port_verdict,
            in_scope: verdict.in_scope,
            settings,
        };
        verdict.destinations.push(evaluated.destination(snapshot, basis));
    }
    let allowed = verdict.destinations.iter().filter(|one| one.port_verdict.allowed).count();
    verdict.answer = verdict.answer_for(allowed);
    // A denied call of an external service gets 403 before any redirect.
    let passes_authorization = service.external.is_none() || allowed > 0;
    if let Some(redirect) =
        redirected(&treatments).filter(|_| verdict.in_scope && passes_authorization)
    {
        verdict.answer = Answer::Redirected(redirect);
        verdict.branches.clear();
        verdict.destinations.clear();
    }
    verdict.telemetry = verdict.telemetry(snapshot);
    let has_compared = |one: &&Arrival| one.has_compared_host();
    let compared = [at_caller, at_server].into_iter().flatten().find(has_compared);
    verdict.compared_host = compared.map(|arrival| ComparedHost {
        host: arrival.host.clone(),
        // A redirect applies to calls of declared upstreams as well.
        at_upstream: at_upstream
            .filter(|_| !matches!(verdict.answer, Answer::Redirected(_)))
            .map(|_| UpstreamAnswer { answer: verdict.answer_for(allowed_at_upstream), host })
            .filter(|at_upstream| at_upstream.answer != verdict.answer),
    });
    Ok(verdict)
}

impl Verdict {
    /// The telemetry that sidecars of both sides report. An external service has no sidecar.
    fn telemetry(&self, snapshot: &Snapshot) -> Vec<ServiceTelemetry> {
        let telemetries = Telemetries::of(&snapshot.specification);
        let is_callers = |service: &&Arc<Service>| service.account == self.caller;
        let callers = snapshot.specification.services.values().filter(is_callers);
        let own = callers.filter(|service| !service.is_subset()).map(|service| &service.name);
        let of_mesh = self.destinations.iter().filter(|one| one.external.is_none());
        let answering = of_mesh.map(|one| one.part_of.as_ref().unwrap_or(&one.port.service));
        let services: BTreeSet<_> = own.chain(answering).collect();
        services.into_iter().flat_map(|service| telemetries.telemetry_of(service)).collect()
    }

    /// The answer, where destinations are known, and this many of them let the call through.
    fn answer_for(&self, allowed: usize) -> Answer {
        let ends_nowhere = self.branches.iter().any(|branch| branch.shares.is_empty());
        let all = self.destinations.len();
        match allowed {
            _ if !self.in_scope => Answer::Denied,
            0 if all == 0 => Answer::NoBackend,
            0 => Answer::Denied,
            some if some == all && !ends_nowhere => Answer::Allowed,
            _ => Answer::InPart,
        }
    }
}

/// Where all requests are to be made that are treated so, if elsewhere.
fn redirected(treatments: &[Treatment<'_>]) -> Option<String> {
    // What fails on purpose fails before it is redirected.
    if treatments.iter().any(aborts_all) {
        return None;
    }
    let all: Option<Vec<_>> = treatments.iter().map(Treatment::redirect).collect();
    let all: Vec<_> = all?.into_iter().map(ToString::to_string).collect();
    (!all.is_empty()).then(|| all.join(", or "))
}

fn aborts_all(treatment: &Treatment<'_>) -> bool {
    let abort = treatment.fault().and_then(|fault| fault.abort.as_ref());
    abort.is_some_and(|abort| abort.percent == Percent::ALL)
}

/// A request as each sidecar on its path sees it.
struct Arrivals {
    at_caller: Arrival,
    at_server: Arrival,
    /// Whether a route rewrites the host.
    has_other_host: bool,
}

impl Arrivals {
    fn of<'a>(
        request: &Request,
        host: &str,
        called: &Service,
        treat: impl FnOnce(&Arrival) -> Vec<Treatment<'a>>,
    ) -> Result<Self, path::Rejected> {
        let at_caller = Arrival::at_caller(request, host, called)?;
        let treatments = treat(&at_caller);
        let treatment = treatments.first();
        let outgoing = treatment.map(|treatment| at_caller.after(treatment));
        let rewrite = treatment.and_then(Treatment::rewrite);
        let has_other_host = rewrite.is_some_and(|rewrite| rewrite.host.is_some());
        let at_server = outgoing.as_ref().unwrap_or(&at_caller).at_server()?;
        Ok(Self { at_caller, at_server, has_other_host })
    }
}

/// A destination with the verdict of its port.
struct EvaluatedDestination<'a> {
    service: &'a Service,
    port: &'a Port,
    port_verdict: PortVerdict,
    /// Whether the called port is in the scope of the caller's proxies.
    in_scope: bool,
    settings: Vec<EffectiveSetting>,
}

impl EvaluatedDestination<'_> {
    fn destination(self, snapshot: &Snapshot, basis: VerdictBasis) -> Destination {
        let Self { service, port, port_verdict, in_scope, settings } = self;
        let leaf = ServicePort::new(service.name.clone(), port.number);
        let is_external = service.external.is_some();
        let endpoints = snapshot.endpoints.get(&leaf).map(|known| (**known).clone());
        let endpoints = match basis {
            _ if service.endpoints == EndpointSource::Hostname => None,
            // Callers use no endpoint of a drained service.
            _ if service.drained => Some(Vec::new()),
            // Policy lists the endpoints of an external service.
            VerdictBasis::PolicyOnly if !is_external => None,
            VerdictBasis::PolicyOnly | VerdictBasis::Mesh => Some(endpoints.unwrap_or_default()),
        };
        let drained =
            format!("service `{}` is drained: callers use none of its endpoints", service.name);
        let findings = match basis {
            _ if service.drained => vec![drained],
            VerdictBasis::PolicyOnly => Vec::new(),
            VerdictBasis::Mesh => {
                let findings = snapshot.findings_of(service.served_as());
                findings.iter().map(ToString::to_string).collect()
            }
        };
        let is_plaintext = |one: &MeshEndpoint| one.transport == Transport::Plaintext;
        let enforcement = match endpoints.as_deref() {
            _ if is_external => Enforcement::ByTheCaller,
            None | Some([]) => Enforcement::Unknown,
            Some(some) if some.iter().any(is_plaintext) => Enforcement::NotInPlaintext,
            Some(_) => Enforcement::AtTheProxies,
        };
        // Only healthy endpoints get new calls (docs/decisions/0032).
        let takes_calls = |one: &MeshEndpoint| one.health == Health::Healthy;
        let is_empty = endpoints.as_ref().is_some_and(|some| !some.iter().any(takes_calls));
        let result = match (port_verdict.allowed, port.protocol.is_http()) {
            _ if !in_scope => CallResult::Unknown,
            (false, true) if is_external => CallResult::ForbiddenByCaller,
            _ if is_empty => CallResult::NoEndpoint,
            _ if port_verdict.rejected => CallResult::Rejected,
            (true, _) => CallResult::Application,
            (false, true) => CallResult::Forbidden,
            (false, false) => CallResult::HandshakeFailed,
        };
        let external = |external: &External| ExternalDestination {
            hostname: external.hostname.as_ref().map(ToString::to_string),
            resolution: external.resolution.to_string(),
        };
        Destination {
            account: service.account.clone(),
            mode: snapshot.mode_of(service).to_string(),
            part_of: service.is_subset().then(|| service.served_as().clone()),
            external: service.external.as_ref().map(external),
            port: leaf,
            port_verdict,
            endpoints,
            findings,
            enforcement,
            result,
            settings,
        }
    }
}
