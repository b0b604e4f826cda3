//! Connections that never become streams.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use turmoil::net::TcpStream;

use crate::contents::Contents;
use crate::mesh::Mesh;
use crate::proxy::Variant;
use crate::random::with_seeds;
use crate::server::PORT;

/// Invariant 10, A37 (bystander).
#[test]
fn silent_connection_is_closed_after_10_s_without_delaying_others() {
    with_seeds(1, |seed| {
        let mut mesh = Mesh::new(seed);
        mesh.start_server("server");
        mesh.advance(Duration::from_millis(10));
        let open = Rc::new(Cell::new(0));
        for host in ["silent", "mute", "dumb"] {
            let open = Rc::clone(&open);
            mesh.sim.client(host, async move {
                let mut connection = TcpStream::connect(("server", PORT)).await?;
                open.update(|open| open + 1);
                let since = tokio::time::Instant::now();
                assert_eq!(connection.read(&mut [0]).await?, 0, "the server sends nothing");
                open.update(|open| open - 1);
                // The network delays messages in both directions.
                let closed = Duration::from_millis(9_900)..Duration::from_millis(10_200);
                assert!(closed.contains(&since.elapsed()), "{:?}", since.elapsed());
                Ok(())
            });
        }
        mesh.advance(Duration::from_secs(1));
        assert_eq!(open.get(), 3);
        mesh.start_proxy("other", Variant::Delta, &["server"]);
        mesh.publish_to_all(&Contents::of_services(&["a"]).set());
        mesh.converge_within(Duration::from_secs(2));
        assert_eq!(open.get(), 3);
        let are_closed =
            |_: &Mesh| if open.get() == 0 { Ok(()) } else { Err(open.get().to_string()) };
        mesh.wait_until(Duration::from_secs(10), "the silent ones to be closed", are_closed);
    });
}
