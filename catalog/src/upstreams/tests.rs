//! Which declared upstreams of a proxy take effect.

use std::sync::Arc;

use super::*;
use crate::endpoint_source::EndpointSource;
use crate::finding::Spot;
use crate::identity::TrustDomain;
use crate::name::{Domain, ServiceAccount};
use crate::proxy::{JoinRecord, NodeMetadata, ProxyId};
use crate::service::{EscapedSlashes, Mode, Protocol, Visibility};
use crate::snapshot::{Inputs, LeavingProxies, Mesh, Records};
use crate::specification::MeshSpecification;
use crate::{EgressMode, TcpAccesses, TrustBundle};

fn spot(line: u32) -> Spot {
    Spot { line, ..Spot::new(&"p.toml".into(), "", 0..0) }
}

/// A service with ports, by name and number, and upstreams.
fn service(name: &str, ports: &[(&str, u16)], upstreams: Vec<PolicyUpstream>) -> Service {
    let name: ServiceName = name.parse().unwrap();
    let port = |(name, number): &(&str, u16)| Port {
        name: name.parse().unwrap(),
        number: *number,
        protocol: Protocol::Http,
        target: *number,
        allowed_targets: Vec::new(),
    };
    Service {
        account: ServiceAccount::new(name.namespace.clone(), name.name.clone()),
        name,
        ports: ports.iter().map(port).collect(),
        endpoints: EndpointSource::registered(),
        mode: None,
        visibility: Visibility::Public,
        escaped_slashes: EscapedSlashes::Reject,
        max_connection_duration: None,
        health: None,
        drained: false,
        external: None,
        subsets: Vec::new(),
        upstreams,
        spot: spot(1),
    }
}

fn upstream(service: &str, port: Option<&str>, local_port: u16, line: u32) -> PolicyUpstream {
    let port = port.map(|port| match port.parse() {
        Ok(number) => PortReference::Number(number),
        Err(_) => PortReference::Name(port.parse().unwrap()),
    });
    PolicyUpstream { service: service.parse().unwrap(), port, local_port, spot: spot(line) }
}

/// A mesh of `services`, with `api` (ports `web` 80 and `db` 3306) and `ledger` (port 3306).
fn snapshot(mut services: Vec<Service>) -> Snapshot {
    services.push(service("api", &[("web", 80), ("db", 3306)], Vec::new()));
    services.push(service("ledger", &[("db", 3306)], Vec::new()));
    let services = services.into_iter().map(|one| (one.name.clone(), Arc::new(one)));
    let domain = Domain::default();
    let inputs = Inputs {
        mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
        mode: Mode::Strict,
        egress: EgressMode::Policy,
        specification: Arc::new(MeshSpecification {
            services: services.collect(),
            ..MeshSpecification::default()
        }),
        discovered: crate::Discovered::default(),
        records: Records::new(),
        revoked: Records::new(),
        leaving: LeavingProxies::new(),
        certificates: imbl::OrdMap::new(),
        trust_bundle: Arc::new(TrustBundle { roots: "roots".to_owned() }),
        health: crate::ReportedApplications::new(),
        revoked_callers: Arc::default(),
    };
    Snapshot::assemble(inputs, TcpAccesses::default())
}

fn flag(service: &str, port: Option<u16>, local_port: u16) -> Upstream {
    Upstream { service: service.parse().unwrap(), port, local_port }
}

fn proxy(services: &[&str], upstreams: Vec<Upstream>, hosts: &[&str]) -> Proxy {
    let at = jiff::Timestamp::UNIX_EPOCH;
    let services = services.iter().map(|name| name.parse().unwrap()).collect();
    let address = "10.0.0.1:15003".parse().unwrap();
    Proxy {
        record: JoinRecord::new(ProxyId(uuid::Uuid::nil()), services, address, at, at),
        metadata: NodeMetadata {
            upstreams,
            hosts: hosts.iter().map(|host| host.parse().unwrap()).collect(),
            ..NodeMetadata::default()
        },
    }
}

/// The local ports with their targets and sources.
fn in_effect(upstreams: &ProxyUpstreams) -> Vec<(u16, String, bool)> {
    let one = |one: &ProxyUpstream| {
        let Upstream { service, port, local_port } = &one.upstream;
        let port = port.map_or_else(|| "?".to_owned(), |port| port.to_string());
        (*local_port, format!("{service}:{port}"), one.source.spot().is_some())
    };
    upstreams.services.iter().map(one).collect()
}

