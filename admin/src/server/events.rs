//! The stream of events: server-sent events (HTML, section 9.2), as long as the reader reads and its credential is valid.

use std::convert::Infallible;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, Request, State};
use axum::http::{HeaderMap, Uri};
use bytes::Bytes;
use hyper::body::Frame;
use ironmesh_api::{EVENTS_PATH, EventsQuery, MAX_EVENT_READERS};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::error::InQuery;
use super::network::NetworkClient;
use super::openapi::EventStream;
use super::principal::{Permission, Principal};
use super::{ApiError, Shared};

/// How often a comment is sent, which keeps connections of proxies and browsers alive, and how often the credential of the
/// reader is checked again.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How long a stream lasts on a listener whose connections end after 4 minutes (`Bounds::PORT`), and on the network
/// (`Bounds::NETWORK`). It ends before its connection is cut, so that a reader sees the end of the response, and resumes.
const LIFE: Duration = Duration::from_secs(110);
const NETWORK_LIFE: Duration = Duration::from_secs(590);

/// The comment.
const COMMENT: &[u8] = b":\n\n";

/// The header by which a browser resumes.
const LAST_EVENT_ID: &str = "last-event-id";

/// The interface of a running control plane about events.
pub trait EventSource: Send + Sync + 'static {
    /// A reader of events; of those of the journal only `with_journal`.
    fn events(
        &self,
        query: &EventsQuery,
        with_journal: bool,
    ) -> Result<Box<dyn EventCursor>, ApiError>;
}

/// The cursor of a reader of events.
pub trait EventCursor: Send {
    /// Waits for the next events, each in the form of the stream; none at the end. A wait that is dropped loses none.
    fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<Bytes>>> + Send + '_>>;
}

/// The places of readers, which all listeners share.
#[derive(Debug, Clone)]
pub(super) struct EventReaders(Arc<Semaphore>);

impl Default for EventReaders {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_EVENT_READERS)))
    }
}

pub(super) async fn events(
    State(control_plane): State<Shared>,
    principal: Principal,
    Extension(readers): Extension<EventReaders>,
    InQuery(query): InQuery<EventsQuery>,
    request: Request,
) -> Result<EventStream, ApiError> {
    let busy = |_| {
        ApiError::Busy(format!(
            "{MAX_EVENT_READERS} readers of events are connected, which is the most: close some, or try again later"
        ))
    };
    let place = readers.0.try_acquire_owned().map_err(busy)?;
    let since = match query.since {
        Some(since) => Some(since),
        None => last_event_id(request.headers())?,
    };
    let query = EventsQuery { since, ..query };
    let cursor = control_plane.events(&query, principal.may(Permission::ReadJournal))?;
    let client = request.extensions().get::<Arc<NetworkClient>>().cloned();
    // Connections of the admin socket, whose owner may change the mesh, have no end.
    let life = match &client {
        Some(_) => Some(NETWORK_LIFE),
        None => principal.read_only.then_some(LIFE),
    };
    let credential = client.map(|client| ReaderCredential {
        control_plane,
        client,
        headers: request.headers().clone(),
        principal,
    });
    let (sender, receiver) = channel(1);
    tokio::spawn(send_events(cursor, credential, life, sender, place));
    Ok(EventStream(Body::new(EventsBody(receiver))))
}

fn last_event_id(headers: &HeaderMap) -> Result<Option<String>, ApiError> {
    let bad =
        |_| ApiError::BadRequest("`Last-Event-ID` has other characters than an id".to_owned());
    let id = headers.get(LAST_EVENT_ID).map(|id| id.to_str().map(str::to_owned));
    id.transpose().map_err(bad)
}

/// The credential of a reader on the network. On a socket and on the admin port, it is the connection.
struct ReaderCredential {
    control_plane: Shared,
    client: Arc<NetworkClient>,
    headers: HeaderMap,
    principal: Principal,
}

impl ReaderCredential {
    /// Whether it makes the same principal still.
    fn is_valid(&self) -> bool {
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = Uri::from_static(EVENTS_PATH);
        *request.headers_mut() = self.headers.clone();
        let principal = self.client.principal(&*self.control_plane, &request);
        principal.is_ok_and(|principal| principal.as_ref() == Some(&self.principal))
    }
}

/// Sends events until the stream, the reader, its credential or the time `life` ends.
async fn send_events(
    mut cursor: Box<dyn EventCursor>,
    credential: Option<ReaderCredential>,
    life: Option<Duration>,
    sender: Sender<Bytes>,
    _place: OwnedSemaphorePermit,
) {
    let mut ticks = interval(KEEP_ALIVE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut end = pin!(async {
        match life {
            Some(life) => sleep(life).await,
            None => pending().await,
        }
    });
    loop {
        let bytes = tokio::select! {
            biased;
            () = sender.closed() => return,
            () = &mut end => return,
            _ = ticks.tick() => {
                if credential.as_ref().is_some_and(|credential| !credential.is_valid()) {
                    return;
                }
                Bytes::from_static(COMMENT)
            }
            events = cursor.next() => match events {
                Some(events) => events.concat().into(),
                None => return,
            },
        };
        // Waits for a slow reader: its connection ends after a while without progress.
        if sender.send(bytes).await.is_err() {
            return;
        }
    }
}

/// The body of the stream.
struct EventsBody(Receiver<Bytes>);

impl hyper::body::Body for EventsBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use tokio::time::Instant;

    use super::super::connections::Bounds;
    use super::*;

    struct NoEvents;

    impl EventCursor for NoEvents {
        fn next(&mut self) -> Pin<Box<dyn Future<Output = Option<Vec<Bytes>>> + Send + '_>> {
            Box::pin(pending())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn stream_ends_before_its_connection_is_cut() {
        for (life, bounds) in [(LIFE, Bounds::PORT), (NETWORK_LIFE, Bounds::NETWORK)] {
            // (A connection may accept its last request when its time is over.)
            assert!(life < bounds.grace, "{life:?}");
            let (sender, receiver) = channel(1);
            let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
            let start = Instant::now();
            tokio::spawn(send_events(Box::new(NoEvents), None, Some(life), sender, place));
            let bytes = EventsBody(receiver).collect().await.unwrap().to_bytes();
            assert_eq!(
                (start.elapsed().as_secs(), bytes.len() % COMMENT.len()),
                (life.as_secs(), 0)
            );
        }
    }
}
