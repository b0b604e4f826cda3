//! A network that is slow, holds messages back, or loses them in one direction.

use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route};

use crate::contents::Contents;
use crate::mesh::Mesh;
use crate::random::in_both_variants;

/// Rule 8.
#[test]
fn short_message_delay_keeps_the_stream() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a", "b"]);
        let mut mesh = Mesh::of_two(seed, variant, &contents.set());
        // Longer than a push waits for its ACK, and shorter than a keepalive.
        for (number, held) in [(2, 3), (3, 18)] {
            mesh.sim.hold("away", "server");
            contents.change(Cluster, "a", number);
            contents.change(Listener, "b", number);
            contents.route("b", number, &["a"]);
            contents.add_service("c", number);
            mesh.publish_to_all(&contents.set());
            mesh.converge_hosts(&["near"], Duration::from_secs(3));
            mesh.advance(Duration::from_secs(held / 2));
            contents.remove_service("c");
            contents.route("b", number, &["a", "b"]);
            mesh.publish_to_all(&contents.set());
            mesh.advance(Duration::from_secs(held / 2));
            mesh.sim.release("away", "server");
            mesh.converge_within(Duration::from_secs(5));
        }
        assert_eq!(mesh.state("away").streams, 1);
        assert_eq!(mesh.state("near").streams, 1);
    });
}

#[test]
fn long_message_delay_ends_only_the_affected_stream() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a", "b"]);
        let mut mesh = Mesh::of_two(seed, variant, &contents.set());
        mesh.sim.hold("away", "server");
        contents.change(Cluster, "a", 2);
        contents.remove_service("b");
        mesh.publish_to_all(&contents.set());
        mesh.converge_hosts(&["near"], Duration::from_secs(3));
        mesh.advance(Duration::from_secs(60));
        assert_eq!(mesh.status("server", "away").streams, 0);
        mesh.sim.release("away", "server");
        mesh.converge();
    });
}

#[test]
fn one_way_partition_ends_only_the_affected_stream() {
    in_both_variants(|variant, seed| {
        for (from, to) in [("away", "server"), ("server", "away")] {
            let mut contents = Contents::of_services(&["a", "b"]);
            let mut mesh = Mesh::of_two(seed, variant, &contents.set());
            mesh.sim.partition_oneway(from, to);
            contents.change(Endpoint, "a", 2);
            contents.remove_service("b");
            mesh.publish_to_all(&contents.set());
            mesh.converge_hosts(&["near"], Duration::from_secs(3));
            mesh.advance(Duration::from_secs(60));
            assert_eq!(mesh.status("server", "away").streams, 0);
            assert_eq!(mesh.state("away").connected_to, None);
            mesh.sim.repair_oneway(from, to);
            mesh.converge();
            assert_eq!(mesh.state("near").streams, 1);
        }
    });
}

/// R64.
#[test]
fn slow_proxies_on_a_slow_network_converge_to_the_newest_set() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a", "b", "c"]);
        let mut mesh = Mesh::with_latency(seed, Duration::from_secs(1));
        mesh.start_server("server");
        mesh.start_proxy("near", variant, &["server"]);
        mesh.start_proxy("away", variant, &["server"]);
        mesh.proxy("away").max_delay_ms.set(1000);
        mesh.publish_to_all(&contents.set());
        for number in 2..40 {
            contents.remove_service(["a", "b", "c"][usize::try_from(number % 3).unwrap()]);
            contents.add_service(["c", "a", "b"][usize::try_from(number % 3).unwrap()], number);
            let clusters: Vec<_> = contents.names(Cluster).into_iter().map(str::to_owned).collect();
            let clusters: Vec<_> = clusters.iter().map(|name| &**name).collect();
            let routes: Vec<_> = contents.names(Route).into_iter().map(str::to_owned).collect();
            contents.route(&routes[0], number, &clusters);
            mesh.publish_to_all(&contents.set());
            let pause = mesh.random.millis(0..1000);
            mesh.advance(pause);
        }
        mesh.converge_within(Duration::from_secs(20));
    });
}
