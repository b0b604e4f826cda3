//! The cost of a change of one file in a policy of a thousand services, a thousand splits and five
//! thousand rules, counted: documents read again, and proxies affected.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_catalog::{
    Domain, EgressMode, Inputs, JoinRecord, Mesh, MeshSpecification, Mode, NodeMetadata, Proxy,
    Records, Snapshot, TcpAccesses, TrustDomain,
};
use ironmesh_config_language::{Document, Loader};
use ironmesh_providers::{GuardedEndpoints, discover};
use ironmesh_xds_compile::Compiler;
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType, Version};
use jiff::Timestamp;

use crate::certificates;

const SERVICES: usize = 1000;
const RULES_OF_EACH: usize = 5;

/// A service that `caller` may call for some requests, with a split to a second version.
fn document(number: usize, path: &str) -> Document {
    let name = format!("s{number:04}");
    let ports = "ports = [{ port = 80, protocol = \"http\" }]";
    let mut text = format!(
        "[[service]]\nname = \"{name}\"\n{ports}\n\
         [[service]]\nname = \"{name}-v2\"\nservice_account = \"{name}\"\n{ports}\n\
         [[traffic_split]]\nname = \"{name}\"\nservice = \"{name}\"\nbackends = [\
         {{ service = \"{name}\", weight = 9 }}, {{ service = \"{name}-v2\", weight = 1 }}]\n"
    );
    let mut rules = Vec::new();
    for rule in 0..RULES_OF_EACH {
        let group = format!("{name}-{rule}");
        writeln!(
            text,
            "[[http_route_group]]\nname = \"{group}\"\n\
             matches = [{{ name = \"read\", path_regex = \"/{rule}/{path}\" }}]"
        )
        .unwrap();
        rules.push(format!("{{ kind = \"HTTPRouteGroup\", name = \"{group}\" }}"));
    }
    let rules = rules.join(", ");
    writeln!(
        text,
        "[[traffic_target]]\nname = \"{name}\"\ndestination = {{ name = \"{name}\" }}\n\
         sources = [{{ name = \"caller\" }}]\nrules = [{rules}]"
    )
    .unwrap();
    Document::new(format!("{name}.toml"), text)
}

fn proxy(number: u8, service: &str) -> Proxy {
    let record = JoinRecord::new(
        format!("00000000-0000-0000-0000-{number:012}").parse().unwrap(),
        vec![service.parse().unwrap()],
        SocketAddr::from(([10, 0, 0, number], 15003)),
        Timestamp::UNIX_EPOCH,
        Timestamp::MAX,
    );
    Proxy { record, metadata: NodeMetadata::default() }
}

fn inputs(specification: Arc<MeshSpecification>, proxies: &[Proxy]) -> Inputs {
    let records = proxies.iter().map(|proxy| (proxy.record.id, Arc::new(proxy.record.clone())));
    let records: Records = records.collect();
    let domain = Domain::default();
    Inputs {
        mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
        mode: Mode::Strict,
        egress: EgressMode::Policy,
        discovered: discover(&specification, &records, &GuardedEndpoints::default()),
        certificates: certificates::placeholders(&Snapshot::accounts_served(
            &specification,
            &records,
        )),
        specification,
        records,
        revoked: Records::new(),
        leaving: ironmesh_catalog::LeavingProxies::new(),
        health: ironmesh_catalog::ReportedApplications::new(),
        trust_bundle: Arc::new(certificates::placeholder_roots()),
        revoked_callers: Arc::default(),
    }
}

fn versions(resources: &ResourceSet) -> Vec<(ResourceType, Arc<str>, Version)> {
    let version =
        |one: &Arc<Resource>| (one.resource_type(), Arc::clone(one.name()), one.version());
    resources.iter().map(version).collect()
}

#[test]
fn one_file_change_reparses_one_file_and_affects_one_service() {
    let mut documents: Vec<_> = (0..SERVICES).map(|number| document(number, "items")).collect();
    documents.push(Document::new("caller.toml", "[[service]]\nname = \"caller\"\n"));
    let mut loader = Loader::default();
    let before = loader.load_documents(documents.iter().cloned()).specification.unwrap();
    assert_eq!((loader.parsed(), loader.checked()), (1001, 1));
    assert_eq!(before.traffic_splits.len(), SERVICES);

    let proxies = [proxy(1, "caller"), proxy(2, "s0007"), proxy(3, "s0008")];
    let snapshot = Snapshot::assemble(inputs(before, &proxies), TcpAccesses::default());
    let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
    let compile = |compiler: &mut Compiler| {
        proxies.each_ref().map(|proxy| versions(&compiler.compile(proxy).resources))
    };
    let [caller, seven, eight] = compile(&mut compiler);
    let all = compiler.encoded();
    assert!(all > 2 * 2000, "the caller has clusters and endpoints of all of them: {all}");

    documents[7] = document(7, "other-items");
    let after = loader.load_documents(documents).specification.unwrap();
    assert_eq!((loader.parsed(), loader.checked()), (1002, 2), "one more is parsed");
    let snapshot = snapshot.revise(inputs(after, &proxies));
    let changes = compiler.update(Arc::new(snapshot));
    assert_eq!(compiler.encoded() - all, 1, "the routes of its server with the rules in them");
    assert_eq!(changes.proxies, [proxies[1].record.id].into(), "the proxy of s0007");
    assert!(!changes.all_proxies && changes.endpoints.is_empty(), "{changes:?}");
    let [caller_after, seven_after, eight_after] = compile(&mut compiler);
    assert_ne!(seven, seven_after, "its routes have other rules");
    assert_eq!(caller, caller_after, "grants are in the server's resources only");
    assert_eq!(eight, eight_after);
}
