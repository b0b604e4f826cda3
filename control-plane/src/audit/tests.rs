//! The audit: which denials it records, when it forgets them, and its limits.

use std::net::SocketAddr;

use ironmesh_catalog::{
    Discovered, Domain, EgressMode, Inputs, Mesh, Mode, ProxyId, Records, ServiceCertificate,
    TcpAccesses, TrustBundle,
};
use ironmesh_config_language::{Document, load_documents};
use ironmesh_xds_wire::LoggedRequest;
use tokio::time::advance;
use uuid::Uuid;

use super::*;

const SERVICES: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http" }, { name = "ledger", port = 3306, protocol = "tcp" }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[tcp_route]]
name = "all"
"#;

/// An audit whose snapshots the test sets, and a proxy of the store.
struct Harness {
    audit: Audit,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    record: JoinRecord,
}

impl Harness {
    fn open(mode: Mode) -> Self {
        let (snapshots, receiver) = watch::channel(None);
        let audit = Audit::new(TrustDomain::new(Domain::default()), receiver);
        let record = JoinRecord::new(
            ProxyId(Uuid::nil()),
            vec!["store".parse().unwrap()],
            SocketAddr::from(([10, 0, 0, 1], 15003)),
            Timestamp::UNIX_EPOCH,
            Timestamp::MAX,
        );
        let harness = Self { audit, snapshots, record };
        harness.set(mode, "");
        harness
    }

    /// Makes a policy active that has [`SERVICES`] and `more`.
    fn set(&self, mode: Mode, more: &str) {
        let loaded = load_documents([Document::new("p.toml", format!("{SERVICES}{more}"))]);
        let domain = Domain::default();
        let inputs = Inputs {
            mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
            mode,
            egress: EgressMode::Policy,
            specification: loaded.specification.unwrap_or_else(|| panic!("{:?}", loaded.findings)),
            discovered: Discovered::default(),
            records: Records::new(),
            revoked: Records::new(),
            leaving: ironmesh_catalog::LeavingProxies::new(),
            health: ironmesh_catalog::ReportedApplications::new(),
            certificates: Vec::<(ServiceAccount, Arc<ServiceCertificate>)>::new()
                .into_iter()
                .collect(),
            trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
            revoked_callers: Arc::default(),
        };
        let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
        self.snapshots.send_replace(Some(Arc::new(snapshot)));
        // The audit reads the new snapshot at its next view.
        self.seen();
    }

    /// Records a call of the store by `caller`: a request for `path`, or without one a TCP
    /// connection.
    fn call(&self, caller: &str, path: Option<&str>) {
        let port = if path.is_some() { "store|80" } else { "store|3306" };
        self.audit.record_calls(&self.record, &[call(port, caller, path)]);
    }

    /// The record of another proxy, enrolled for `services`.
    fn proxy(&self, number: u128, services: &[&str]) -> JoinRecord {
        let services = services.iter().map(|name| name.parse().unwrap()).collect();
        JoinRecord { id: ProxyId(Uuid::from_u128(number)), services, ..self.record.clone() }
    }

    /// The callers that strict mode would deny, each with the port.
    fn seen(&self) -> Vec<(String, u16)> {
        let denied = self.audit.view().denied;
        denied.into_iter().map(|one| (one.caller.name.to_string(), one.port)).collect()
    }
}

/// A logged call of `port` by `caller`: a request for `path`, or without one a TCP connection.
fn call(port: &str, caller: &str, path: Option<&str>) -> LoggedCall {
    LoggedCall {
        cluster: format!("default/{port}|local"),
        peer: vec![format!("spiffe://mesh.internal/ns/default/sa/{caller}")],
        request: path.map(|path| LoggedRequest { method: Some("GET"), path: path.to_owned() }),
    }
}

/// Policy with `count` accounts: `caller-0` and so on.
fn callers(count: usize) -> String {
    let callers: Vec<_> =
        (0..count).map(|n| format!("[[service]]\nname = \"caller-{n}\"\n")).collect();
    callers.concat()
}

/// Policy with a `till` that has HTTP port 80 and `ports` TCP ports from 1000 on.
fn till(ports: usize) -> String {
    let port = |number, protocol| {
        format!("{{ name = \"p{number}\", port = {number}, protocol = \"{protocol}\" }}")
    };
    let more = (1000..1000 + ports).map(|number| port(number, "tcp"));
    let ports: Vec<_> = [port(80, "http")].into_iter().chain(more).collect();
    format!("[[service]]\nname = \"till\"\nports = [{}]\n", ports.join(", "))
}

