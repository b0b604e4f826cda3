//! Tests of the order of a simulated Envoy's requests, which is that of a real one.

use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, DiscoveryType,
};
use ironmesh_xds_wire::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use ironmesh_xds_wire::pb::envoy::config::listener::v3::Listener;
use ironmesh_xds_wire::{DeltaResponse, Discoverable, Resource, SotwResponse, Version};

use super::*;

struct Served {
    envoy: SimulatedEnvoy,
    nonce: u64,
}

impl Served {
    fn new(variant: Variant) -> Self {
        let library = Arc::new(Library::default());
        Self { envoy: SimulatedEnvoy::new(variant, AckDelay::default(), library), nonce: 0 }
    }

    /// Sends resources, and returns a summary of the requests that follow.
    fn send<M: Discoverable>(&mut self, messages: &[M]) -> Vec<String> {
        self.nonce += 1;
        let (nonce, resource_type) = (self.nonce, M::TYPE);
        let resources: Vec<_> = messages.iter().map(|m| Arc::new(Resource::new(m))).collect();
        let frame = match self.envoy.variant {
            Variant::Delta => {
                DeltaResponse { resources, ..DeltaResponse::new(resource_type, nonce) }.frame()
            }
            Variant::Sotw => {
                let version = Version::of_all(&resources);
                SotwResponse { resource_type, version, nonce, resources }.frame()
            }
        };
        let reaction = self.envoy.on_response(&frame.concat()[5..], None, None).unwrap();
        reaction.outgoing.into_iter().map(summary).collect()
    }
}

fn summary(outgoing: Outgoing) -> String {
    let request = outgoing.request;
    let resource_type = ResourceType::from_url(request.type_url).unwrap();
    let names: Vec<_> = request.initial_versions.keys().map(|name| &**name).collect();
    let has = if names.is_empty() { String::new() } else { format!(" has {}", names.join(" ")) };
    match &*request.nonce {
        "" => format!("{resource_type}? {}{has}", request.names.join(" ")).trim_end().to_owned(),
        nonce if outgoing.delay.is_zero() => {
            format!("{resource_type}? {} after {nonce}", request.names.join(" "))
        }
        nonce => format!("{resource_type} ACK {nonce}"),
    }
}

fn cluster(name: &str, content: &str) -> Cluster {
    Cluster {
        name: name.to_owned(),
        alt_stat_name: content.to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(DiscoveryType::Eds.into())),
        ..Cluster::default()
    }
}

fn endpoints(name: &str) -> ClusterLoadAssignment {
    ClusterLoadAssignment { cluster_name: name.to_owned(), ..ClusterLoadAssignment::default() }
}

fn listener(name: &str) -> Listener {
    Listener { name: name.to_owned(), ..Listener::default() }
}

#[test]
fn client_requests_types_in_the_order_of_envoy() {
    for variant in [Variant::Delta, Variant::Sotw] {
        let mut served = Served::new(variant);
        let first: Vec<_> = served.envoy.open().into_iter().map(summary).collect();
        assert_eq!(first, ["cluster?"], "{variant:?}");
        let after_clusters = served.send(&[cluster("a", ""), cluster("b", "")]);
        assert_eq!(after_clusters, ["endpoints? a b", "cluster ACK 1"]);
        assert!(!served.envoy.is_configured());
        assert_eq!(served.send(&[endpoints("a")]), ["endpoints ACK 2"]);
        assert_eq!(served.send(&[endpoints("b")]), ["endpoints ACK 3", "listener?"]);
        assert_eq!(served.send(&[listener("in")]), ["listener ACK 4"]);
        assert!(served.envoy.is_configured());
    }
}

#[test]
fn changed_cluster_is_acked_after_its_endpoints_arrive() {
    let mut served = Served::new(Variant::Delta);
    served.envoy.open();
    served.send(&[cluster("a", "")]);
    served.send(&[endpoints("a")]);
    served.send(&[listener("in")]);
    assert_eq!(served.send(&[cluster("a", "changed")]), Vec::<String>::new());
    assert!(!served.envoy.is_configured(), "it is warming");
    assert_eq!(served.send(&[endpoints("a")]), ["endpoints ACK 5", "cluster ACK 4"]);
    assert!(served.envoy.is_configured());
}

#[test]
fn resumed_stream_sends_initial_versions_and_fresh_one_none() {
    let mut served = Served::new(Variant::Delta);
    served.envoy.open();
    served.send(&[cluster("a", "")]);
    served.send(&[endpoints("a")]);
    served.send(&[listener("in")]);
    let first: Vec<_> = served.envoy.open().into_iter().map(summary).collect();
    assert_eq!(first, ["cluster?  has a", "endpoints? a has a", "listener?  has in"]);
    assert!(served.envoy.is_configured(), "it lacks nothing");
    served.envoy.forget();
    let first: Vec<_> = served.envoy.open().into_iter().map(summary).collect();
    assert_eq!(first, ["cluster?"]);
}
