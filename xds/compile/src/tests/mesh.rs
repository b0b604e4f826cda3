//! Small random meshes. Everything is one of a few numbers, so that things often meet.

mod bindings;
mod build;
mod fleet;
mod ingress;
mod instance;
mod large;
mod merge;
mod order;
mod outward;
pub(in crate::tests) mod settings;
mod strategy;
mod telemetry;
mod treated;

use std::collections::BTreeMap;

use ironmesh_catalog::{
    EscapedSlashes, Locality, Mode, Name, Protocol, Resolution, ServiceAccount, Spot,
};

use ingress::IngressShape;
use instance::InstanceShape;
pub(super) use large::Edit;
pub(super) use order::PartOrder;
use outward::OutwardShape;
use settings::SettingShape;
pub(super) use strategy::{shape, step};
use telemetry::TelemetryShape;
use treated::TreatedShape;

/// The numbers of namespaces, accounts in each, services, route groups in each namespace, and
/// matches in each group. References beyond them are broken.
const NAMESPACES: usize = 2;
const ACCOUNTS: usize = 2;
const SERVICES: usize = 5;
const GROUPS: usize = 2;
const MATCHES: usize = 3;
const ROUTES: usize = 2;

/// The number of parts of a mesh that may change between two snapshots.
const PARTS: u32 = 21;

/// The hostnames of external services; some look like the mesh's own.
const HOSTNAMES: [&str; 4] = ["api.example.com", "s2.n0", "s3.n1", "s4.n1"];

const PORTS: [(u16, Protocol); 5] = [
    (80, Protocol::Http),
    (9000, Protocol::Grpc),
    (14001, Protocol::Http2),
    (3306, Protocol::Tcp),
    (6379, Protocol::Tcp),
];

/// A mesh in numbers.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    mode: Mode,
    /// The mode of each namespace.
    namespaces: Vec<Option<Mode>>,
    services: Vec<ServiceShape>,
    /// The kinds of matches in each group.
    groups: BTreeMap<(usize, usize), Vec<usize>>,
    /// The ports that each TCP route names.
    routes: BTreeMap<(usize, usize), Option<Vec<usize>>>,
    targets: Vec<TargetShape>,
    splits: Vec<SplitShape>,
    treated: Vec<TreatedShape>,
    settings: Vec<SettingShape>,
    /// Whether the bindings of an account are those of the next one.
    has_other_bindings: bool,
    telemetry: TelemetryShape,
    outward: OutwardShape,
    proxies: Vec<ProxyShape>,
    ingress: Vec<IngressShape>,
    /// The revoked proxies, which are none of `proxies`.
    revoked: Vec<usize>,
    /// The accounts whose shared certificate was replaced, once for each time.
    reissued: Vec<(usize, usize)>,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is by chance")]
struct ServiceShape {
    namespace: usize,
    account: usize,
    ports: Vec<usize>,
    mode: Option<Mode>,
    is_listed: bool,
    /// Instances that a provider has found: the proxy at whose address (or at none), and the
    /// instance.
    found: Vec<(usize, InstanceShape)>,
    is_drained: bool,
    is_private: bool,
    escaped_slashes: EscapedSlashes,
    /// Whether it has a subset.
    has_part: bool,
    /// Its upstreams in policy: service, port and local port.
    upstreams: Vec<(usize, Option<usize>, u16)>,
    /// The resolution and the hostname of an external service; `None` in the mesh.
    outside: Option<(Resolution, usize)>,
}

#[derive(Debug, Clone)]
struct TargetShape {
    namespace: usize,
    /// An account of the namespace.
    destination: (usize, SubjectKind),
    /// Namespace and account.
    sources: Vec<(usize, usize, SubjectKind)>,
    rules: Vec<RuleShape>,
}

/// How a target names an account.
#[derive(Debug, Clone, Copy)]
enum SubjectKind {
    Account,
    /// By a binding of the account.
    Binding,
    /// By a binding of its SPIFFE ID.
    Identity,
}

#[derive(Debug, Clone)]
enum RuleShape {
    /// Group and matches.
    Http(usize, Option<Vec<usize>>),
    Tcp(usize),
}

#[derive(Debug, Clone)]
struct SplitShape {
    apex: usize,
    /// Groups and matches.
    matches: Vec<(usize, Option<Vec<usize>>)>,
    /// Backends with their weights.
    backends: BTreeMap<usize, u32>,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is by chance")]
struct ProxyShape {
    services: Vec<usize>,
    /// Service, port, local port.
    upstreams: Vec<(usize, Option<usize>, u16)>,
    participates: bool,
    is_on_loopback: bool,
    is_suspect: bool,
    /// Whether no provider reports an application behind it.
    is_vacant: bool,
    /// Whether its machine also has the address of the next one.
    is_next_too: bool,
    /// Whether it has local ports for hosts outside the mesh.
    has_hosts: bool,
}

/// The locality of a proxy: unknown, or one of the zones of instances.
pub(in crate::tests) fn place(n: usize) -> Locality {
    let zone = ["", "a", "b"].get(n).copied().unwrap_or_default();
    Locality { zone: zone.into(), ..Locality::default() }
}

fn name(letter: &str, n: usize) -> Name {
    Name::new(&format!("{letter}{n}")).unwrap()
}

fn account(namespace: usize, n: usize) -> ServiceAccount {
    ServiceAccount::new(name("n", namespace), name("a", n))
}

fn spot() -> Spot {
    Spot::new(&"policy.toml".into(), "", 0..0)
}