/// A traffic target that allows `sources` to call the store by a rule of this kind.
fn target(name: &str, sources: &[&str], kind: &str) -> String {
    let sources: Vec<_> = sources.iter().map(|name| format!("{{ name = \"{name}\" }}")).collect();
    format!(
        "[[traffic_target]]\nname = \"{name}\"\ndestination = {{ name = \"store\" }}\n\
         sources = [{}]\nrules = [{{ kind = \"{kind}\", name = \"all\" }}]\n",
        sources.join(", ")
    )
}

#[tokio::test(start_paused = true)]
async fn policy_change_forgets_allowed_denials_and_ignores_stale_logs() {
    let harness = Harness::open(Mode::Audit);
    harness.call("buyer", Some("/books"));
    harness.call("store", Some("/books"));
    assert_eq!(harness.seen(), [("buyer".to_owned(), 80), ("store".to_owned(), 80)]);

    harness.set(Mode::Audit, &target("buyers", &["buyer"], "HTTPRouteGroup"));
    assert_eq!(harness.seen(), [("store".to_owned(), 80)], "the others are still denied");
    harness.call("buyer", Some("/books"));
    harness.call("store", Some("/books"));
    assert_eq!(
        harness.seen(),
        [("store".to_owned(), 80)],
        "the log may come from a proxy with the previous policy"
    );
    // After `SETTLED_AFTER` all proxies have the new policy, so later denials come from it.
    advance(SETTLED_AFTER).await;
    harness.call("buyer", Some("/books"));
    assert_eq!(harness.seen(), [("buyer".to_owned(), 80), ("store".to_owned(), 80)]);
    // Adding another source to the same target does not forget the buyer's denial.
    harness.set(Mode::Audit, &target("buyers", &["buyer", "store"], "HTTPRouteGroup"));
    assert_eq!(harness.seen(), [("buyer".to_owned(), 80)]);
}

#[tokio::test(start_paused = true)]
async fn connection_is_recorded_if_strict_mode_would_deny_it() {
    let harness = Harness::open(Mode::Audit);
    harness.call("buyer", None);
    assert_eq!(harness.seen(), [("buyer".to_owned(), 3306)]);
    harness.set(Mode::Audit, &target("buyers", &["buyer"], "TCPRoute"));
    harness.call("buyer", None);
    assert!(harness.seen().is_empty());
    harness.call("store", None);
    assert_eq!(harness.seen(), [("store".to_owned(), 3306)]);
}

#[tokio::test(start_paused = true)]
async fn leaving_audit_mode_clears_denials_and_keeps_counters() {
    let harness = Harness::open(Mode::Audit);
    harness.call("buyer", Some("/"));
    harness.call("buyer", None);
    assert_eq!(harness.seen().len(), 2);
    harness.set(Mode::Strict, "");
    assert!(harness.seen().is_empty());
    harness.call("buyer", Some("/"));
    harness.call("buyer", None);
    assert!(harness.seen().is_empty());
    let (counted, _) = harness.audit.counted();
    assert_eq!(counted.values().copied().collect::<Vec<_>>(), [1, 1], "counters never fall");
}

#[tokio::test(start_paused = true)]
async fn recorded_denials_are_bounded_and_the_excess_is_counted() {
    let (accounts, ports) = (100, 82);
    let harness = Harness::open(Mode::Audit);
    harness.set(Mode::Audit, &(callers(accounts) + &till(ports)));
    let proxy = harness.proxy(1, &["till"]);
    for port in 1000..1000 + ports {
        let port = format!("till|{port}");
        let calls = (0..accounts).map(|n| call(&port, &format!("caller-{n}"), None));
        harness.audit.record_calls(&proxy, &calls.collect::<Vec<_>>());
    }
    let beyond = u64::try_from(accounts * ports - MAX_PAIRS).unwrap();
    let view = harness.audit.view();
    assert_eq!(view.denied.len(), MAX_PAIRS);
    let others: Vec<_> = view.others.iter().map(|one| (one.port, one.count)).collect();
    assert_eq!(others, [(1081, beyond)]);
    let (counted, others) = harness.audit.counted();
    assert_eq!((counted.len(), others.into_values().collect()), (MAX_PAIRS, vec![beyond]));

    // Denials beyond the limit are not counted while they may come from the previous policy.
    let others = |expected: &[(u16, u64)]| {
        let call = call("till|80", "caller-0", Some("/"));
        harness.audit.record_calls(&proxy, &[call]);
        let others = harness.audit.view().others;
        let others: Vec<_> = others.iter().map(|one| (one.port, one.count)).collect();
        assert_eq!(others, expected);
    };
    let more = target("buyers", &["buyer"], "TCPRoute");
    harness.set(Mode::Audit, &(callers(accounts) + &till(ports) + &more));
    others(&[]);
    advance(SETTLED_AFTER).await;
    others(&[(80, 1)]);

    harness.set(Mode::Strict, "");
    let view = harness.audit.view();
    assert_eq!((view.denied.len(), view.others.len()), (0, 0));
    let (counted, others) = harness.audit.counted();
    assert_eq!((counted.len(), others.len()), (0, 0), "policy no longer has the till");

    let harness = Harness::open(Mode::Audit);
    for n in 0..100 {
        harness.call("buyer", Some(&format!("/{n}")));
    }
    let view = harness.audit.view();
    let [denied] = &view.denied[..] else { panic!("{view:?}") };
    assert_eq!((denied.count, denied.requests.len()), (100, 8));
}

