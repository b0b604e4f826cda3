//! A large mesh of mostly independent teams, and single edits of its policy.

use std::collections::BTreeMap;

use ironmesh_catalog::{EgressMode, EgressProtocol, EscapedSlashes, Mode, Resolution};

use super::outward::{EgressShape, OutwardShape};
use super::settings::{SettingScope, SettingShape};
use super::treated::{ReachShape, TreatedShape};
use super::{
    IngressShape, ProxyShape, RuleShape, ServiceShape, Shape, SplitShape, SubjectKind, TargetShape,
    TelemetryShape,
};

/// Indexes into the list of ports.
const HTTP: usize = 0;
const GRPC: usize = 1;
const TCP: usize = 3;

/// The services of the first team, and one of the next team.
const SERVER: usize = 0;
const SECOND_VERSION: usize = 1;
const CLIENT: usize = 2;
const NEIGHBOUR: usize = 3;

/// The index of the hostname that looks like the neighbour's.
const LIKE_NEIGHBOUR: usize = 2;

/// An edit of policy, of the first team unless stated otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::tests) enum Edit {
    /// The target of the server no longer allows connections.
    Rule,
    /// The server no longer has a target.
    NoTarget,
    /// The client may call the second version directly.
    NewTarget,
    /// The conditions of a match, which a target and a split name.
    Match,
    /// The ports of a TCP route.
    TcpRoute,
    /// The weights of a split.
    Weight,
    /// One more port of the second version.
    Port,
    /// One port less, to which the split leads.
    LessPorts,
    /// The second version runs as the server's account.
    Account,
    /// The second version allows all callers in its scope.
    Permissive,
    /// The server allows all callers.
    Open,
    /// The mode of the namespace.
    Namespace,
    /// The mode of the mesh.
    Mesh,
    /// The server is private.
    Private,
    /// The server keeps escaped slashes.
    Slashes,
    /// The server has a subset.
    Part,
    /// A list gives the endpoints of the server.
    Listed,
    /// The second version is external, with a hostname like the neighbour's name.
    Outside,
    /// The server is external, with a wildcard hostname.
    Anywhere,
    /// A service that nothing refers to.
    NewService,
    /// Another service runs as the account of the server, to which a target grants access.
    SecondOfAccount,
    /// The neighbour is removed.
    Gone,
    /// All splits are removed.
    NoSplits,
    /// Splits lead from the second version to the client and, in part, back; and from the neighbour
    /// to it.
    Circle,
    /// Another split leads into the circle, and comes first.
    IntoCircle,
    /// The timeout of all requests of the mesh, of the namespace, of the server, and of requests
    /// that a match matches.
    TimeOfMesh,
    TimeOfNamespace,
    TimeOfService,
    TimeOfRequests,
    /// The retries of the client.
    Retry,
    /// Limits for callers of the server.
    Setting,
    /// Limits for callers of all services of the namespace.
    NamespaceSetting,
    /// Limits for callers of all services of the mesh.
    MeshSetting,
    /// The second version has an ingress rule.
    IngressRule,
    /// The same at another port.
    MovedIngress,
    /// The server's sidecars log calls.
    Telemetry,
    /// All sidecars of the mesh trace calls.
    MeshTelemetry,
    /// The client may call a host outside the mesh, restricted by a group.
    Egress,
    /// It no longer may.
    NoEgress,
    /// All calls outside the mesh pass from the namespace.
    Passthrough,
    /// All calls outside the mesh pass.
    AllPass,
    /// A proxy is revoked.
    Revoked,
    /// The certificates of all revoked proxies have expired.
    NoneRevoked,
    /// The shared certificate of the client is replaced.
    Reissued,
    /// Policy gives the client two upstreams: the TCP port of the server, and one in place of its flag.
    Upstreams,
    /// The upstream in place of the flag leads elsewhere.
    OtherUpstream,
}

