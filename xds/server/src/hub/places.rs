//! The places of clients, which [`Limits::clients`](crate::Limits::clients) bounds, and the clients that got none.
//!
//! A client has a place as long as it has a stream, and for [`KEPT`] afterwards: a client that connects again is never
//! refused. A client whose admission fails keeps none: its streams never open. A new client is refused at once, so that
//! it tries a different server soon. If it comes back again and again, it waits for [`RETRY_DELAY`] first: otherwise
//! clients that all servers refuse would cost one TLS handshake each, twice a second.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{ClientKey, Hub};

/// How long the place of a client is kept after its last stream. An Envoy connects again within a second.
pub(crate) const KEPT: Duration = Duration::from_secs(15);

/// How often a client is refused at once. It chooses a server at random, perhaps the same one twice.
const PROMPT_ANSWERS: u32 = 3;

/// How long a client waits that was refused more often.
pub(crate) const RETRY_DELAY: Duration = Duration::from_secs(2);

/// How long it counts that a client was refused. A refused client comes back sooner, also if it tries a few other servers before.
const COUNTED: Duration = Duration::from_secs(60);

/// The places of all clients.
#[derive(Debug, Default)]
pub(super) struct Places(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    held: HashMap<ClientKey, PlaceState>,
    /// The clients whose last stream has ended, and when.
    left: VecDeque<(Instant, ClientKey)>,
    refused: HashMap<ClientKey, RejectedAttempts>,
    /// When clients that were refused long ago were removed last.
    swept_at: Option<Instant>,
}

#[derive(Debug)]
struct PlaceState {
    streams: usize,
    /// Whether any of its streams has opened.
    has_opened: bool,
    /// When its last stream ended.
    left_at: Option<Instant>,
}

/// How often a client was refused, and when last.
#[derive(Debug, Clone, Copy)]
struct RejectedAttempts {
    count: u32,
    last: Instant,
}

/// What a client without a place gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// A refusal at once.
    Now,
    /// It was refused several times: a wait of [`RETRY_DELAY`].
    Again,
}

/// The place of a client, on behalf of one of its streams.
#[derive(Debug)]
pub(crate) struct Place {
    hub: Arc<Hub>,
    client: ClientKey,
}

impl State {
    /// Removes the places that were kept long enough.
    fn free(&mut self, now: Instant) {
        while let Some((at, client)) = self.left.front().filter(|(at, _)| *at + KEPT <= now) {
            // A client that has connected again has a later entry, or will have one.
            if self.held.get(client).is_some_and(|place| place.left_at == Some(*at)) {
                self.held.remove(client);
            }
            self.left.pop_front();
        }
    }

    fn refuse(&mut self, client: &ClientKey, now: Instant) -> Refused {
        let is_outdated = |attempts: &RejectedAttempts| attempts.last + COUNTED <= now;
        if self.swept_at.is_none_or(|at| at + COUNTED <= now) {
            self.refused.retain(|_, attempts| !is_outdated(attempts));
            self.swept_at = Some(now);
        }
        let none = RejectedAttempts { count: 0, last: now };
        let attempts = self.refused.entry(Arc::clone(client)).or_insert(none);
        if is_outdated(attempts) {
            *attempts = none;
        }
        (attempts.count, attempts.last) = (attempts.count.saturating_add(1), now);
        if attempts.count > PROMPT_ANSWERS { Refused::Again } else { Refused::Now }
    }
}

impl Hub {
    /// Gives a stream of a client its place, of this many.
    pub(crate) fn take_place(
        self: &Arc<Self>,
        client: &ClientKey,
        most: usize,
    ) -> Result<Place, Refused> {
        let (mut state, now) = (self.places.0.lock(), Instant::now());
        state.free(now);
        if !state.held.contains_key(client) && state.held.len() >= most {
            return Err(state.refuse(client, now));
        }
        state.refused.remove(client);
        let place = state.held.entry(Arc::clone(client));
        let place = place.or_insert(PlaceState { streams: 0, has_opened: false, left_at: None });
        (place.streams, place.left_at) = (place.streams + 1, None);
        Ok(Place { hub: Arc::clone(self), client: Arc::clone(client) })
    }