#[test]
fn denial_not_repeated_for_a_day_is_forgotten() {
    let harness = Harness::open(Mode::Audit);
    harness.call("buyer", Some("/"));
    let mut state = harness.audit.state.lock();
    let (now, at) = (Timestamp::now(), Instant::now());
    state.forget_old(now + SignedDuration::from_hours(23), at);
    assert_eq!(state.seen.iter().count(), 1);
    state.forget_old(now + SignedDuration::from_hours(25), at);
    assert_eq!(state.seen.iter().count(), 0);
}

// A84: an account that policy does not define has no certificate of the mesh, so it cannot have
// called.
#[tokio::test(start_paused = true)]
async fn invented_callers_are_ignored_and_real_ones_are_recorded() {
    let harness = Harness::open(Mode::Audit);
    harness.set(Mode::Audit, &till(1));
    let hostile = harness.proxy(1, &["till"]);
    for n in 0..100 {
        let name = |m: usize| format!("invented-{}", n * 100 + m);
        let calls: Vec<_> = (0..100).map(|m| call("till|80", &name(m), Some("/"))).collect();
        harness.audit.record_calls(&hostile, &calls);
    }
    harness.call("buyer", Some("/"));
    assert_eq!(harness.seen(), [("buyer".to_owned(), 80)]);
    assert_eq!(harness.audit.counted().0.len(), 1);
}

// A84: denials that a single proxy reports first give way to the denials that others report.
#[tokio::test(start_paused = true)]
async fn flooding_proxy_does_not_displace_denials_of_others() {
    let harness = Harness::open(Mode::Audit);
    let (accounts, ports) = (100, 100);
    harness.set(Mode::Audit, &(callers(accounts) + &till(ports)));
    let hostile = harness.proxy(1, &["till"]);
    for port in 0..ports {
        let calls = (0..accounts)
            .map(|n| call(&format!("till|{}", 1000 + port), &format!("caller-{n}"), None));
        harness.audit.record_calls(&hostile, &calls.collect::<Vec<_>>());
    }
    harness.call("buyer", Some("/"));
    let view = harness.audit.view();
    let named: Vec<_> = view.denied.iter().filter(|one| one.port == 80).collect();
    let [named] = &named[..] else {
        panic!("{} denials are recorded, on port 80: {named:?}", view.denied.len())
    };
    assert_eq!((named.caller.to_string(), named.count), ("default/buyer".to_owned(), 1));
    assert!(view.others.iter().all(|one| one.service.to_string() == "default/till"));
    let (counted, others) = harness.audit.counted();
    let honest = |port: &ServicePort| port.to_string() == "default/store|80";
    let counts: Vec<_> = counted.iter().filter(|((_, port), _)| honest(port)).collect();
    assert_eq!((counts.len(), others.keys().any(honest)), (1, false));
    // The total stays exact: displaced denials are counted with the others of their port.
    let all = u64::try_from(accounts * ports + 1).unwrap();
    assert_eq!(counted.values().chain(others.values()).sum::<u64>(), all);
    let others = view.others.iter().map(|one| one.count);
    assert_eq!(view.denied.iter().map(|one| one.count).chain(others).sum::<u64>(), all);
}

// The audit keeps only the policy of earlier snapshots, not their certificates, until the new
// policy has settled.
#[tokio::test(start_paused = true)]
async fn earlier_snapshots_keep_only_policy_until_settled() {
    let harness = Harness::open(Mode::Audit);
    let first = Arc::downgrade(harness.snapshots.borrow().as_ref().unwrap());
    harness.set(Mode::Audit, &target("buyers", &["buyer"], "TCPRoute"));
    assert!(first.upgrade().is_none(), "only its policy is kept");
    assert_eq!(harness.audit.state.lock().before.len(), 1);
    advance(SETTLED_AFTER).await;
    harness.seen();
    assert!(harness.audit.state.lock().before.is_empty());
}
