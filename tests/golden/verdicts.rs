//! `policy explain` is accurate: for random policies and requests, its verdict, the compiled RBAC
//! and a real Envoy agree.
//!
//! One Envoy serves all services of a policy and calls them as one account. It authorizes calls of
//! all accounts directly at the mesh port, each with its own certificate. It also carries the calls
//! of its own account the whole way: by `Host`, over mutual TLS to itself.

mod access;
mod random;
mod rbac;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fs_err as fs;
use ironmesh_analysis::verdict::{
    Answer, CallResult, QuestionError, Verdict, VerdictBasis, verdict,
};
use ironmesh_analysis::{Question, Request};
use ironmesh_catalog::{Mode, ServiceAccount, Snapshot};
use ironmesh_tests::programs::require_envoy;
use ironmesh_tests::tls::connect_mesh;
use ironmesh_tests::{App, Envoy, Http1Connection, Loopback};
use ironmesh_xds_compile::Compiled;
use ironmesh_xds_wire::ResourceType;
use serde_json::json;

use self::random::{APEXES, CALLERS, EXTERNAL, LABELS, PARTS, SERVICES};
use self::rbac::{Decision, RequestView};
use crate::case::Case;
use crate::certificates::RealCertificates;
use crate::regexes::SeededRandom;
use crate::rendering;

/// The number of policies, unless `PROPTEST_CASES` sets another.
const POLICIES: usize = 4;

/// The number of requests of each caller to each service.
const REQUESTS: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn explain_verdict_matches_compiled_rbac_and_envoy() {
    let Some(program) = require_envoy() else { return };
    let of_environment = |name| std::env::var(name).ok()?.parse().ok();
    let seed = of_environment("PROPTEST_RNG_SEED").unwrap_or_else(rand_seed);
    let cases = of_environment("PROPTEST_CASES").map_or(POLICIES, |n| usize::try_from(n).unwrap());
    let mut tally = Tally::default();
    // A few random policies may miss an outcome: then the test tries more.
    for number in 0..cases * 5 {
        if number >= cases && tally.is_whole() {
            break;
        }
        let seed = seed.wrapping_add(u64::try_from(number).unwrap());
        RandomMesh::new(seed).run(&program, &mut tally).await;
    }
    assert!(tally.is_whole(), "{tally:?}");
}

fn rand_seed() -> u64 {
    u64::from_le_bytes(uuid::Uuid::new_v4().as_bytes()[..8].try_into().unwrap())
}

/// Counts of the outcomes seen.
#[derive(Debug, Default)]
struct Tally {
    /// Counts by Envoy's status.
    statuses: BTreeMap<u16, usize>,
    /// Calls by a host of another service.
    foreign_hosts: usize,
    /// Calls with a different outcome at a declared upstream.
    different_at_upstreams: usize,
    /// Calls that HTTP routes changed and the server allowed.
    changed: usize,
    /// Calls that HTTP routes changed and the server denied.
    changed_and_denied: usize,
}

impl Tally {
    /// Guards the test itself: each kind of outcome occurred, so the comparison is not empty.
    fn is_whole(&self) -> bool {
        let is_seen = |status| self.statuses.contains_key(status);
        [200, 308, 400, 403, 404, 503].iter().all(is_seen)
            && self.changed > 0
            && self.changed_and_denied > 0
            && self.foreign_hosts > 0
            && self.different_at_upstreams > 0
    }
}

/// One random policy with its callers.
struct RandomMesh {
    seed: u64,
    generator: SeededRandom,
    loopback: Loopback,
    /// The account of the Envoy.
    caller: ServiceAccount,
    policy: String,
    snapshot: Snapshot,
    /// The snapshot without HTTP routes, which apply in the callers' sidecars.
    mesh_port_snapshot: Snapshot,
    compiled: Compiled,
}

