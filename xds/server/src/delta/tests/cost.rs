//! The cost of a push, counted and not timed (invariant 5): frames and allocations.
//!
//! A change that needs fewer allocations lowers the recorded counts; one that needs more explains why in its commit.

use std::collections::BTreeMap;

use allocation_counter::measure;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::{DeltaMessage, DeltaRequest, ResourceSet, ResourceType};
use prost::Message as _;
use tokio::time::Instant;

use super::client::{Client, answer};
use crate::delta::{DeltaOutput, DeltaStream};
use crate::test_resources::{cluster, endpoints, listener, route_to};

/// The recorded allocations of a push, from the set to the frame, by the number of services. It grows only with the depth
/// of the maps.
const PUSH: [(u32, u64); 2] = [(10, 14), (1000, 22)];

/// The recorded allocations of an ACK, for any number of services.
const ACK: u64 = 2;

/// The recorded allocations when a client returns with the resources of its set, by the number of services: to decode
/// its requests, whose buffers double, and to compare them with the set.
const RECONNECT: [(u32, u64, u64); 2] = [(10, 26, 4), (1000, 45, 4)];

/// A set with this number of services.
fn services(count: u32) -> ResourceSet {
    let mut set = ResourceSet::default();
    let names: Vec<_> = (0..count).map(|number| format!("default/s{number}|80")).collect();
    for name in &names {
        set.insert(cluster(name, 1));
        set.insert(endpoints(name, 1));
    }
    set.insert(listener("inbound", 1));
    set.insert(route_to("outbound-http", 1, &names.iter().map(String::as_str).collect::<Vec<_>>()));
    set
}

/// The frames and allocations of a push of `changed` to a client that has `set`, and the allocations of its ACK.
fn push(set: &ResourceSet, changed: &ResourceSet, of: ResourceType) -> (usize, u64, u64) {
    let mut client = Client::settled(set);
    let now = client.now;
    let mut nonces = Vec::new();
    let mut frames = 0;
    let pushed = measure(|| {
        for output in client.stream.on_set(changed.clone(), now) {
            let DeltaOutput::Send(response) = output else { panic!("{output:?}") };
            nonces.push(response.nonce);
            frames += usize::from(!response.frame().is_empty());
        }
    });
    let requests: Vec<DeltaRequest> = nonces.iter().map(|nonce| answer(of, *nonce)).collect();
    let acked = measure(|| {
        for request in &requests {
            let outputs = client.stream.on_request(request, Instant::now());
            assert!(matches!(outputs[..], [DeltaOutput::Acked(_)]), "{outputs:?}");
        }
    });
    (frames, pushed.count_total, acked.count_total)
}

#[test]
fn endpoint_push_does_not_exceed_its_recorded_counts() {
    for (count, recorded) in PUSH {
        let set = services(count);
        let mut changed = set.clone();
        changed.insert(endpoints("default/s7|80", 2));
        let (frames, pushed, acked) = push(&set, &changed, ResourceType::Endpoint);
        assert_eq!(frames, 1, "one frame for one changed resource");
        assert!(
            pushed <= recorded,
            "{count} services: {pushed} allocations for a push, {recorded} recorded"
        );
        assert!(acked <= ACK, "{count} services: {acked} allocations for an ACK, {ACK} recorded");
    }
}

#[test]
fn route_push_does_not_exceed_its_recorded_counts() {
    for (count, recorded) in PUSH {
        let set = services(count);
        let mut changed = set.clone();
        changed.insert(route_to("outbound-http", 2, &["default/s7|80"]));
        let (frames, pushed, acked) = push(&set, &changed, ResourceType::Route);
        assert_eq!(frames, 1, "one frame for one changed resource");
        assert!(
            pushed <= recorded,
            "{count} services: {pushed} allocations for a push, {recorded} recorded"
        );
        assert!(acked <= ACK, "{count} services: {acked} allocations for an ACK, {ACK} recorded");
    }
}

/// The bytes of the first requests of a client that returns with all of `set`.
fn reconnect_requests(set: &ResourceSet) -> Vec<Vec<u8>> {
    use ResourceType::{Cluster, Endpoint, Listener, Route};
    let request = |of: ResourceType| {
        let versions =
            set.of(of).values().map(|one| (one.name().to_string(), one.version().to_string()));
        let names = set.of(of).keys().filter(|_| !of.allows_wildcard());
        DeltaDiscoveryRequest {
            type_url: of.url().to_owned(),
            resource_names_subscribe: names.map(ToString::to_string).collect(),
            initial_resource_versions: versions.collect(),
            ..DeltaDiscoveryRequest::default()
        }
        .encode_to_vec()
    };
    [Cluster, Endpoint, Listener, Route].into_iter().map(request).collect()
}

#[test]
fn reconnect_does_not_exceed_its_recorded_counts() {
    for (count, to_decode, to_compare) in RECONNECT {
        let set = services(count);
        let messages = reconnect_requests(&set);
        let mut requests = Vec::with_capacity(messages.len());
        let decoded = measure(|| {
            let decode = |bytes: &Vec<u8>| DeltaMessage::decode(&**bytes).unwrap().into();
            requests.extend(messages.iter().map(decode));
        });
        let now = Instant::now();
        let mut stream = DeltaStream::new(&BTreeMap::new());
        stream.on_set(set, now);
        let mut outputs = Vec::with_capacity(requests.len());
        let compared = measure(|| {
            for request in &requests {
                outputs.extend(stream.on_request(request, now));
            }
        });
        assert!(
            outputs.iter().all(|output| matches!(output, DeltaOutput::Acked(_))),
            "it has everything: {outputs:?}"
        );
        assert_eq!(stream.held(), 0);
        let (decoded, compared) = (decoded.count_total, compared.count_total);
        assert!(
            decoded <= to_decode,
            "{count} services: {decoded} allocations to decode, {to_decode} recorded"
        );
        assert!(
            compared <= to_compare,
            "{count} services: {compared} allocations to compare, {to_compare} recorded"
        );
    }
}
