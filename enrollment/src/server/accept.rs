//! The accept loop.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

use super::connection::serve_connection;
use super::counters::ConnectionLoss;
use super::rate::Rate;
use super::sources::Source;
use super::state::ListenerState;

/// The pause after a failed accept, such as for too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections, each of which becomes a task of `connections`.
pub(super) async fn accept(
    listener: TcpListener,
    state: &Arc<ListenerState>,
    connections: &mut JoinSet<()>,
) {
    let mut rate = Rate::new(state.limits.accepts_per_second);
    loop {
        sleep_until(rate.ready_at()).await;
        while connections.try_join_next().is_some() {}
        let Ok((stream, address)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let now = Instant::now();
        rate.take(now);
        let source = Source::of(address);
        // Closed at once: sending a reason would need a handshake, which is the cost to avoid.
        if state.is_blocked(source, now) {
            state.counters.connection_lost(ConnectionLoss::Blocked);
            continue;
        }
        match state.connections.enter(source) {
            Ok(permit) => {
                let state = Arc::clone(state);
                connections.spawn(async move {
                    serve_connection(&state, stream, address).await;
                    drop(permit);
                });
            }
            Err(loss) => state.counters.connection_lost(loss),
        }
    }
}
