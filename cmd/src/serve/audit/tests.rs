use std::net::SocketAddr;

use ironmesh_catalog::{
    Discovered, Domain, Inputs, Labels, Mesh, Participation, ProxyId, Records, ServiceCertificate,
    TcpAccesses, TrustBundle,
};
use ironmesh_config::{Document, load_documents};
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

/// An audit that has news of the mesh.
struct Place {
    audit: Audit,
    snapshots: watch::Sender<Option<Arc<Snapshot>>>,
    record: JoinRecord,
}

impl Place {
    fn open(mode: Mode) -> Self {
        let (snapshots, receiver) = watch::channel(None);
        let audit = Audit::new(TrustDomain::new(Domain::default()), receiver);
        let record = JoinRecord {
            id: ProxyId(Uuid::nil()),
            services: vec!["store".parse().unwrap()],
            mesh_address: SocketAddr::from(([10, 0, 0, 1], 15003)),
            joined_at: Timestamp::UNIX_EPOCH,
            certificate_expires_at: Timestamp::MAX,
            claimed_at: None,
            labels: Labels::default(),
            participation: Participation::default(),
            revoked: None,
        };
        let place = Self { audit, snapshots, record };
        place.set(mode, "");
        place
    }

    /// Brings a policy into force that has the services, and `more`.
    fn set(&self, mode: Mode, more: &str) {
        let loaded = load_documents([Document::new("p.toml", format!("{SERVICES}{more}"))]);
        let domain = Domain::default();
        let inputs = Inputs {
            mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
            mode,
            specification: loaded.specification.expect("a policy"),
            discovered: Discovered::default(),
            records: Records::new(),
            revoked: Records::new(),
            certificates: Vec::<(ServiceAccount, Arc<ServiceCertificate>)>::new()
                .into_iter()
                .collect(),
            trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
        };
        let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
        self.snapshots.send_replace(Some(Arc::new(snapshot)));
        // The reconciler is followed at the next look.
        self.seen();
    }

    /// The store is asked by `caller` for `path`; or connected to, without one.
    fn call(&self, caller: &str, path: Option<&str>) {
        let port = if path.is_some() { 80 } else { 3306 };
        let request = path.map(|path| LoggedRequest { method: Some("GET"), path: path.to_owned() });
        let call = LoggedCall {
            cluster: format!("default/store|{port}|local"),
            peer: vec![format!("spiffe://mesh.internal/ns/default/sa/{caller}")],
            request,
        };
        self.audit.logged(&self.record, &[call]);
    }

    /// Who would be denied, by port.
    fn seen(&self) -> Vec<(String, u16)> {
        let denied = self.audit.view().denied;
        denied.into_iter().map(|one| (one.caller.name.to_string(), one.port)).collect()
    }
}

/// Lets `sources` in by a rule of this kind.
fn target(name: &str, sources: &[&str], kind: &str) -> String {
    let sources: Vec<_> = sources.iter().map(|name| format!("{{ name = \"{name}\" }}")).collect();
    format!(
        "[[traffic_target]]\nname = \"{name}\"\ndestination = {{ name = \"store\" }}\n\
         sources = [{}]\nrules = [{{ kind = \"{kind}\", name = \"all\" }}]\n",
        sources.join(", ")
    )
}

#[tokio::test(start_paused = true)]
async fn what_a_rule_may_allow_now_is_forgotten_and_news_of_before_are_passed_over() {
    let place = Place::open(Mode::Audit);
    place.call("buyer", Some("/books"));
    place.call("store", Some("/books"));
    assert_eq!(place.seen(), [("buyer".to_owned(), 80), ("store".to_owned(), 80)]);

    place.set(Mode::Audit, &target("buyers", &["buyer"], "HTTPRouteGroup"));
    assert_eq!(place.seen(), [("store".to_owned(), 80)], "the others are still denied");
    place.call("buyer", Some("/books"));
    place.call("store", Some("/books"));
    assert_eq!(place.seen(), [("store".to_owned(), 80)], "it was judged by what was before");
    // After a while all have the new policy: what is denied then is denied by that.
    advance(SETTLED_AFTER).await;
    place.call("buyer", Some("/books"));
    assert_eq!(place.seen(), [("buyer".to_owned(), 80), ("store".to_owned(), 80)]);
    // Another caller in the same target is no matter to it.
    place.set(Mode::Audit, &target("buyers", &["buyer", "store"], "HTTPRouteGroup"));
    assert_eq!(place.seen(), [("buyer".to_owned(), 80)]);
}

#[tokio::test(start_paused = true)]
async fn connections_are_judged_by_whom_strict_would_let_in() {
    let place = Place::open(Mode::Audit);
    place.call("buyer", None);
    assert_eq!(place.seen(), [("buyer".to_owned(), 3306)]);
    place.set(Mode::Audit, &target("buyers", &["buyer"], "TCPRoute"));
    place.call("buyer", None);
    assert!(place.seen().is_empty());
    place.call("store", None);
    assert_eq!(place.seen(), [("store".to_owned(), 3306)]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_kept_of_what_is_not_in_audit() {
    let place = Place::open(Mode::Audit);
    place.call("buyer", Some("/"));
    place.call("buyer", None);
    assert_eq!(place.seen().len(), 2);
    place.set(Mode::Strict, "");
    assert!(place.seen().is_empty());
    place.call("buyer", Some("/"));
    place.call("buyer", None);
    assert!(place.seen().is_empty());
    let (counted, _) = place.audit.counted();
    assert_eq!(counted.values().copied().collect::<Vec<_>>(), [1, 1], "counters never fall");
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_is_bounded_and_the_rest_is_counted() {
    let place = Place::open(Mode::Audit);
    for n in 0..=MOST_COUNTED {
        place.call(&format!("caller-{n}"), Some("/"));
    }
    let view = place.audit.view();
    assert_eq!(view.denied.len(), MOST_SEEN);
    assert_eq!(view.others, u64::try_from(MOST_COUNTED + 1 - MOST_SEEN).unwrap());
    let (counted, others) = place.audit.counted();
    assert_eq!((counted.len(), others), (MOST_COUNTED, 1));
    place.set(Mode::Strict, "");
    let view = place.audit.view();
    assert_eq!((view.denied.len(), view.others), (0, 0));

    let place = Place::open(Mode::Audit);
    for n in 0..100 {
        place.call("buyer", Some(&format!("/{n}")));
    }
    let view = place.audit.view();
    let [denied] = &view.denied[..] else { panic!("{view:?}") };
    assert_eq!((denied.count, denied.requests.len()), (100, 8));
}

#[test]
fn what_is_not_seen_for_a_day_is_forgotten() {
    let place = Place::open(Mode::Audit);
    place.call("buyer", Some("/"));
    let mut state = place.audit.state.lock();
    let now = Timestamp::now();
    state.forget_old(now + jiff::SignedDuration::from_hours(23));
    assert_eq!(state.seen.len(), 1);
    state.forget_old(now + jiff::SignedDuration::from_hours(25));
    assert!(state.seen.is_empty());
}
