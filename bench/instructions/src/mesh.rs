//! The mesh of the hot paths: one caller of many services, and the proxy of one of them.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use ironmesh_catalog::{
    CertificateSource, Domain, EgressMode, Inputs, JoinRecord, Mesh as MeshNames, Mode,
    NodeMetadata, Proxy, Records, Snapshot, TcpAccesses, TrustBundle, TrustDomain,
};
use ironmesh_config_language::{Document, load_documents};
use ironmesh_providers::{GuardedEndpoints, discover};
use jiff::Timestamp;

/// The number of called services. A debug build under callgrind takes seconds with these.
pub(crate) const SERVICES: usize = 50;

pub(crate) struct Mesh {
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) caller: Proxy,
    /// The proxy of the first service.
    pub(crate) server: Proxy,
}

impl Mesh {
    pub(crate) fn new() -> anyhow::Result<Self> {
        let (caller, server) = (proxy(1, "caller")?, proxy(2, "s000")?);
        let inputs = inputs(&policy("items", 1), &[&caller, &server])?;
        let snapshot = Arc::new(Snapshot::assemble(inputs, TcpAccesses::default()));
        Ok(Self { snapshot, caller, server })
    }

    /// The next snapshot, in which a rule about the first service has another path.
    pub(crate) fn with_edited_match(&self) -> anyhow::Result<Arc<Snapshot>> {
        self.with(&policy("other-items", 1))
    }

    /// The next snapshot, in which the first service has another endpoint.
    pub(crate) fn with_other_endpoint(&self) -> anyhow::Result<Arc<Snapshot>> {
        self.with(&policy("items", 2))
    }

    fn with(&self, policy: &str) -> anyhow::Result<Arc<Snapshot>> {
        let inputs = inputs(policy, &[&self.caller, &self.server])?;
        Ok(Arc::new(self.snapshot.revise(inputs)))
    }
}

/// Permissive services with a list of endpoints each, called without a proxy, and a target for each. The first one has
/// this path and this number of endpoints.
fn policy(path: &str, endpoints: usize) -> String {
    let mut text = "[[service]]\nname = \"caller\"\n".to_owned();
    for number in 0..SERVICES {
        let name = format!("s{number:03}");
        let is_first = number == 0;
        let path = if is_first { path } else { "items" };
        let count = if is_first { endpoints } else { 1 };
        let addresses: Vec<_> =
            (1..=count).map(|host| format!("{{ address = \"10.1.{number}.{host}\" }}")).collect();
        let addresses = addresses.join(", ");
        // Writing to a string cannot fail.
        _ = write!(
            text,
            r#"
[[service]]
name = "{name}"
mode = "audit"
ports = [{{ port = 80, protocol = "http" }}]
endpoints = {{ static = [{addresses}] }}

[[http_route_group]]
name = "{name}"
matches = [{{ name = "read", path_regex = "/{path}" }}]

[[traffic_target]]
name = "{name}"
destination = {{ name = "{name}" }}
sources = [{{ name = "caller" }}]
rules = [{{ kind = "HTTPRouteGroup", name = "{name}" }}]
"#
        );
    }
    text
}

/// A proxy with certificates from its agent.
fn proxy(number: u8, service: &str) -> anyhow::Result<Proxy> {
    let record = JoinRecord::new(
        format!("00000000-0000-0000-0000-{number:012}").parse()?,
        vec![service.parse()?],
        SocketAddr::from(([10, 0, 0, number], 15003)),
        Timestamp::UNIX_EPOCH,
        Timestamp::MAX,
    );
    let certificates = CertificateSource::Agent;
    Ok(Proxy { record, metadata: NodeMetadata { certificates, ..NodeMetadata::default() } })
}

fn inputs(policy: &str, proxies: &[&Proxy]) -> anyhow::Result<Inputs> {
    let loaded = load_documents([Document::new("mesh.toml", policy)]);
    let specification = loaded.specification.context("the policy is invalid")?;
    let records = proxies.iter().map(|proxy| (proxy.record.id, Arc::new(proxy.record.clone())));
    let records: Records = records.collect();
    let domain = Domain::default();
    Ok(Inputs {
        mesh: MeshNames { trust_domain: TrustDomain::new(domain.clone()), domain },
        mode: Mode::Strict,
        egress: EgressMode::Policy,
        discovered: discover(&specification, &records, &GuardedEndpoints::default()),
        certificates: imbl::OrdMap::new(),
        specification,
        records,
        revoked: Records::new(),
        leaving: ironmesh_catalog::LeavingProxies::new(),
        health: ironmesh_catalog::ReportedApplications::new(),
        trust_bundle: Arc::new(TrustBundle { roots: "the roots of the mesh".to_owned() }),
        revoked_callers: Arc::default(),
    })
}