#[test]
fn proxy_has_the_upstreams_of_all_its_services_and_flags() {
    let till = service("till", &[], vec![upstream("api", Some("web"), 9001, 3)]);
    let safe = service("safe", &[], vec![upstream("ledger", None, 9002, 9)]);
    let snapshot = snapshot(vec![till, safe]);
    let flags = vec![flag("api", None, 9003)];
    let proxy = proxy(&["till", "safe", "missing"], flags, &["api.example:443=9004"]);
    let upstreams = snapshot.upstreams_of(&proxy);
    let expected = [
        (9001, "default/api:80".to_owned(), true),
        (9002, "default/ledger:3306".to_owned(), true),
        (9003, "default/api:?".to_owned(), false),
    ];
    assert_eq!(in_effect(&upstreams), expected);
    assert_eq!((upstreams.hosts.len(), upstreams.findings), (1, Vec::new()));
    let source = upstreams.services[1].source.to_string();
    assert_eq!(source, "policy of default/safe (p.toml:9:1)");
}

#[test]
fn policy_overrides_a_flag_on_the_same_local_port() {
    let declared = vec![upstream("api", Some("web"), 9001, 3), upstream("ledger", None, 9002, 4)];
    let snapshot = snapshot(vec![service("till", &[], declared)]);
    // The first flag leads to the same port; the others do not.
    let flags = vec![flag("api", None, 9001), flag("api", Some(3306), 9002)];
    let proxy = proxy(&["till"], flags, &["api.example:443=9001"]);
    let upstreams = snapshot.upstreams_of(&proxy);
    let expected =
        [(9001, "default/api:80".to_owned(), true), (9002, "default/ledger:3306".to_owned(), true)];
    assert_eq!(in_effect(&upstreams), expected);
    assert!(upstreams.hosts.is_empty());
    let findings: Vec<_> = upstreams.findings.iter().map(ToString::to_string).collect();
    let id = proxy.record.display_name();
    let expected = [
        format!(
            "warning[IM0410]: local port 9002 of proxy {id}: policy of service `default/till` (`default/ledger=9002`) overrides the upstream `default/api:3306` of its bootstrap (p.toml:4:1)"
        ),
        format!(
            "warning[IM0410]: local port 9001 of proxy {id}: policy of service `default/till` (`default/api:web=9001`) overrides the upstream `api.example:443` of its bootstrap (p.toml:3:1)"
        ),
    ];
    assert_eq!(findings, expected);
}

#[test]
fn local_port_of_two_services_leads_where_the_first_states() {
    let till = service("till", &[], vec![upstream("api", Some("web"), 9001, 3)]);
    let declared = vec![upstream("ledger", None, 9001, 8), upstream("api", Some("80"), 9002, 9)];
    let safe = service("safe", &[], declared);
    let third = service("third", &[], vec![upstream("api", Some("web"), 9002, 12)]);
    let snapshot = snapshot(vec![till, safe, third]);
    let upstreams = snapshot.upstreams_of(&proxy(&["till", "safe", "third"], Vec::new(), &[]));
    let expected =
        [(9001, "default/api:80".to_owned(), true), (9002, "default/api:80".to_owned(), true)];
    assert_eq!(in_effect(&upstreams), expected);
    let [finding] = upstreams.findings.as_slice() else { panic!("{:?}", upstreams.findings) };
    assert!(finding.is_error() && finding.code == UPSTREAMS_CONFLICT, "{finding}");
    for part in ["`default/api:web=9001` of service `default/till`", "`default/ledger=9001`"] {
        assert!(finding.message.contains(part), "{finding}");
    }
    let other_order = snapshot.upstreams_of(&proxy(&["safe", "till"], Vec::new(), &[]));
    assert_eq!(in_effect(&other_order)[0], (9001, "default/ledger:3306".to_owned(), true));
}

#[test]
fn change_of_upstreams_keeps_access() {
    let with = |upstreams: Vec<PolicyUpstream>| snapshot(vec![service("till", &[], upstreams)]);
    let (before, after) = (with(Vec::new()), with(vec![upstream("ledger", None, 9001, 3)]));
    assert!(before.specification.has_same_access(&after.specification));
    let till =
        |snapshot: &Snapshot| Arc::clone(snapshot.service(&"till".parse().unwrap()).unwrap());
    assert!(!till(&before).differs_in_endpoints_only(&till(&after)));
}
