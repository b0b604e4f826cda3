//! Clients that do not read or answer, and their effect on others.

use std::time::Duration;

use ironmesh_xds_server::CloseReason;
use tonic::Code;

use crate::contents::Contents;
use crate::mesh::Mesh;
use crate::random::in_both_variants;

/// Invariant 10, A43.
#[test]
fn slow_reader_is_disconnected_without_delaying_others() {
    in_both_variants(|variant, seed| {
        let mut contents = Contents::of_services(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        let mut mesh = Mesh::of_two(seed, variant, &contents.set());
        mesh.proxy("away").reads.send_replace(false);
        let mut number = 2;
        let begin = mesh.sim.elapsed();
        // After 15 s each push goes on without the previous ACK; 16 may wait, for 60 s.
        while mesh.status("server", "away").streams > 0 {
            let since = mesh.sim.elapsed() - begin;
            assert!(since < Duration::from_secs(240), "{:?}", mesh.pushes("server"));
            contents.change_where(|_| true, number);
            mesh.publish_to_all(&contents.set());
            mesh.converge_hosts(&["near"], Duration::from_secs(2));
            mesh.advance(Duration::from_secs(2));
            number += 1;
        }
        assert_eq!(mesh.state("near").streams, 1);
        mesh.proxy("away").reads.send_replace(true);
        let has_ended = |mesh: &Mesh| {
            let end = mesh.state("away").last_end.clone();
            end.map(drop).ok_or_else(|| "no end".to_owned())
        };
        mesh.wait_until(Duration::from_secs(5), "the stream to end", has_ended);
        let end = mesh.state("away").last_end.clone().unwrap();
        assert_eq!(
            (end.code(), end.message()),
            (Code::ResourceExhausted, "the client reads too slowly")
        );
        let hub = mesh.hub("server");
        assert_eq!(hub.counters().streams_closed(CloseReason::SlowReader), 1);
        mesh.converge();
    });
}
