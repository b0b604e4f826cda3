//! A network that is cut, in both directions or in one.

use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint};

use crate::chance::in_both_variants;
use crate::contents::Contents;
use crate::mesh::Mesh;

#[test]
fn a_proxy_that_is_cut_off_for_a_minute_delays_nobody_and_comes_back_to_the_same() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a", "b", "c"]);
        let mut mesh = Mesh::of_two(seed, variant, &contents.set());
        mesh.sim.partition("away", "server");
        contents.change(Cluster, "a", 2);
        contents.add_service("d", 1);
        contents.remove_service("b");
        mesh.give_all(&contents.set());
        mesh.supply(&["near"], Duration::from_secs(3));
        assert_eq!(mesh.status("server", "away").streams, 1, "nobody knows yet");
        // 30 s of silence, and 20 s without an answer.
        let cut =
            mesh.until(Duration::from_secs(51), "the dead stream to be cut", |mesh| {
                match mesh.status("server", "away").streams {
                    0 => Ok(()),
                    streams => Err(format!("{streams} streams")),
                }
            });
        assert!(cut > Duration::from_secs(19), "{cut:?}");
        contents.change(Endpoint, "c", 2);
        mesh.give_all(&contents.set());
        mesh.supply(&["near"], Duration::from_secs(1));
        mesh.pass(Duration::from_secs(10));
        assert_eq!(mesh.state("near").streams, 1, "it was not touched");
        mesh.sim.repair("away", "server");
        mesh.converge();
    });
}
