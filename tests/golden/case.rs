//! A golden case: its policy, its proxies, and the resources compiled from them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fs_err as fs;
use ironmesh_catalog::{
    CertificateSource, Discovered, Domain, EgressMode, Endpoint, Finding, HostUpstream, Inputs,
    JoinRecord, Labels, Locality, LogFolder, Mesh, Mode, NodeMetadata, Participation, Proxy,
    ProxyId, Records, ServiceName, Snapshot, TcpAccesses, TrustDomain, Upstream,
};
use ironmesh_config_language::{Loaded, render};
use ironmesh_config_sources::load_folder;
use ironmesh_providers::{GuardedEndpoints, discover};
use ironmesh_xds_compile::{Compiled, Compiler};
use jiff::Timestamp;
use serde::Deserialize;
use uuid::Uuid;

use crate::certificates;

/// Loads a copy of `folder`: documentation examples are links to it, and a policy folder reads
/// nothing outside itself.
fn load_policy(folder: &Path) -> Loaded {
    let copy = tempfile::tempdir().unwrap();
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        fs::copy(&path, copy.path().join(path.file_name().unwrap())).unwrap();
    }
    load_folder(copy.path()).unwrap()
}

/// One folder below `cases/`.
pub(crate) struct Case {
    pub(crate) name: String,
    folder: PathBuf,
    loaded: Loaded,
    proxies: Vec<Labelled>,
    /// Provider reports of some services, instead of the endpoints in policy.
    discovered: Discovered,
}

/// A proxy of a case, with the name of its files.
struct Labelled {
    label: String,
    proxy: Proxy,
}

/// The compiled resources of one proxy.
pub(crate) struct CompiledProxy {
    pub(crate) label: String,
    pub(crate) proxy: Proxy,
    pub(crate) compiled: Compiled,
}

impl Case {
    /// All cases by name.
    pub(crate) fn all() -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/cases");
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let folders: BTreeSet<_> = entries.filter(|path| path.is_dir()).collect();
        assert!(folders.len() > 10, "most cases are gone: {folders:?}");
        folders.into_iter().map(Self::load).collect()
    }

    pub(crate) fn load(folder: PathBuf) -> Self {
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let loaded = load_policy(&folder.join("policy"));
        let written = fs::read_to_string(folder.join("proxies.toml")).unwrap();
        let written: Proxies =
            toml::from_str(&written).unwrap_or_else(|e| panic!("{name}/proxies.toml: {e}"));
        let proxies: Vec<_> =
            written.proxy.into_iter().map(|proxy| proxy.into_labelled(&loaded)).collect();
        let labels: BTreeSet<_> = proxies.iter().map(|proxy| &proxy.label).collect();
        assert_eq!(labels.len(), proxies.len(), "{name}: labels must differ: {labels:?}");
        let discovered = match fs::read_to_string(folder.join("discovered.toml")) {
            Ok(text) => toml::from_str::<BTreeMap<ServiceName, Vec<Endpoint>>>(&text)
                .unwrap_or_else(|e| panic!("{name}/discovered.toml: {e}")),
            Err(_) => BTreeMap::new(),
        };
        let discovered = discovered.into_iter().map(|(name, all)| (name, Arc::new(all)));
        let discovered = Discovered(discovered.collect());
        Self { name, folder, loaded, proxies, discovered }
    }

    /// The folder of the expected files.
    pub(crate) fn expectation(&self) -> PathBuf {
        self.folder.join("expect")
    }

    /// Compiles every proxy with one compiler, as the control plane does. Empty for a rejected
    /// policy.
    pub(crate) fn compile(&self) -> Vec<CompiledProxy> {
        let Some(snapshot) = self.snapshot() else { return Vec::new() };
        let mut compiler = Compiler::new(Arc::new(snapshot));
        let compile = |Labelled { label, proxy }: &Labelled| CompiledProxy {
            label: label.clone(),
            proxy: proxy.clone(),
            compiled: compiler.compile(proxy),
        };
        self.proxies.iter().map(compile).collect()
    }

    /// All findings as operators see them: of the policy, the mesh and each proxy.
    pub(crate) fn findings(&self, compiled: &[CompiledProxy]) -> String {
        let mesh = self.snapshot();
        let mesh: Vec<_> = mesh.iter().flat_map(|snapshot| snapshot.findings().cloned()).collect();
        let of_policy = ("policy", &self.loaded.findings);
        let of_proxies = compiled.iter().map(|one| (&*one.label, &one.compiled.findings));
        let all = [of_policy, ("mesh", &mesh)].into_iter().chain(of_proxies);
        all.fold(String::new(), |mut text, (about, findings): (_, &Vec<Finding>)| {
            if !findings.is_empty() {
                let drawn = render(findings, &self.loaded.documents, false);
                writeln!(text, "## {about}\n\n{drawn}").unwrap();
            }
            text
        })
    }

    /// The snapshot to compile; `None` for a rejected policy.
    pub(crate) fn snapshot(&self) -> Option<Snapshot> {
        let specification = self.loaded.specification.clone()?;
        let records = self.proxies.iter().map(|one| &one.proxy.record);
        let records: Records =
            records.map(|record| (record.id, Arc::new(record.clone()))).collect();
        let accounts = Snapshot::accounts_served(&specification, &records);
        let domain = Domain::default();
        let mut discovered = discover(&specification, &records, &GuardedEndpoints::default());
        discovered.0.extend(self.discovered.0.clone());
        let inputs = Inputs {
            mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
            mode: Mode::Strict,
            egress: EgressMode::Policy,
            discovered,
            specification,
            records,
            revoked: Records::new(),
            leaving: ironmesh_catalog::LeavingProxies::new(),
            health: ironmesh_catalog::ReportedApplications::new(),
            certificates: certificates::placeholders(&accounts),
            trust_bundle: Arc::new(certificates::placeholder_roots()),
            revoked_callers: Arc::default(),
        };
        Some(Snapshot::assemble(inputs, TcpAccesses::default()))
    }
}

