//! The slots of TLS handshakes: how many per second and at once, and for which source.
//!
//! Sources that wait get slots in rotation, one each. So a flood of one source delays another by one slot only,
//! and clients that stall in the handshake fill only their own source's quarter of the slots.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};

use crate::limits::ListenerLimits;
use crate::rate::Rate;
use crate::sources::ClientSource;

/// The slots of all handshakes.
pub(crate) struct HandshakeSlots {
    most: usize,
    most_of_source: usize,
    per_second: u32,
    state: Mutex<State>,
    /// Wakes [`HandshakeSlots::grant`] when a client waits or a slot is free.
    changed: Notify,
}

#[derive(Default)]
struct State {
    used: usize,
    used_by_source: BTreeMap<ClientSource, usize>,
    waiting: BTreeMap<ClientSource, VecDeque<oneshot::Sender<HandshakeSlot>>>,
    /// The sources of `waiting`, the next one first.
    rotation: VecDeque<ClientSource>,
}

impl HandshakeSlots {
    pub(crate) fn new(limits: ListenerLimits) -> Self {
        Self {
            most: limits.handshakes.max(1),
            most_of_source: (limits.handshakes / 4).max(1),
            per_second: limits.handshakes_per_second,
            state: Mutex::default(),
            changed: Notify::new(),
        }
    }

    /// Waits for a slot. A caller that no longer waits loses nothing.
    pub(crate) async fn wait(&self, source: ClientSource) -> HandshakeSlot {
        let (grant, granted) = oneshot::channel();
        {
            let mut state = self.state.lock();
            if !state.waiting.contains_key(&source) {
                state.rotation.push_back(source);
            }
            state.waiting.entry(source).or_default().push_back(grant);
        }
        self.changed.notify_one();
        match granted.await {
            Ok(slot) => slot,
            // The server is shutting down.
            Err(_) => std::future::pending().await,
        }
    }

    /// Grants slots for as long as it is polled. Never returns.
    pub(crate) async fn grant(self: Arc<Self>) {
        let mut rate = Rate::new(self.per_second);
        loop {
            sleep_until(rate.ready_at()).await;
            let next = self.state.lock().next(self.most, self.most_of_source);
            let Some((source, client)) = next else {
                self.changed.notified().await;
                continue;
            };
            rate.take(Instant::now());
            // A slot that is not received returns by its drop.
            let _ = client.send(HandshakeSlot { slots: Arc::clone(&self), source });
        }
    }
}

impl State {
    /// The next client that gets a slot, which counts as used from now on.
    fn next(
        &mut self,
        most: usize,
        most_of_source: usize,
    ) -> Option<(ClientSource, oneshot::Sender<HandshakeSlot>)> {
        if self.used >= most {
            return None;
        }
        for _ in 0..self.rotation.len() {
            let source = self.rotation.pop_front()?;
            let used = self.used_by_source.get(&source).copied().unwrap_or(0);
            let Some(clients) = self.waiting.get_mut(&source) else { continue };
            clients.retain(|client| !client.is_closed());
            let next = if used < most_of_source { clients.pop_front() } else { None };
            if clients.is_empty() {
                self.waiting.remove(&source);
            } else {
                self.rotation.push_back(source);
            }
            if let Some(client) = next {
                self.used += 1;
                self.used_by_source.insert(source, used + 1);
                return Some((source, client));
            }
        }
        None
    }
}

/// A slot for one handshake, released on drop.
pub(crate) struct HandshakeSlot {
    slots: Arc<HandshakeSlots>,
    source: ClientSource,
}

impl Drop for HandshakeSlot {
    fn drop(&mut self) {
        let mut state = self.slots.state.lock();
        state.used = state.used.saturating_sub(1);
        if let Some(used) = state.used_by_source.get_mut(&self.source) {
            *used = used.saturating_sub(1);
            if *used == 0 {
                state.used_by_source.remove(&self.source);
            }
        }
        drop(state);
        self.slots.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::time::Duration;

    use super::*;

    fn source(host: u8) -> ClientSource {
        ClientSource::of(SocketAddr::from(([10, 0, 0, host], 1)))
    }

    fn slots(handshakes: usize, handshakes_per_second: u32) -> Arc<HandshakeSlots> {
        let limits =
            ListenerLimits { handshakes, handshakes_per_second, ..ListenerLimits::default() };
        let slots = Arc::new(HandshakeSlots::new(limits));
        tokio::spawn(Arc::clone(&slots).grant());
        slots
    }

    #[tokio::test(start_paused = true)]
    async fn flood_of_one_source_delays_another_by_one_slot() {
        let slots = slots(1000, 10);
        for _ in 0..500 {
            let slots = Arc::clone(&slots);
            tokio::spawn(async move { drop(slots.wait(source(1)).await) });
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let begin = Instant::now();
        drop(slots.wait(source(2)).await);
        assert!(begin.elapsed() <= Duration::from_millis(200), "{:?}", begin.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn stalling_source_uses_a_quarter_of_the_slots() {
        let slots = slots(8, 1000);
        let held = [slots.wait(source(1)).await, slots.wait(source(1)).await];
        let third = tokio::time::timeout(Duration::from_secs(9), slots.wait(source(1))).await;
        assert!(third.is_err());
        drop(slots.wait(source(2)).await);
        drop(held);
        drop(slots.wait(source(1)).await);
        assert_eq!(slots.state.lock().used, 0);
        assert!(slots.state.lock().waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_per_second_are_limited() {
        let slots = slots(1000, 10);
        let begin = Instant::now();
        for _ in 0..60 {
            drop(slots.wait(source(1)).await);
        }
        // The first 11 at once, the others at 10 per second.
        assert_eq!(begin.elapsed().as_millis(), 4900);
    }
}
