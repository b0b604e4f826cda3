//! Verdicts: whether a call would be let through, by which rule and on which way; and if not, what is
//! missing. A pure function of one moment of the mesh, which says what the resources say that are compiled
//! of the same moment.

mod destination;
mod host;
mod inward;
mod judgement;
mod matching;
mod outward;
mod path;
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
use ironmesh_catalog::telemetries::{Telemetries, Told};
use ironmesh_catalog::upstream_settings::{Said, UpstreamSettings};
use serde::{Deserialize, Serialize};

use crate::routing::{Branch, Condition, Routing};
use destination::{branches, is_known, leave_out, told, treatments, why_no_mirror};
pub use host::{AtUpstream, ComparedHost};
pub use inward::{InwardQuestion, InwardVerdict, Lacking, RuleInward, WayInward, inward};
use judgement::judge;
pub use judgement::{Judgement, Miss, Permit};
pub use matching::Mismatch;
pub use outward::{OutwardQuestion, OutwardVerdict, WayOut, outward};
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
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct Verdict {
    /// Who calls.
    pub caller: ServiceAccount,
    /// Whether a service of policy runs as the caller. If not, no proxy calls as it.
    pub caller_runs: bool,
    /// What it calls.
    pub asked: ServicePort,
    /// What is spoken there.
    pub protocol: String,
    /// Whether that is HTTP, where requests can be told apart.
    pub is_http: bool,
    /// The request; none where all are asked about, or none can be told apart.
    pub request: Option<Request>,
    /// The path as it is compared, where it is not the one that was asked about.
    pub compared_path: Option<String>,
    /// The host of the request, where a rule has compared it.
    pub compared_host: Option<ComparedHost>,
    /// Whether its host is none of the service's. Then it is about a call of a declared upstream, since a call
    /// by `Host` gets 404.
    pub only_at_upstream: bool,
    /// Whether policy lets it through.
    #[serde(flatten)]
    pub answer: Answer,
    /// Whether the caller's proxies are told of the service port at all.
    pub known: bool,
    /// The namespace that alone knows of the service, where the caller is of another.
    pub private_to: Option<Name>,
    /// The traffic splits that send the calls to others: those of the service, and those behind them.
    pub splits: Vec<Cited>,
    /// Where the calls go: of one request the branch that it takes, else all, in the order in which they
    /// are tried.
    pub branches: Vec<Branch>,
    /// Backends of which accounts of the caller's namespace may not know: they have no share of its calls.
    pub left_out: BTreeSet<ServiceName>,
    /// Who answers on these branches, each once.
    pub destinations: Vec<Destination>,
    /// How its calls are treated on the way: of one request what is said of it, else all, in the order in which
    /// they are tried. Empty where nothing is said of any.
    pub treatments: Vec<Treated>,
    /// What the sidecars of the caller's services tell of such calls, and those of the destinations.
    pub telemetry: Vec<Told>,
}

/// How requests are treated on their way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Treated {
    /// What must hold of them, if no treatment before this one is for them. Of the last one nothing.
    pub condition: Option<Condition>,
    /// What is said of them. What is not has the mesh's default.
    pub settings: Vec<Said>,
}

/// Whether policy lets a call through.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer", content = "reason")]
pub enum Answer {
    /// Whoever of the destinations is chosen.
    Allowed,
    /// Only where some of the destinations are chosen, or some of the branches taken.
    InPart,
    /// Nobody lets it through.
    Denied,
    /// The split has nobody to send it to.
    Nowhere,
    /// It is answered with 400 before anybody asks who calls, for this reason.
    Rejected(String),
    /// The caller's own sidecar answers it, whoever would be allowed what: it is to be made elsewhere, as
    /// these words say.
    Redirected(String),
}

/// One of those who answer the calls of a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    /// The service port.
    pub port: ServicePort,
    /// The service whose endpoints it has a part of, if it is such a part.
    pub part_of: Option<ServiceName>,
    /// What it is outside of the mesh; none for a service of the mesh.
    pub outside: Option<Outside>,
    /// As whom it runs: policy is about that.
    pub account: ServiceAccount,
    /// Its mode.
    pub mode: String,
    /// What it makes of the call.
    pub judgement: Judgement,
    /// Where it is called, by address; none where that is not known, or is for the caller's proxy to look up.
    pub endpoints: Option<Vec<MeshEndpoint>>,
    /// Why endpoints of it get no traffic, or are called in plaintext.
    pub findings: Vec<String>,
    /// Whether who is not let through is kept out.
    pub enforcement: Enforcement,
    /// What the caller gets from it.
    pub gets: Gets,
    /// What upstream traffic settings say of it, and which of them.
    pub settings: Vec<Said>,
}