impl Shape {
    /// A mesh of `number` teams, and one client of all servers. Each service has a proxy.
    ///
    /// A team has a namespace of its own. A split divides calls to its server between the server
    /// and a private second version. Its client has the server as an upstream.
    pub(in crate::tests) fn teams(number: usize) -> Self {
        let service = |namespace, account, ports: &[usize]| ServiceShape {
            namespace,
            account,
            ports: ports.to_vec(),
            mode: None,
            is_listed: false,
            found: Vec::new(),
            is_drained: false,
            is_private: account == SECOND_VERSION,
            escaped_slashes: EscapedSlashes::Reject,
            has_part: false,
            upstreams: Vec::new(),
            outside: None,
        };
        let of_team = |team| {
            let ports = [HTTP, TCP];
            [service(team, 0, &ports), service(team, 1, &ports), service(team, 2, &[])]
        };
        let services: Vec<_> =
            (0..number).flat_map(of_team).chain([service(number, 0, &[])]).collect();
        let proxy = |n: usize| ProxyShape {
            services: vec![n],
            upstreams: if n % 3 == CLIENT { vec![(n - CLIENT, Some(HTTP), 15079)] } else { vec![] },
            participates: true,
            is_on_loopback: false,
            is_suspect: false,
            is_vacant: false,
            is_next_too: false,
            has_hosts: false,
        };
        let target = |team| TargetShape {
            namespace: team,
            destination: (SERVER, SubjectKind::Account),
            sources: vec![(team, CLIENT, SubjectKind::Account), (number, 0, SubjectKind::Account)],
            rules: vec![RuleShape::Http(0, None), RuleShape::Tcp(0)],
        };
        let split = |team: usize| SplitShape {
            apex: 3 * team,
            matches: vec![(0, None)],
            backends: [(3 * team + SERVER, 9), (3 * team + SECOND_VERSION, 1)].into(),
        };
        Self {
            mode: Mode::Strict,
            namespaces: vec![None],
            proxies: (0..services.len()).map(proxy).collect(),
            services,
            groups: (0..number).map(|team| ((team, 0), vec![1])).collect(),
            routes: (0..number).map(|team| ((team, 0), Some(vec![TCP]))).collect(),
            targets: (0..number).map(target).collect(),
            splits: (0..number).map(split).collect(),
            treated: Vec::new(),
            settings: Vec::new(),
            has_other_bindings: false,
            ingress: Vec::new(),
            telemetry: TelemetryShape::new(),
            outward: OutwardShape::default(),
            revoked: Vec::new(),
            reissued: Vec::new(),
        }
    }

    /// The same after these edits. Proxies stay.
    pub(in crate::tests) fn with(self, edits: &[Edit]) -> Self {
        edits.iter().fold(self, |shape, edit| shape.with_one(*edit))
    }

