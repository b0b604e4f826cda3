//! Tests of discovery from guarded endpoints.

use ironmesh_catalog::{
    External, Labels, Locality, Port, PortRange, Protocol, Resolution, StaticEndpoint,
};

use super::*;
use crate::guards::tests::{name, service, set, specification};

fn guarded(last: &[u8]) -> GuardedEndpoints {
    GuardedEndpoints([((Provider::Consul, name()), Arc::new(set(last)))].into_iter().collect())
}

fn discovered(discovered: &Discovered, name: &ServiceName) -> Option<usize> {
    discovered.0.get(name).map(|all| all.len())
}

#[test]
fn unreported_service_is_unknown_and_empty_report_is_known() {
    let (specification, records) = (specification([service(true, false)]), Records::new());
    let mut discovery = Discovery::default();
    let mut discover = |guarded: &GuardedEndpoints| {
        discovered(&discovery.discover(&specification, &records, guarded), &name())
    };
    assert_eq!(discover(&GuardedEndpoints::default()), None);
    assert_eq!(discover(&guarded(&[])), Some(0));
    assert_eq!(discover(&guarded(&[1, 2])), Some(2));
    assert_eq!(discover(&GuardedEndpoints::default()), Some(2), "endpoints are kept");
}

#[test]
fn endpoints_are_kept_until_the_new_provider_reports() {
    let list = |last: &[u8]| {
        let list = set(last).into_iter().map(|one| StaticEndpoint {
            address: one.address,
            port: None,
            weight: 1,
            labels: Labels::default(),
            locality: Locality::default(),
            spot: service(true, false).spot,
        });
        let mut listed = service(true, false);
        listed.endpoints = EndpointSource::fixed(list.collect());
        specification([listed])
    };
    let mut discovery = Discovery::default();
    let mut discover = |specification: &Arc<MeshSpecification>, guarded: &GuardedEndpoints| {
        discovered(&discovery.discover(specification, &Records::new(), guarded), &name())
    };
    assert_eq!(discover(&list(&[1, 2, 3]), &GuardedEndpoints::default()), Some(3));
    let queried = specification([service(true, false)]);
    assert_eq!(discover(&queried, &GuardedEndpoints::default()), Some(3));
    assert_eq!(discover(&queried, &guarded(&[1, 2])), Some(2));
}

#[test]
fn external_service_gets_no_provider_endpoints() {
    let mut outside = service(false, false);
    outside.external = Some(External { hostname: None, resolution: Resolution::Static });
    let (specification, records) = (specification([outside]), Records::new());
    let found = discover(&specification, &records, &guarded(&[1]));
    assert_eq!(discovered(&found, &name()), Some(0));
}

#[test]
fn tag_registered_endpoint_is_found_without_a_query() {
    let (specification, records) = (specification([service(false, false)]), Records::new());
    let found = discover(&specification, &records, &guarded(&[1]));
    assert_eq!(discovered(&found, &name()), Some(1));
    // A plan restores the guarded endpoints from the discovery result.
    assert_eq!(GuardedEndpoints::of(&found), guarded(&[1]));
}

#[test]
fn subset_follows_its_service() {
    let labels: Labels = [("version", "v2")].into_iter().collect();
    let part: ServiceName = "shop/part".parse().unwrap();
    let mut whole = service(true, false);
    whole.subsets = vec![part.clone()];
    let endpoints = EndpointSource::Subset { of: name(), labels: labels.clone() };
    let subset = Service { name: part.clone(), endpoints, subsets: Vec::new(), ..whole.clone() };
    let (specification, records) = (specification([whole, subset]), Records::new());
    let mut discovery = Discovery::default();
    let found = discovery.discover(&specification, &records, &GuardedEndpoints::default());
    assert_eq!(discovered(&found, &part), None);
    let mut set = set(&[1, 2]);
    set[1].labels = labels;
    let guarded =
        GuardedEndpoints([((Provider::Consul, name()), Arc::new(set))].into_iter().collect());
    let found = discovery.discover(&specification, &records, &guarded);
    assert_eq!(discovered(&found, &part), Some(1));
}

/// The service with one port, for which Consul may report 8080 and `allowed`.
fn with_port(allowed: &[&str]) -> Arc<MeshSpecification> {
    let mut service = service(true, false);
    service.ports = vec![Port {
        name: "web".parse().unwrap(),
        number: 80,
        protocol: Protocol::Http,
        target: 8080,
        allowed_targets: allowed.iter().map(|text| PortRange::parse(text).unwrap()).collect(),
    }];
    if let EndpointSource::Providers(providers) = &mut service.endpoints {
        providers.registered = true;
    }
    specification([service])
}

fn exclusions(discovered: &Discovered) -> Vec<(Provider, Option<Exclusion>)> {
    discovered.0[&name()].iter().map(|one| (one.provider, one.exclusion)).collect()
}

#[test]
fn excluded_endpoint_displaces_nothing_until_policy_admits_it() {
    let at = |provider, port| Endpoint {
        port: Some(port),
        ..Endpoint::new(provider, [10, 0, 0, 1].into())
    };
    let found = [at(Provider::Consul, 8500)];
    let found = [((Provider::Consul, name()), Arc::new(found.to_vec()))];
    let azure = [((Provider::Azure, name()), Arc::new(vec![at(Provider::Azure, 8500)]))];
    let guarded = GuardedEndpoints(found.into_iter().chain(azure).collect());
    let mut discovery = Discovery::new(false);
    let before = discovery.discover(&with_port(&[]), &Records::new(), &guarded);
    let excluded = (Provider::Consul, Some(Exclusion::Port));
    assert_eq!(exclusions(&before), [(Provider::Azure, None), excluded]);
    // A plan starts from the discovery result, and the control plane from the guarded endpoints.
    let wider = with_port(&["8500"]);
    let planned = discover(&wider, &Records::new(), &GuardedEndpoints::of(&before));
    let after = discovery.discover(&wider, &Records::new(), &guarded);
    assert_eq!(exclusions(&after), [(Provider::Consul, None)]);
    assert_eq!(exclusions(&planned), exclusions(&after));
}

#[test]
fn local_address_stays_excluded_in_a_plan() {
    let local = Endpoint::new(Provider::Consul, [127, 0, 0, 1].into());
    let guarded = GuardedEndpoints(
        [((Provider::Consul, name()), Arc::new(vec![local]))].into_iter().collect(),
    );
    let excluded = [(Provider::Consul, Some(Exclusion::LocalAddress))];
    let policy = with_port(&[]);
    let live = Discovery::new(false).discover(&policy, &Records::new(), &guarded);
    assert_eq!(exclusions(&live), excluded);
    assert_eq!(
        exclusions(&discover(&policy, &Records::new(), &GuardedEndpoints::of(&live))),
        excluded
    );
    let allowed = Discovery::new(true).discover(&policy, &Records::new(), &guarded);
    assert_eq!(exclusions(&allowed), [(Provider::Consul, None)]);
}
