//! A sequence of policy edits in a text that a fuzzer changes: documents are written and removed,
//! and loaded in between. It panics if loading or compiling breaks one of its rules.
//!
//! `tests/golden` also runs the texts in `fuzz/corpus/policy`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ironmesh_catalog::{
    CertificateHistory, Domain, EgressMode, Finding, Inputs, JoinRecord, Mesh, MeshSpecification,
    Mode, NodeMetadata, Participation, Proxy, ProxyId, Records, Secret, Service,
    ServiceCertificate, Snapshot, Spot, TcpAccesses, TrustBundle, TrustDomain,
};
use ironmesh_config_language::{Document, Loaded, Loader, load_documents, render};
use ironmesh_providers::{GuardedEndpoints, discover};
use ironmesh_xds_compile::{Compiled, Compiler};
use jiff::Timestamp;

/// The start of a line that names the document of the next lines. With `-` before the name, the
/// line removes that document.
const DOCUMENT: &str = "=== ";

/// A line at which all documents are loaded. The end of the text loads them in any case.
const LOAD: &str = "---";

/// The limit of loads at [`LOAD`] lines. Each one is slow, since it is compared with a full load.
const MOST_LOADS: usize = 8;

/// The limit of compiled proxies, which are one for each of the first services.
const MOST_PROXIES: usize = 16;

/// Runs the story that these bytes encode.
pub(crate) fn tell(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let mut story = Story::default();
    let mut path = "a.toml".to_owned();
    for line in text.split_inclusive('\n') {
        if let Some(named) = line.strip_prefix(DOCUMENT) {
            named.trim().clone_into(&mut path);
            match path.strip_prefix('-') {
                Some(gone) => drop(story.documents.remove(gone.trim())),
                None => drop(story.documents.insert(path.clone(), String::new())),
            }
        } else if line.trim_end() == LOAD && story.loads < MOST_LOADS {
            story.load();
        } else {
            story.documents.entry(path.clone()).or_default().push_str(line);
        }
    }
    story.load();
}

#[derive(Default)]
struct Story {
    documents: BTreeMap<String, String>,
    loads: usize,
    loader: Loader,
    /// The compiler of the last valid policy.
    compiler: Option<Compiler>,
}

impl Story {
    fn load(&mut self) {
        self.loads += 1;
        let documents = || {
            let document =
                |(path, text): (&String, &String)| Document::new(path.as_str(), text.as_str());
            self.documents.iter().map(document).collect::<Vec<_>>()
        };
        let anew = load_documents(documents());
        let again = self.loader.load_documents(documents());
        assert_eq!(again.findings, anew.findings, "incremental and full load differ");
        assert_eq!(again.revision, anew.revision);
        assert_eq!(again.documents, anew.documents);
        // Equal objects may have different spots; the debug output includes the spots.
        assert_eq!(format!("{:#?}", again.specification), format!("{:#?}", anew.specification));
        check_findings(&again);
        if let Some(specification) = again.specification {
            self.compile(&specification);
        }
    }

    /// Compiles the policy incrementally, and checks that the result equals full compilation.
    fn compile(&mut self, specification: &Arc<MeshSpecification>) {
        let proxies: Vec<_> =
            specification.services.values().take(MOST_PROXIES).zip(1..).map(proxy).collect();
        let snapshot = Arc::new(snapshot(specification, &proxies));
        let compiler = match &mut self.compiler {
            Some(compiler) => {
                compiler.update(Arc::clone(&snapshot));
                compiler
            }
            None => self.compiler.insert(Compiler::new(Arc::clone(&snapshot))),
        };
        let mut anew = Compiler::new(snapshot);
        for proxy in &proxies {
            assert_eq!(shown(&compiler.compile(proxy)), shown(&anew.compile(proxy)));
        }
    }
}

