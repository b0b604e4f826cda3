//! Versions that proxies of two control planes NACK.

use std::time::Duration;

use ironmesh_xds_wire::ResourceType::Route;

use super::harness::Harness;
use super::nack_tracker::{TwoControlPlanes, withheld};

/// What both control planes note about NACKed versions: how many clients NACK each, and whether it is disputed.
fn noted(mesh: &TwoControlPlanes) -> [Vec<(usize, bool)>; 2] {
    let noted = |harness: &Harness| {
        let versions = harness.reconciler.nack_tracker.nacked_versions().iter();
        versions.map(|note| (note.clients, note.is_disputed)).collect()
    };
    mesh.harnesses.each_ref().map(noted)
}

#[test]
fn dispute_about_a_version_ends_with_its_nacks() {
    let mut mesh = TwoControlPlanes::open(1..5);
    let mut other = mesh.start(1, 4);
    mesh.harnesses[1].settle(&mut [&mut other]);
    let mut clients = [1, 2, 3].map(|number| mesh.start(0, number));
    for client in &clients {
        client.nack(Route, "outbound-http", "no such thing");
    }
    mesh.exchange();
    assert_eq!(noted(&mesh), [vec![(3, false)], vec![(0, true)]]);
    for client in &mut clients {
        client.ack_all();
    }
    mesh.exchange();
    assert_eq!(noted(&mesh), [vec![], vec![]]);
}

#[test]
fn proxy_with_a_half_open_stream_counts_once() {
    let mut mesh = TwoControlPlanes::open(1..11);
    mesh.harnesses[1].now += Duration::from_secs(60);
    let clients = [(0, 1), (0, 2), (1, 1)].map(|(at, number)| mesh.start(at, number));
    for client in &clients {
        client.nack(Route, "outbound-http", "no such thing");
    }
    mesh.harnesses.iter_mut().for_each(Harness::pass);
    mesh.exchange();
    assert_eq!(noted(&mesh), [vec![(1, false)], vec![(1, false)]]);
    let _new = mesh.start(0, 10);
    assert_eq!(withheld(&mesh.harnesses[0]), 0, "two NACK it");
}