impl RandomMesh {
    fn new(seed: u64) -> Self {
        let (mut generator, loopback) = (SeededRandom(seed), Loopback::claim());
        let app = loopback.socket(21, 8080);
        let policy = random::policy(&mut generator, app);
        let caller = generator.choose(&CALLERS);
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("policy")).unwrap();
        fs::write(folder.path().join("policy/policy.toml"), &policy).unwrap();
        let services = (0..SERVICES).map(|n| format!("'s{n}'"));
        let served = services.chain(APEXES.map(|apex| format!("'{apex}'")));
        let served = served.collect::<Vec<_>>().join(", ");
        let proxy = format!(
            "[[proxy]]\nlabel = 'all'\nid = '00000000-0000-4000-8000-000000000001'\n\
             services = ['{caller}', {served}]\nmesh_address = '{}'\napp_address = '{}'\n\
             labels = {LABELS}\n",
            loopback.socket(11, 15003),
            app.ip(),
        );
        fs::write(folder.path().join("proxies.toml"), proxy).unwrap();
        let load = |policy: &str| {
            let case = Case::load(folder.path().to_owned());
            let snapshot = case.snapshot();
            let snapshot =
                snapshot.unwrap_or_else(|| panic!("seed {seed}: {policy}\n{}", case.findings(&[])));
            (snapshot, case)
        };
        let (mesh_port_snapshot, _) = load(&policy);
        let routes = random::http_routes(&mut generator);
        fs::write(folder.path().join("policy/routes.toml"), &routes).unwrap();
        let policy = policy + &routes;
        let (snapshot, case) = load(&policy);
        let compiled = case.compile().remove(0).compiled;
        let caller = caller.parse().unwrap();
        Self { seed, generator, loopback, caller, policy, snapshot, mesh_port_snapshot, compiled }
    }

    async fn run(&mut self, program: &Path, tally: &mut Tally) {
        let certificates = RealCertificates::new();
        let _app = App::http1("all", self.loopback.socket(21, 8080)).await;
        let folder = tempfile::tempdir().unwrap();
        let mut bootstrap =
            rendering::running_bootstrap(&self.compiled, &self.caller, &certificates);
        let address = self.loopback.host(11);
        bootstrap["admin"] = json!({ "address": {
            "socket_address": { "address": address.to_string(), "port_value": 15000 },
        }});
        fs::write(folder.path().join("envoy.yaml"), bootstrap.to_string()).unwrap();
        let envoy = Envoy::start(program, "all", folder.path(), address, 1).await;
        for caller in CALLERS {
            self.call_mesh_port(&caller.parse().unwrap(), &certificates, tally).await;
        }
        self.call_by_host(&envoy, tally).await;
    }

    /// Calls each service at the mesh port with a caller's certificate.
    async fn call_mesh_port(
        &mut self,
        account: &ServiceAccount,
        certificates: &RealCertificates,
        tally: &mut Tally,
    ) {
        let certificate = certificates.of_account(account);
        let principal = self.snapshot.mesh.trust_domain.workload(account).to_string();
        for service in 0..SERVICES {
            let sni = format!("80.s{service}.default.mesh.internal");
            let roots = certificates.roots();
            let connect = async || {
                let (chain, key) = (&*certificate.chain, certificate.key.expose());
                let address = self.loopback.socket(11, 15003);
                let stream = connect_mesh(address, &sni, &["ironmesh"], chain, key, &roots).await;
                Http1Connection::over(stream.unwrap()).await.unwrap()
            };
            let mut connection = connect().await;
            for _ in 0..REQUESTS {
                let service = format!("s{service}");
                let host = random::host(&mut self.generator, &service);
                let request = random::request(&mut self.generator, &host, false);
                // No sidecar sends a call by another host here.
                let mesh_port_snapshot =
                    self.verdict(&self.mesh_port_snapshot, account, &service, &request);
                let Ok(verdict) = mesh_port_snapshot else { continue };
                let status = send(&mut connection, &request).await;
                if status == 400 {
                    // Envoy closes the connection after such a request.
                    connection = connect().await;
                }
                *tally.statuses.entry(status).or_default() += 1;
                let reported = match &verdict.answer {
                    Answer::Rejected(_) => 400,
                    _ if verdict.destinations[0].port_verdict.allowed => 200,
                    _ => 403,
                };
                let compared = verdict.compared_host.as_ref();
                if let Some(other) = compared.and_then(|host| host.at_upstream.as_ref()) {
                    let mut rewritten = request.clone();
                    rewritten.headers[0].1.clone_from(&other.host);
                    let reported = if other.answer == Answer::Allowed { 200 } else { 403 };
                    let status = send(&mut connection, &rewritten).await;
                    let about = || self.about(&rewritten, &verdict);
                    assert_eq!(reported, status, "it is otherwise at an upstream: {}", about());
                    tally.different_at_upstreams += 1;
                }
                let about = || self.about(&request, &verdict);
                assert_eq!(reported, status, "Envoy's answer differs: {}", about());
                if status != 400 {
                    let name = format!("inbound|default/{service}|80");
                    let routes = &self.compiled.resources.of(ResourceType::Route)[&*name];
                    let plain = || request.path.split('?').next().unwrap().to_owned();
                    let path = verdict.compared_path.clone().unwrap_or_else(plain);
                    let seen = RequestView {
                        principal: &principal,
                        method: &request.method,
                        path: &path,
                        authority: &host,
                        headers: &request.headers,
                    };
                    let port_verdict = &verdict.destinations[0].port_verdict;
                    let is_audited = verdict.destinations[0].mode == Mode::Audit.to_string();
                    let is_private = port_verdict.private_to.is_some();
                    let would = is_audited.then_some(!port_verdict.strict_denies && !is_private);
                    let reported = Decision { is_allowed: reported == 200, shadow_allowed: would };
                    assert_eq!(
                        rbac::evaluate(routes, &seen),
                        reported,
                        "the RBAC's answer differs: {}",
                        about()
                    );
                }
            }
        }
    }

    /// Calls each service by name as the Envoy's account, the whole way.
    async fn call_by_host(&mut self, envoy: &Envoy, tally: &mut Tally) {
        let caller = self.caller.clone();
        let services = (0..SERVICES).map(|n| (format!("s{n}"), REQUESTS));
        let others = PARTS.into_iter().chain(EXTERNAL).map(|name| (name, REQUESTS));
        // These have the most kinds of outcomes.
        let others = others.chain(APEXES.map(|apex| (apex, 4 * REQUESTS)));
        for (service, requests) in services.chain(others.map(|(name, n)| (name.to_owned(), n))) {
            let mut connection = Http1Connection::connect(envoy.socket(15080)).await.unwrap();
            for _ in 0..requests {
                let host = random::host(&mut self.generator, &service);
                let request = random::request(&mut self.generator, &host, true);
                let verdict = self.verdict(&self.snapshot, &caller, &service, &request);
                let status = send(&mut connection, &request).await;
                if status == 400 {
                    connection = Http1Connection::connect(envoy.socket(15080)).await.unwrap();
                }
                *tally.statuses.entry(status).or_default() += 1;
                let verdict = match verdict {
                    Ok(verdict) => verdict,
                    Err(error) => {
                        // Whether escaped slashes stay depends on the caller's other services.
                        let is_unknown =
                            status == 404 || status == 400 && has_escaped_slash(&request);
                        assert!(is_unknown, "seed {}: {request:?}: {status}: {error}", self.seed);
                        tally.foreign_hosts += 1;
                        continue;
                    }
                };
                let predicted = by_host(&verdict);
                let about = || self.about(&request, &verdict);
                assert!(predicted.contains(&status), "Envoy answers {status}: {}", about());
                if verdict.only_at_upstream {
                    tally.foreign_hosts += 1;
                    continue;
                }
                let is_allowed = verdict.answer == Answer::Allowed;
                if !verdict.treatments.iter().all(|one| one.settings.is_empty()) {
                    tally.changed += usize::from(status == 200);
                    tally.changed_and_denied += usize::from(status == 403);
                }
                let may_be = [200, 503].into();
                assert!(!is_allowed || predicted.is_subset(&may_be), "not allowed: {}", about());
                assert!(is_allowed || predicted != [200].into(), "allowed: {}", about());
            }
        }
    }

    /// The verdict; `None` if the host is not of the service.
    fn verdict(
        &self,
        snapshot: &Snapshot,
        caller: &ServiceAccount,
        service: &str,
        request: &Request,
    ) -> Result<Verdict, String> {
        let question = Question {
            caller: caller.clone(),
            service: service.parse().unwrap(),
            port: None,
            request: Some(request.clone()),
        };
        match verdict(snapshot, &question, VerdictBasis::Mesh) {
            Ok(verdict) => Ok(verdict),
            Err(QuestionError::Request(words)) if words.contains(" to the host ") => Err(words),
            Err(error) => panic!("seed {}: {request:?}: {error}", self.seed),
        }
    }

    fn about(&self, request: &Request, verdict: &Verdict) -> String {
        format!("seed {}: {request:?}: {verdict:#?}\n{}", self.seed, self.policy)
    }
}