    /// The clients that were refused within the last minute because of [`Limits::clients`](crate::Limits::clients), and
    /// that have got no place since.
    pub fn refused_clients(&self) -> Vec<ClientKey> {
        let (state, now) = (self.places.0.lock(), Instant::now());
        let counted = state.refused.iter().filter(|(_, attempts)| attempts.last + COUNTED > now);
        counted.map(|(client, _)| Arc::clone(client)).collect()
    }
}

impl Place {
    /// Marks that its stream has opened: afterwards, the client keeps the place for a while.
    pub(crate) fn opened(&self) {
        if let Some(place) = self.hub.places.0.lock().held.get_mut(&self.client) {
            place.has_opened = true;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let (mut state, now) = (self.hub.places.0.lock(), Instant::now());
        let Some(place) = state.held.get_mut(&self.client) else { return };
        place.streams = place.streams.saturating_sub(1);
        if place.streams == 0 && !place.has_opened {
            state.held.remove(&self.client);
        } else if place.streams == 0 {
            place.left_at = Some(now);
            state.left.push_back((now, Arc::clone(&self.client)));
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn key(name: &str) -> ClientKey {
        name.into()
    }

    /// A place with an open stream.
    fn open(hub: &Arc<Hub>, name: &str, most: usize) -> Result<Place, Refused> {
        hub.take_place(&key(name), most).inspect(Place::opened)
    }

    /// The names of the refused clients.
    fn refused(hub: &Hub) -> Vec<ClientKey> {
        let mut refused = hub.refused_clients();
        refused.sort();
        refused
    }

    #[tokio::test(start_paused = true)]
    async fn new_client_beyond_the_limit_is_refused_until_a_place_is_free() {
        let hub = Arc::new(Hub::default());
        let take = |name: &str| open(&hub, name, 2);
        let (one, _other) = (take("one").unwrap(), take("other").unwrap());
        for _ in 0..PROMPT_ANSWERS {
            assert_eq!(take("third").unwrap_err(), Refused::Now);
        }
        assert_eq!(take("third").unwrap_err(), Refused::Again);
        assert_eq!(take("fourth").unwrap_err(), Refused::Now);
        assert_eq!(refused(&hub), [key("fourth"), key("third")]);
        // A hot restart: the second process of a client that has a place.
        let again = take("one").unwrap();
        drop(one);
        advance(KEPT).await;
        assert!(take("third").is_err(), "one stream of `one` is open");
        drop(again);
        advance(KEPT).await;
        let third = take("third").unwrap();
        assert_eq!(refused(&hub), [key("fourth")]);
        drop(third);
        advance(COUNTED).await;
        assert_eq!(refused(&hub), []);
        assert_eq!(take("fourth").map(drop), Ok(()), "the place of `third` is free");
    }

    #[tokio::test(start_paused = true)]
    async fn client_that_connects_again_keeps_its_place() {
        let hub = Arc::new(Hub::default());
        let take = |name: &str| open(&hub, name, 1);
        for _ in 0..3 {
            drop(take("one").unwrap());
            advance(KEPT * 9 / 10).await;
            assert!(take("other").is_err());
        }
        drop(take("one").unwrap());
        advance(KEPT).await;
        assert!(take("other").is_ok());
        let state = hub.places.0.lock();
        assert_eq!((state.held.len(), state.left.len()), (1, 1), "nothing else is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn client_whose_admission_fails_keeps_no_place() {
        let hub = Arc::new(Hub::default());
        drop(hub.take_place(&key("unclaimed"), 1).unwrap());
        let one = open(&hub, "one", 1).unwrap();
        // A second stream of a client with a place.
        drop(hub.take_place(&key("one"), 1).unwrap());
        drop(one);
        drop(hub.take_place(&key("one"), 1).unwrap());
        assert!(open(&hub, "other", 1).is_err(), "`one` keeps its place");
        advance(KEPT).await;
        assert!(open(&hub, "other", 1).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn refused_client_is_forgotten_after_a_minute() {
        let hub = Arc::new(Hub::default());
        let _one = hub.take_place(&key("one"), 1).unwrap();
        for _ in 0..2 * PROMPT_ANSWERS {
            assert_eq!(hub.take_place(&key("other"), 1).unwrap_err(), Refused::Now);
            advance(COUNTED).await;
        }
        assert_eq!(hub.take_place(&key("third"), 1).unwrap_err(), Refused::Now);
        assert_eq!(hub.places.0.lock().refused.len(), 1, "older ones are removed");
    }
}
