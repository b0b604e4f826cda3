//! Control planes and proxies that restart.

use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};

use crate::contents::Contents;
use crate::mesh::Mesh;
use crate::proxy::Variant;
use crate::random::in_both_variants;

/// The resources that a proxy was sent, sorted.
fn log(mesh: &Mesh, host: &str) -> Vec<String> {
    let mut log = mesh.state(host).log.clone();
    log.sort();
    log
}

/// Rule 7, R12, invariant 4, invariant 8, A45.
#[test]
fn control_plane_restart_resends_nothing_proxies_have() {
    in_both_variants(|variant, seed| {
        let set = Contents::of_services(&["a", "b", "c"]).set();
        let mut mesh = Mesh::of_two(seed, variant, &set);
        mesh.forget_logs();
        mesh.crash("server");
        mesh.advance(Duration::from_secs(5));
        mesh.restart("server");
        mesh.converge();
        mesh.advance(Duration::from_secs(20));
        let pushes = match variant {
            Variant::Delta => vec![],
            // One version says too little of these, so the server answers each once.
            Variant::Sotw => [Secret, Endpoint, Route].map(|of| (of, 2)).to_vec(),
        };
        assert_eq!(mesh.pushes("server"), pushes);
        for host in ["near", "away"] {
            assert_eq!(mesh.state(host).streams, 2, "{host} has come back once");
        }
    });
}

/// Rule 7, R57, invariant 4, invariant 6, invariant 8.
#[test]
fn changes_and_removals_during_a_restart_are_sent() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a", "b", "c"]);
        let mut mesh = Mesh::of_two(seed, variant, &contents.set());
        mesh.forget_logs();
        mesh.crash("server");
        contents.change(Cluster, "a", 2);
        contents.remove_service("b");
        contents.change(Endpoint, "c", 2);
        contents.add_service("d", 1);
        mesh.publish_to_all(&contents.set());
        mesh.advance(Duration::from_secs(5));
        mesh.restart("server");
        mesh.converge();
        for host in ["near", "away"] {
            let (came, gone): (Vec<_>, Vec<_>) =
                log(&mesh, host).into_iter().partition(|line| line.contains(" +"));
            if variant == Variant::Delta {
                // The endpoints of a changed cluster are sent with it (rule 1).
                let expected = [
                    "cluster +a",
                    "cluster +d",
                    "endpoints +a",
                    "endpoints +c",
                    "endpoints +d",
                    "listener +d",
                    "route configuration +d",
                    "secret +identity-of-d",
                ];
                assert_eq!(came, expected, "{host}");
                for one in ["cluster -b", "listener -b"] {
                    assert!(gone.contains(&one.to_owned()), "{host}: {gone:?}");
                }
            }
        }
    });
}

/// Invariant 8: a machine that loses power closes no connection.
#[test]
fn proxies_reconnect_after_a_silent_control_plane_loss() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a", "b"]);
        let mut mesh = Mesh::of_two(seed, variant, &contents.set());
        mesh.sim.partition("near", "server");
        mesh.sim.partition("away", "server");
        mesh.crash("server");
        mesh.advance(Duration::from_secs(1));
        mesh.sim.repair("near", "server");
        mesh.sim.repair("away", "server");
        mesh.restart("server");
        contents.change(Listener, "a", 2);
        mesh.publish_to_all(&contents.set());
        // A proxy notices by its keepalive after 35 s, and reconnects.
        mesh.converge_within(Duration::from_secs(45));
    });
}

#[test]
fn restarted_proxy_gets_all_resources_despite_its_old_stream() {
    in_both_variants(|variant, seed| {
        let set = Contents::of_services(&["a", "b", "c"]).set();
        let mut mesh = Mesh::of_two(seed, variant, &set);
        mesh.crash("near");
        mesh.restart("near");
        mesh.converge_within(Duration::from_secs(3));

        mesh.sim.partition("away", "server");
        mesh.crash("away");
        mesh.advance(Duration::from_secs(1));
        mesh.sim.repair("away", "server");
        mesh.restart("away");
        let has_all = |mesh: &Mesh| {
            let has = mesh.state("away").has.len();
            if has == set.iter().count() { Ok(()) } else { Err(format!("{has} resources")) }
        };
        mesh.wait_until(Duration::from_secs(3), "away to have all", has_all);
        assert_eq!(mesh.status("server", "away").streams, 2, "the old stream still looks open");
        mesh.converge();
    });
}
