//! Two control planes with the same resource sets.

use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{Endpoint, Route, Secret};

use crate::contents::Contents;
use crate::mesh::Mesh;
use crate::proxy::Variant;
use crate::random::in_both_variants;

/// R23, invariant 4.
#[test]
fn proxy_changing_replicas_is_not_resent_its_resources() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a", "b", "c"]);
        let mut mesh = Mesh::new(seed);
        mesh.start_server("left");
        mesh.start_server("right");
        mesh.start_proxy("mover", variant, &["left", "right"]);
        mesh.start_proxy("stayer", variant, &["right"]);
        mesh.publish_to_all(&contents.set());
        mesh.converge();
        let own = |mesh: &Mesh| mesh.pushes("right");
        let before = own(&mesh);
        assert_eq!(mesh.state("mover").connected_to, Some("left"));
        mesh.crash("left");
        mesh.converge();
        assert_eq!(mesh.state("mover").connected_to, Some("right"));
        let again = match variant {
            Variant::Delta => vec![],
            Variant::Sotw => vec![Secret, Endpoint, Route],
        };
        let expected: Vec<_> =
            before.into_iter().map(|(of, n)| (of, n + u64::from(again.contains(&of)))).collect();
        assert_eq!(own(&mesh), expected);

        // And back, with a change meanwhile.
        mesh.restart("left");
        contents.change(Endpoint, "b", 2);
        mesh.publish_to_all(&contents.set());
        mesh.converge_within(Duration::from_secs(1));
        mesh.crash("right");
        mesh.converge_hosts(&["mover"], Duration::from_secs(5));
        assert_eq!(mesh.state("mover").connected_to, Some("left"));
        let pushes: Vec<_> = again.into_iter().map(|of| (of, 1)).collect();
        assert_eq!(mesh.pushes("left"), pushes);
        mesh.restart("right");
        mesh.converge();
    });
}