/// Checks that each finding points into a document, that findings are sorted, and that they render.
fn check_findings(loaded: &Loaded) {
    let Loaded { documents, findings, specification, .. } = loaded;
    let is_refused = findings.iter().any(Finding::is_error);
    assert_eq!(specification.is_none(), is_refused, "{findings:#?}");
    // The finding about omitted findings (IM0114) comes last.
    let is_cut = findings.last().is_some_and(|last| last.code.to_string() == "IM0114");
    let ordered = &findings[..findings.len() - usize::from(is_cut)];
    assert!(ordered.is_sorted_by(|a, b| a.order(b).is_le()), "{findings:#?}");
    assert!(ordered.len() <= 1000, "{} findings", ordered.len());
    for finding in findings {
        assert!(!finding.message.is_empty() && finding.message.len() < 600, "{finding:?}");
        for spot in finding.spot.iter().chain(finding.related.iter().map(|(spot, _)| spot)) {
            let document = documents.iter().find(|document| document.path == spot.file);
            let document = document.unwrap_or_else(|| panic!("no such document: {finding:?}"));
            let (start, end) = spot.bytes;
            assert!(document.text.get(start..end).is_some(), "not in the text: {finding:?}");
            assert_eq!(*spot, Spot::new(&document.path, &document.text, start..end), "{finding:?}");
        }
    }
    for color in [false, true] {
        let drawn = render(findings, documents, color);
        assert!(drawn.lines().count() >= findings.len(), "{drawn}");
    }
}

/// A proxy of one service that participates on all its ports.
fn proxy((service, number): (&Arc<Service>, u32)) -> Proxy {
    let Service { name, ports, .. } = &**service;
    let id = format!("00000000-0000-0000-0000-{number:012}");
    let id: ProxyId = id.parse().unwrap_or_else(|_| panic!("no id: {id}"));
    let ports = ports.iter().map(|port| (name.clone(), port.number));
    let address = Ipv4Addr::from(0x0a00_0000 + number);
    let record = JoinRecord {
        participation: Participation(ports.collect()),
        ..JoinRecord::new(
            id,
            vec![name.clone()],
            SocketAddr::from((address, 15003)),
            Timestamp::UNIX_EPOCH,
            Timestamp::MAX,
        )
    };
    Proxy { record, metadata: NodeMetadata::default() }
}

fn snapshot(specification: &Arc<MeshSpecification>, proxies: &[Proxy]) -> Snapshot {
    let records = proxies.iter().map(|proxy| (proxy.record.id, Arc::new(proxy.record.clone())));
    let records: Records = records.collect();
    let accounts = Snapshot::accounts_served(specification, &records);
    let certificate = |account| ServiceCertificate {
        account,
        chain: "a certificate".to_owned(),
        key: Secret::new("a key".to_owned()),
        serial: "00".to_owned(),
        not_before: Timestamp::UNIX_EPOCH,
        not_after: Timestamp::MAX,
        renew_at: Timestamp::MAX,
        history: CertificateHistory::default(),
    };
    let certificates =
        accounts.into_iter().map(|account| (account.clone(), Arc::new(certificate(account))));
    let domain = Domain::default();
    let inputs = Inputs {
        mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
        mode: Mode::Strict,
        egress: EgressMode::Policy,
        discovered: discover(specification, &records, &GuardedEndpoints::default()),
        specification: Arc::clone(specification),
        records,
        revoked: Records::new(),
        leaving: ironmesh_catalog::LeavingProxies::new(),
        health: ironmesh_catalog::ReportedApplications::new(),
        certificates: certificates.collect(),
        trust_bundle: Arc::new(TrustBundle { roots: "the roots".to_owned() }),
        revoked_callers: Arc::default(),
    };
    Snapshot::assemble(inputs, TcpAccesses::default())
}

fn shown(compiled: &Compiled) -> String {
    let mut shown = format!("{:#?}\n", compiled.findings);
    for one in compiled.resources.iter() {
        let _ = writeln!(shown, "{} {} {}", one.resource_type(), one.name(), one.version());
    }
    shown
}
