//! Who is at the other end of a connection, and what its streams and the connection tell each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::pki_types::CertificateDer;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::rate_limiter::RateLimiter;
use crate::validity::Validity;

/// How often a connection may open a stream, and how many at once. Each costs more than a request does,
/// and has a pace of its own. An eighth of these may be open together.
const STREAM_INTERVAL: Duration = Duration::from_millis(100);
const STREAM_BURST: u32 = 1024;

/// How often a client may ask how it stands, and how many times at once. Each answer is made anew, and has
/// all in it that the client is to have.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
const STATUS_BURST: u32 = 64;

/// Who is at the other end of a connection, by its verified certificate.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The certificate of the client itself, in DER.
    pub certificate: CertificateDer<'static>,
    /// Where it calls from.
    pub address: SocketAddr,
    /// Until when the certificate holds.
    validity: Validity,
    is_rejected: bool,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rejected_streams: AtomicU32,
    /// How many streams are open, without those of health.
    streams: watch::Sender<usize>,
    /// How fast it may open them.
    opens: Mutex<RateLimiter>,
    /// How often it may ask how it stands; held by whoever asks.
    status: Arc<AsyncMutex<RateLimiter>>,
    /// Its certificate has ended.
    has_expired: AtomicBool,
    /// The connection is to end.
    leave: CancellationToken,
    /// The streams are to end, because the connection does.
    streams_end: CancellationToken,
}

impl Peer {
    pub(crate) fn new(
        certificate: CertificateDer<'static>,
        validity: Validity,
        address: SocketAddr,
    ) -> Self {
        let shared = Shared {
            rejected_streams: AtomicU32::new(0),
            streams: watch::Sender::new(0),
            opens: Mutex::new(RateLimiter::new(STREAM_INTERVAL, STREAM_BURST)),
            status: Arc::new(AsyncMutex::new(RateLimiter::new(STATUS_INTERVAL, STATUS_BURST))),
            has_expired: AtomicBool::new(false),
            leave: CancellationToken::new(),
            streams_end: CancellationToken::new(),
        };
        let is_rejected = false;
        Self { certificate, address, validity, is_rejected, shared: Arc::new(shared) }
    }

    /// The same, and none of its streams is served.
    pub(crate) fn into_rejected(self) -> Self {
        Self { is_rejected: true, ..self }
    }

    pub(crate) fn is_rejected(&self) -> bool {
        self.is_rejected
    }

    /// Takes note that one of its streams was refused. A client that is refused tries again on the same
    /// connection, that is with the same certificate, also when it has another by now: so the first
    /// refusal is told, and after the second the connection ends.
    pub(crate) fn stream_rejected(&self) {
        if self.shared.rejected_streams.fetch_add(1, Ordering::Relaxed) > 0 {
            self.leave();
        }
    }

    /// Ends its connection in good order.
    pub(crate) fn leave(&self) {
        self.shared.leave.cancel();
    }

    /// Ends its connection where it has no stream that counts.
    pub(crate) fn leave_if_idle(&self) {
        if *self.shared.streams.borrow() == 0 {
            self.leave();
        }
    }

    /// Returns when its connection is to end.
    pub(crate) async fn leave_requested(&self) {
        self.shared.leave.cancelled().await;
    }

    /// Ends its streams: what they have queued is still sent.
    pub(crate) fn end_streams(&self) {
        self.shared.streams_end.cancel();
    }

    /// Ends its streams when its certificate has.
    pub(crate) async fn expires(&self) {
        self.validity.expired().await;
        self.shared.has_expired.store(true, Ordering::Relaxed);
        self.end_streams();
    }

    /// Whether its certificate has ended, and its streams therefore.
    pub(crate) fn has_expired(&self) -> bool {
        self.shared.has_expired.load(Ordering::Relaxed)
    }

    /// Returns when its streams are to end.
    pub(crate) async fn end_of_streams(&self) {
        self.shared.streams_end.cancelled().await;
    }

    /// Whether it may open a stream now. If not, its connection ends.
    pub(crate) fn may_open(&self) -> bool {
        let (mut opens, now) = (self.shared.opens.lock(), Instant::now());
        opens.take(1, now);
        let may = opens.is_ready(now);
        if !may {
            self.leave();
        }
        may
    }

    /// The turn to ask how the client stands, and its pace, if no other stream of the connection has it.
    pub(crate) fn status_permit(&self) -> Option<OwnedMutexGuard<RateLimiter>> {
        Arc::clone(&self.shared.status).try_lock_owned().ok()
    }

    /// Counts a stream for as long as what is returned is there. One of health is not counted: anybody who has a
    /// certificate may have it, also when it is revoked, and it is not what a connection is kept for.
    pub(crate) fn open(&self) -> OpenStream {
        self.shared.streams.send_modify(|streams| *streams += 1);
        OpenStream(Arc::clone(&self.shared))
    }

    /// Returns when it has had no stream that counts for `patience`.
    pub(crate) async fn is_idle(&self, patience: Duration) {
        let mut streams = self.shared.streams.subscribe();
        loop {
            // (The sender is there as long as the peer is.)
            drop(streams.wait_for(|streams| *streams == 0).await);
            if timeout(patience, streams.wait_for(|streams| *streams > 0)).await.is_err() {
                return;
            }
        }
    }
}

/// A stream of a peer.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<Shared>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.send_modify(|streams| *streams = streams.saturating_sub(1));
    }
}