    fn with_one(mut self, edit: Edit) -> Self {
        match edit {
            Edit::Rule => self.targets[0].rules.truncate(1),
            Edit::NoTarget => self.targets[0].sources.clear(),
            Edit::NewTarget => self.targets.push(TargetShape {
                namespace: 0,
                destination: (SECOND_VERSION, SubjectKind::Account),
                sources: vec![(0, CLIENT, SubjectKind::Account)],
                rules: vec![RuleShape::Http(0, None)],
            }),
            Edit::Match => self.groups.extend([((0, 0), vec![2])]),
            Edit::TcpRoute => self.routes.extend([((0, 0), Some(vec![HTTP]))]),
            Edit::Weight => self.splits[0].backends.extend([(SECOND_VERSION, 2)]),
            Edit::Port => self.services[SECOND_VERSION].ports.push(GRPC),
            Edit::LessPorts => self.services[SECOND_VERSION].ports = vec![TCP],
            Edit::Account => self.services[SECOND_VERSION].account = SERVER,
            Edit::Permissive => self.services[SECOND_VERSION].mode = Some(Mode::Permissive),
            Edit::Open => self.services[SERVER].mode = Some(Mode::Permissive),
            Edit::Namespace => self.namespaces[0] = Some(Mode::Audit),
            Edit::Mesh => self.mode = Mode::Permissive,
            Edit::Private => self.services[SERVER].is_private = true,
            Edit::Slashes => self.services[SERVER].escaped_slashes = EscapedSlashes::Keep,
            Edit::Part => self.services[SERVER].has_part = true,
            Edit::Listed => self.services[SERVER].is_listed = true,
            Edit::Outside => {
                self.services[SECOND_VERSION].outside = Some((Resolution::Dns, LIKE_NEIGHBOUR));
            }
            Edit::Anywhere => self.services[SERVER].outside = Some((Resolution::Passthrough, 0)),
            Edit::NewService => {
                let new = ServiceShape { account: 3, ..self.services[SERVER].clone() };
                self.services.push(new);
            }
            Edit::SecondOfAccount => self.services.push(self.services[SERVER].clone()),
            // Nothing refers to the namespace that it moves to.
            Edit::Gone => self.services[NEIGHBOUR].namespace = 1000,
            Edit::NoSplits => self.splits.clear(),
            Edit::Circle => {
                self.services[CLIENT].ports = vec![HTTP, TCP];
                self.splits[0] = leads(SECOND_VERSION, &[CLIENT]);
                self.splits.push(leads(CLIENT, &[SECOND_VERSION, CLIENT]));
                self.splits[1].backends.extend([(SECOND_VERSION, 1)]);
            }
            Edit::IngressRule => {
                self.ingress = vec![IngressShape::plain(SECOND_VERSION, HTTP, 8443)];
            }
            Edit::MovedIngress => {
                self.ingress = vec![IngressShape::plain(SECOND_VERSION, HTTP, 8444)];
            }
            Edit::IntoCircle => self.splits.push(leads(SERVER, &[CLIENT])),
            Edit::TimeOfMesh => self.treated.push(time(ReachShape::Mesh)),
            Edit::TimeOfNamespace => self.treated.push(time(ReachShape::Namespace(0))),
            Edit::TimeOfService => self.treated.push(time(ReachShape::Service(SERVER))),
            Edit::TimeOfRequests => {
                self.treated.push(time(ReachShape::Requests(SERVER, vec![(0, None)])));
            }
            Edit::Retry => self.treated.push(TreatedShape::Retry((0, CLIENT), SERVER, 7)),
            Edit::Setting => self.settings.push(less(SettingScope::Service(SERVER))),
            Edit::NamespaceSetting => self.settings.push(less(SettingScope::Namespace(0))),
            Edit::MeshSetting => self.settings.push(less(SettingScope::Mesh)),
            Edit::Telemetry => self.telemetry.extend([(SERVER + 2, 1)]),
            Edit::MeshTelemetry => self.telemetry.extend([(0, 2)]),
            Edit::Egress => self.outward.egresses.push(EgressShape {
                namespace: 0,
                source: (0, CLIENT),
                host: Some(0),
                protocol: EgressProtocol::Http,
                matches: Some((0, None)),
            }),
            Edit::NoEgress => self.outward.egresses.clear(),
            Edit::Passthrough => self.outward.namespaces = vec![Some(EgressMode::Passthrough)],
            Edit::AllPass => self.outward.mesh = EgressMode::Passthrough,
            Edit::Revoked => self.revoked.push(self.revoked.len()),
            Edit::NoneRevoked => self.revoked.clear(),
            Edit::Upstreams => {
                self.services[CLIENT].upstreams =
                    vec![(SERVER, Some(TCP), 15078), (SERVER, Some(HTTP), 15079)];
            }
            Edit::OtherUpstream => {
                self.services[CLIENT].upstreams =
                    vec![(SERVER, Some(TCP), 15078), (SECOND_VERSION, Some(HTTP), 15079)];
            }
            Edit::Reissued => self.reissued.push((0, CLIENT)),
        }
        self
    }
}

/// A timeout.
fn time(reach: ReachShape) -> TreatedShape {
    TreatedShape::Route(reach, None, 5, None)
}

/// A setting with all limits.
fn less(about: SettingScope) -> SettingShape {
    SettingShape { about, much: (3, 1) }
}

/// A split of all calls.
fn leads(apex: usize, to: &[usize]) -> SplitShape {
    let backends: BTreeMap<_, _> = to.iter().map(|backend| (*backend, 1)).collect();
    SplitShape { apex, matches: Vec::new(), backends }
}