/// What a destination is outside of the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// What it is called there, if it has a name.
    pub hostname: Option<String>,
    /// How its endpoints are found: `static`, `dns` or `passthrough`.
    pub resolution: String,
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
    /// By the caller's proxy alone: nobody else is in front of an external service.
    ByTheCaller,
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
    /// 400 from the server's sidecar: the path has an escaped slash.
    Rejected,
    /// 403 from its own sidecar, which judges calls of external services.
    ForbiddenByItsOwn,
    /// Its own sidecar does not know the port: 403 at a declared upstream, 404 by `Host`, or 400 where the
    /// path has an escaped slash and it knows of nobody who keeps these; on TCP nobody listens.
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
    let routing = Routing::from(&snapshot.specification, &asked.service);
    let services = snapshot.specification.services.values();
    let is_visible = service.is_visible_in(&question.caller.namespace);
    let mut verdict = Verdict {
        caller: question.caller.clone(),
        caller_runs: services.into_iter().any(|service| service.account == question.caller),
        known: is_known(snapshot, &routing, &question.caller, &asked),
        private_to: (!is_visible).then(|| service.name.namespace.clone()),
        protocol: port.protocol.to_string(),
        is_http: port.protocol.is_http(),
        request: question.request.clone(),
        compared_path: None,
        compared_host: None,
        only_at_upstream: question.request.as_ref().is_some_and(|request| {
            host::is_foreign(snapshot, &question.caller, service, port, request)
        }),
        answer: Answer::Nowhere,
        splits: routing.splits_of(&asked),
        branches: Vec::new(),
        left_out: BTreeSet::new(),
        destinations: Vec::new(),
        treatments: Vec::new(),
        telemetry: Vec::new(),
        asked,
    };
    let host = format!("{}:{}", snapshot.mesh.domain.hostname(&service.name), port.number);
    let routes = HttpRoutes::of_specification(&snapshot.specification);
    let treat =
        |arrival: Option<&Arrival>| treatments(&routes, &question.caller, service, port, arrival);
    let arrivals = question.request.as_ref().map(|request| {
        let of = |arrival: &Arrival| treat(Some(arrival));
        let mut arrivals = Arrivals::of(request, &host, service, of)?;
        // There the host is rewritten behind the caller's sidecar.
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
    let judged = if service.external.is_some() { at_caller } else { at_server };
    let is_other = |path: &String| verdict.request.as_ref().is_some_and(|one| one.path != *path);
    verdict.compared_path = judged.map(|arrival| arrival.path.clone()).filter(is_other);
    verdict.branches = branches(&routing, &verdict.asked, at_caller);
    let treated = treat(at_caller);
    if is_visible {
        verdict.left_out = leave_out(snapshot, &question.caller, &mut verdict.branches);
    }
    verdict.treatments = told(&treated, |mirror| {
        why_no_mirror(snapshot, &question.caller, &verdict.asked, &verdict.branches, mirror)
    });
    let shares = verdict.branches.iter().flat_map(|branch| &branch.shares);
    let mut told = BTreeSet::new();
    // Another one than the server sees of calls of a declared upstream. (Calls to the outside are judged
    // before their host is rewritten.)
    let has_other_host = arrivals.as_ref().is_some_and(|arrivals| arrivals.has_other_host);
    let is_other_host = |arrival: &&Arrival| {
        let is_own = arrival.host.eq_ignore_ascii_case(&host);
        service.external.is_none() && !is_own && !has_other_host
    };
    let at_upstream = at_server.filter(is_other_host).map(|arrival| arrival.to_host(&host));
    let mut allowed_at_upstream = 0;
    let settings = UpstreamSettings::of(&snapshot.specification);
    for leaf in shares.map(|share| &share.service).filter(|leaf| told.insert(*leaf)) {
        let found = snapshot.service(leaf);
        let found = found.and_then(|service| Some((service, service.port(verdict.asked.port)?)));
        let Some((service, port)) = found else { continue };
        // To call a part of a service is to call the service.
        let whole = snapshot.service(service.served_as()).unwrap_or(service);
        let judgement = judge(snapshot, &verdict.caller, whole, port, judged);
        if let Some(at_upstream) = &at_upstream {
            let judgement = judge(snapshot, &verdict.caller, whole, port, Some(at_upstream));
            allowed_at_upstream += usize::from(judgement.allowed);
        }
        let settings = settings.said(service);
        let judged = Judged { service, port, judgement, known: verdict.known, settings };
        verdict.destinations.push(judged.destination(snapshot, sight));
    }
    let allowed = verdict.destinations.iter().filter(|one| one.judgement.allowed).count();
    verdict.answer = verdict.answered(allowed);
    // What an external service is not asked for is answered with 403 all the same.
    let is_let_through = service.external.is_none() || allowed > 0;
    if let Some(redirect) = redirected(&treated).filter(|_| verdict.known && is_let_through) {
        verdict.answer = Answer::Redirected(redirect);
        verdict.branches.clear();
        verdict.destinations.clear();
    }
    verdict.telemetry = verdict.told(snapshot);
    let has_compared = |one: &&Arrival| one.has_compared_host();
    let compared = [at_caller, at_server].into_iter().flatten().find(has_compared);
    verdict.compared_host = compared.map(|arrival| ComparedHost {
        host: arrival.host.clone(),
        // A redirect is for calls of declared upstreams as well.
        at_upstream: at_upstream
            .filter(|_| !matches!(verdict.answer, Answer::Redirected(_)))
            .map(|_| AtUpstream { answer: verdict.answered(allowed_at_upstream), host })
            .filter(|at_upstream| at_upstream.answer != verdict.answer),
    });
    Ok(verdict)
}

impl Verdict {
    /// What sidecars tell of the calls, on both sides. Nobody's is in front of an external service.
    fn told(&self, snapshot: &Snapshot) -> Vec<Told> {
        let telemetries = Telemetries::of(&snapshot.specification);
        let is_callers = |service: &&Arc<Service>| service.account == self.caller;
        let callers = snapshot.specification.services.values().filter(is_callers);
        let own = callers.filter(|service| !service.is_subset()).map(|service| &service.name);
        let of_mesh = self.destinations.iter().filter(|one| one.outside.is_none());
        let answering = of_mesh.map(|one| one.part_of.as_ref().unwrap_or(&one.port.service));
        let services: BTreeSet<_> = own.chain(answering).collect();
        services.into_iter().flat_map(|service| telemetries.told_of(service)).collect()
    }

    /// The answer, where destinations are known, and this many of them let the call through.
    fn answered(&self, allowed: usize) -> Answer {
        let ends_nowhere = self.branches.iter().any(|branch| branch.shares.is_empty());
        let all = self.destinations.len();
        match allowed {
            _ if !self.known => Answer::Denied,
            0 if all == 0 => Answer::Nowhere,
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

/// A request on its way.
struct Arrivals {
    at_caller: Arrival,
    at_server: Arrival,
    /// Whether policy says another host, wherever the call is from.
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
        let treated = treat(&at_caller);
        let treated = treated.first();
        let leaves = treated.map(|treatment| at_caller.treated(treatment));
        let rewrite = treated.and_then(Treatment::rewrite);
        let has_other_host = rewrite.is_some_and(|rewrite| rewrite.host.is_some());
        let at_server = leaves.as_ref().unwrap_or(&at_caller).at_server()?;
        Ok(Self { at_caller, at_server, has_other_host })
    }
}

/// A destination whose judgement is known.
struct Judged<'a> {
    service: &'a Service,
    port: &'a Port,
    judgement: Judgement,
    /// Whether the caller's proxies are told of what it calls.
    known: bool,
    settings: Vec<Said>,
}

impl Judged<'_> {
    fn destination(self, snapshot: &Snapshot, sight: Sight) -> Destination {
        let Self { service, port, judgement, known, settings } = self;
        let leaf = ServicePort::new(service.name.clone(), port.number);
        let is_external = service.external.is_some();
        let endpoints = snapshot.endpoints.get(&leaf).map(|known| (**known).clone());
        let endpoints = match sight {
            _ if service.endpoints == EndpointSource::Hostname => None,
            // Whoever is there, nobody is called.
            _ if service.drained => Some(Vec::new()),
            // What is outside is where policy says.
            Sight::PolicyAlone if !is_external => None,
            Sight::PolicyAlone | Sight::Mesh => Some(endpoints.unwrap_or_default()),
        };
        let drained =
            format!("service `{}` is drained: callers use none of its endpoints", service.name);
        let findings = match sight {
            _ if service.drained => vec![drained],
            Sight::PolicyAlone => Vec::new(),
            Sight::Mesh => {
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
        // Only healthy ones get anything new (docs/decisions/0032).
        let takes_calls = |one: &MeshEndpoint| one.health == Health::Healthy;
        let is_empty = endpoints.as_ref().is_some_and(|some| !some.iter().any(takes_calls));
        let gets = match (judgement.allowed, port.protocol.is_http()) {
            _ if !known => Gets::Unknown,
            (false, true) if is_external => Gets::ForbiddenByItsOwn,
            _ if is_empty => Gets::NoEndpoint,
            _ if judgement.rejected => Gets::Rejected,
            (true, _) => Gets::Application,
            (false, true) => Gets::Forbidden,
            (false, false) => Gets::Handshake,
        };
        let outside = |external: &External| Outside {
            hostname: external.hostname.as_ref().map(ToString::to_string),
            resolution: external.resolution.to_string(),
        };
        Destination {
            account: service.account.clone(),
            mode: snapshot.mode_of(service).to_string(),
            part_of: service.is_subset().then(|| service.served_as().clone()),
            outside: service.external.as_ref().map(outside),
            port: leaf,
            judgement,
            endpoints,
            findings,
            enforcement,
            gets,
            settings,
        }
    }
}