fn has_escaped_slash(request: &Request) -> bool {
    let path = request.path.split('?').next().unwrap().to_lowercase();
    path.contains("%2f") || path.contains("%5c")
}

/// The statuses that a verdict predicts for a caller by `Host`.
fn by_host(verdict: &Verdict) -> BTreeSet<u16> {
    match &verdict.answer {
        // Whether escaped slashes stay depends on the caller's other services.
        _ if (!verdict.in_scope || verdict.only_at_upstream)
            && verdict.request.as_ref().is_some_and(has_escaped_slash) =>
        {
            [400, 404].into()
        }
        Answer::Rejected(_) => [400].into(),
        _ if verdict.only_at_upstream => [404].into(),
        _ if !verdict.in_scope => [404].into(),
        Answer::NoBackend => [503].into(),
        Answer::Redirected(_) => [308].into(),
        _ => {
            let gets = verdict.destinations.iter().map(|one| match one.result {
                CallResult::Application => 200,
                CallResult::Forbidden | CallResult::ForbiddenByCaller => 403,
                CallResult::Rejected => 400,
                CallResult::Unknown => 404,
                CallResult::NoEndpoint => 503,
                CallResult::HandshakeFailed => panic!("nothing here is TCP: {verdict:#?}"),
            });
            gets.collect()
        }
    }
}

async fn send(connection: &mut Http1Connection, request: &Request) -> u16 {
    let headers: Vec<_> =
        request.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let method = request.method.parse().unwrap();
    let answer = connection.request(method, &request.path, &headers).await;
    answer.unwrap_or_else(|error| panic!("{request:?}: {error:#}")).status.as_u16()
}
