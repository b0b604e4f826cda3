//! The peer of a connection, and the state that the connection shares with its streams.

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

/// The interval at which a connection may open streams, and the burst. A stream costs more than a
/// request, and has a rate limit of its own. An eighth of the burst may be open together.
const STREAM_INTERVAL: Duration = Duration::from_millis(100);
const STREAM_BURST: u32 = 1024;

/// The interval at which a client may request its status, and the burst. Each answer is newly built,
/// and contains the client's whole resource set.
const STATUS_INTERVAL: Duration = Duration::from_millis(250);
const STATUS_BURST: u32 = 64;

/// The peer of a connection, identified by its verified certificate.
#[derive(Debug, Clone)]
pub struct Peer {
    /// The client's own certificate, in DER.
    pub certificate: CertificateDer<'static>,
    /// The client's address.
    pub address: SocketAddr,
    /// The validity of the certificate.
    validity: Validity,
    is_rejected: bool,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    rejected_streams: AtomicU32,
    /// The number of open streams, without those of health.
    streams: watch::Sender<usize>,
    /// The rate limit for opening streams.
    opens: Mutex<RateLimiter>,
    /// The rate limit for status requests; the lock is held by the stream that sends them.
    status: Arc<AsyncMutex<RateLimiter>>,
    /// Whether the certificate has expired.
    has_expired: AtomicBool,
    /// Cancelled when the connection must end.
    leave: CancellationToken,
    /// Cancelled when the streams must end, because the connection does.
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

    /// The same peer, whose streams are all rejected.
    pub(crate) fn into_rejected(self) -> Self {
        Self { is_rejected: true, ..self }
    }

    pub(crate) fn is_rejected(&self) -> bool {
        self.is_rejected
    }

    /// Records that a stream was rejected. After the second rejection the connection ends.
    ///
    /// A rejected client retries on the same connection, which has the same certificate even if the
    /// client has a new one by now. So the first rejection is answered, and the second ends the
    /// connection.
    pub(crate) fn stream_rejected(&self) {
        if self.shared.rejected_streams.fetch_add(1, Ordering::Relaxed) > 0 {
            self.leave();
        }
    }

    /// Ends the connection gracefully.
    pub(crate) fn leave(&self) {
        self.shared.leave.cancel();
    }

    /// Ends the connection gracefully if it has no stream that counts.
    pub(crate) fn leave_if_idle(&self) {
        if *self.shared.streams.borrow() == 0 {
            self.leave();
        }
    }

    /// Returns when the connection must end.
    pub(crate) async fn leave_requested(&self) {
        self.shared.leave.cancelled().await;
    }

    /// Ends the streams after they have sent what they have queued.
    pub(crate) fn end_streams(&self) {
        self.shared.streams_end.cancel();
    }

    /// Waits until the certificate expires, then ends the streams.
    pub(crate) async fn expires(&self) {
        self.validity.expired().await;
        self.shared.has_expired.store(true, Ordering::Relaxed);
        self.end_streams();
    }

    /// Whether the certificate has expired, and the streams ended because of that.
    pub(crate) fn has_expired(&self) -> bool {
        self.shared.has_expired.load(Ordering::Relaxed)
    }

    /// Returns when the streams must end.
    pub(crate) async fn end_of_streams(&self) {
        self.shared.streams_end.cancelled().await;
    }

    /// Whether the client may open a stream now. If not, the connection ends.
    pub(crate) fn may_open(&self) -> bool {
        let (mut opens, now) = (self.shared.opens.lock(), Instant::now());
        opens.take(1, now);
        let may = opens.is_ready(now);
        if !may {
            self.leave();
        }
        may
    }

    /// The permit to send status requests, with their rate limit, unless another stream of the
    /// connection holds it.
    pub(crate) fn status_permit(&self) -> Option<OwnedMutexGuard<RateLimiter>> {
        Arc::clone(&self.shared.status).try_lock_owned().ok()
    }

    /// Counts a stream until the result is dropped. A health stream does not count: any certificate
    /// may have one, even a revoked one, and it does not keep a connection alive.
    pub(crate) fn open(&self) -> OpenStream {
        self.shared.streams.send_modify(|streams| *streams += 1);
        OpenStream(Arc::clone(&self.shared))
    }

    /// Returns when the connection has had no stream that counts for `patience`.
    pub(crate) async fn is_idle(&self, patience: Duration) {
        let mut streams = self.shared.streams.subscribe();
        loop {
            // The sender lives as long as the peer.
            drop(streams.wait_for(|streams| *streams == 0).await);
            if timeout(patience, streams.wait_for(|streams| *streams > 0)).await.is_err() {
                return;
            }
        }
    }
}

/// An open stream of a peer.
#[derive(Debug)]
pub(crate) struct OpenStream(Arc<Shared>);

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.send_modify(|streams| *streams = streams.saturating_sub(1));
    }
}
