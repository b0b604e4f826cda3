//! Several demos on one machine, and foreign programs at their addresses.

use std::net::{SocketAddr, TcpListener};

use rustix::process::Signal;

use crate::workspace::Workspace;

/// The address that claims a demo's network, and one that its thief needs for the warehouse.
const CLAIM: (u8, u16) = (254, 61000);
const NEEDED: (u8, u16) = (12, 14002);

/// Listens at a needed address in the first free network, the next that a demo would use.
fn occupy_next_network() -> (TcpListener, String) {
    let listen = |number: u8, (host, port): (u8, u16)| {
        TcpListener::bind(SocketAddr::from(([127, 42, number, host], port))).ok()
    };
    (0..=u8::MAX)
        .find_map(|number| {
            let _free = listen(number, CLAIM)?;
            Some((listen(number, NEEDED)?, format!("127.42.{number}")))
        })
        .expect("a network is free")
}

#[tokio::test]
async fn concurrent_demos_avoid_networks_in_use() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut first = workspace.start(&["--output", "json"]);
    let one = first.started().await;
    let (_stranger, occupied) = occupy_next_network();
    let mut second = workspace.start(&["--output", "json"]);
    let other = second.started().await;
    assert_ne!(one.network, other.network);
    assert_ne!(other.network, occupied);
    assert_ne!(one.policy_folder, other.policy_folder);

    // The end of one does not affect the other.
    first.stop_with(Signal::TERM).await;
    assert!(!one.policy_folder.exists() && other.policy_folder.exists());
    assert_eq!(workspace.processes().len(), 8, "{:?}", workspace.processes());
    second.child.assert_running();
    second.stop_with(Signal::INT).await;
    workspace.assert_nothing_left();
}
