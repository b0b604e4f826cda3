//! A network that is cut, in both directions or in one.

use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Route, Secret};

use crate::contents::Contents;
use crate::mesh::Mesh;
use crate::proxy::state::{BAD, NackScope};
use crate::random::in_both_variants;

/// R57, R63, A69 (bystander).
#[test]
fn partitioned_proxy_delays_no_other_and_converges_on_return() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a", "b", "c"]);
        let mut mesh = Mesh::of_two(seed, variant, &contents.set());
        mesh.sim.partition("away", "server");
        contents.change(Cluster, "a", 2);
        contents.add_service("d", 1);
        contents.remove_service("b");
        mesh.publish_to_all(&contents.set());
        mesh.converge_hosts(&["near"], Duration::from_secs(3));
        assert_eq!(mesh.status("server", "away").streams, 1, "the server has not noticed yet");
        // 30 s of silence, and 20 s without an answer.
        let cut =
            mesh.wait_until(
                Duration::from_secs(51),
                "the dead stream to be cut",
                |mesh| match mesh.status("server", "away").streams {
                    0 => Ok(()),
                    streams => Err(format!("{streams} streams")),
                },
            );
        assert!(cut > Duration::from_secs(19), "{cut:?}");
        contents.change(Endpoint, "c", 2);
        mesh.publish_to_all(&contents.set());
        mesh.converge_hosts(&["near"], Duration::from_secs(1));
        mesh.advance(Duration::from_secs(10));
        assert_eq!(mesh.state("near").streams, 1, "it was not touched");
        mesh.sim.repair("away", "server");
        mesh.converge();
    });
}

/// R19, invariant 7.
#[test]
fn nacked_resource_is_not_resent_after_reconnects() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a"]);
        let mut mesh = Mesh::of_two(seed, variant, &contents.set());
        mesh.proxy("away").state.borrow_mut().nack_scope = Some(NackScope::WholeResponse);
        // The proxy has another version of one, and none of the other.
        contents.add_service("b", 1);
        contents.change(Route, "b", BAD);
        contents.change(Secret, "identity-of-a", BAD);
        mesh.publish_to_all(&contents.set());
        mesh.converge_within(Duration::from_secs(3));
        for _ in 0..3 {
            mesh.forget_logs();
            mesh.sim.partition("away", "server");
            mesh.advance(Duration::from_secs(60));
            mesh.sim.repair("away", "server");
            // The server must know the NACKs.
            mesh.converge_within(Duration::from_secs(5));
            let log = &mesh.state("away").log;
            for nacked in ["route configuration +b", "secret +identity-of-a"] {
                assert!(!log.contains(&nacked.to_owned()), "{log:?}");
            }
        }
    });
}