/// `proxies.toml`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Proxies {
    #[serde(default)]
    proxy: Vec<ProxyEntry>,
}

/// `[[proxy]]`: the enrollment and the node metadata.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProxyEntry {
    label: String,
    id: ProxyId,
    services: Vec<ServiceName>,
    mesh_address: SocketAddr,
    machine: Option<Uuid>,
    bind: Option<IpAddr>,
    app_address: Option<IpAddr>,
    #[serde(default)]
    upstreams: Vec<Upstream>,
    #[serde(default)]
    hosts: Vec<HostUpstream>,
    access_log_dir: Option<LogFolder>,
    /// Where it gets its certificates from.
    #[serde(default)]
    certificates: CertificateSource,
    /// The version of its bootstrap.
    #[serde(default)]
    bootstrap_version: u32,
    #[serde(default)]
    labels: Labels,
    locality: Option<String>,
    /// Whether the proxy has ACKed all ports of its services.
    #[serde(default = "default_true")]
    participates: bool,
}

fn default_true() -> bool {
    true
}

impl ProxyEntry {
    fn into_labelled(self, loaded: &Loaded) -> Labelled {
        let services = loaded.specification.iter().flat_map(|specification| {
            self.services.iter().filter_map(|name| specification.services.get(name))
        });
        let ports = services.flat_map(|service| {
            service.ports.iter().map(|port| (service.name.clone(), port.number))
        });
        let participation = Participation(ports.filter(|_| self.participates).collect());
        let record = JoinRecord {
            machine: self.machine,
            labels: self.labels,
            locality: self
                .locality
                .map_or_else(Locality::default, |position| position.parse().unwrap()),
            participation,
            ..JoinRecord::new(
                self.id,
                self.services,
                self.mesh_address,
                Timestamp::UNIX_EPOCH,
                Timestamp::MAX,
            )
        };
        let Self { bind, app_address, upstreams, hosts, access_log_dir, .. } = self;
        let metadata = NodeMetadata {
            bind,
            app_address,
            upstreams,
            hosts,
            access_log_dir,
            certificates: self.certificates,
            bootstrap_version: self.bootstrap_version,
            control_plane: Vec::new(),
            unknown: Vec::new(),
        };
        Labelled { label: self.label, proxy: Proxy { record, metadata } }
    }
}
