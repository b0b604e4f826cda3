//! The route of exports: a body that is written while it is sent, so that its size does not matter.

use std::io::{self, BufWriter, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Extension, State};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::openapi::OctetStream;
use super::work_queues::Changes;
use super::{ApiError, Shared, WriteExport};

/// How long an export may take: it keeps a snapshot of the store.
const EXPORT_LIMIT: Duration = Duration::from_secs(600);

/// The bytes that are sent at once, and how many of these parts may wait for a slow client.
const PART: usize = 128 * 1024;
const WAITING: usize = 4;

/// Allows one export at a time.
#[derive(Debug, Clone)]
pub(super) struct Exports(Arc<Semaphore>);

impl Default for Exports {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

pub(super) async fn export(
    State(control_plane): State<Shared>,
    changes: Changes,
    Extension(exports): Extension<Exports>,
) -> Result<OctetStream, ApiError> {
    let busy = |_| ApiError::Busy("another export runs: try again when it has ended".to_owned());
    let permit = exports.0.try_acquire_owned().map_err(busy)?;
    let write = changes.run(move |principal| control_plane.export(principal)).await?;
    let body = ExportBody::start(write, permit, EXPORT_LIMIT);
    Ok(OctetStream(Body::new(body)))
}

/// What the writer passes to the body.
enum Part {
    Bytes(Bytes),
    /// Whether everything was written.
    End(io::Result<()>),
}

/// The writer's side of the body.
struct Parts {
    sender: Sender<Part>,
    runtime: Handle,
    end: Instant,
}

impl Parts {
    /// Waits for a slow client, as long as the export may take.
    fn send(&self, part: Part) -> io::Result<()> {
        let sent = self.runtime.block_on(timeout_at(self.end, self.sender.send(part)));
        let gone = |_| io::Error::new(io::ErrorKind::BrokenPipe, "the client has disconnected");
        sent.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?.map_err(gone)
    }
}

impl Write for &Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = bytes.get(..PART).unwrap_or(bytes);
        self.send(Part::Bytes(Bytes::copy_from_slice(bytes)))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The body. It ends with an error unless everything was written, which the client distinguishes.
struct ExportBody {
    receiver: Receiver<Part>,
    has_ended: bool,
}

impl ExportBody {
    /// Begins to write. That ends with the body, or with its time: then nothing can be sent any more.
    fn start(write: WriteExport, permit: OwnedSemaphorePermit, limit: Duration) -> Self {
        let (sender, receiver) = channel(WAITING);
        let parts = Parts { sender, runtime: Handle::current(), end: Instant::now() + limit };
        drop(tokio::task::spawn_blocking(move || {
            let mut output = BufWriter::with_capacity(PART, &parts);
            let written = write(&mut output).and_then(|()| output.flush());
            // Not when it is dropped: a part of what a failed write has left would be sent.
            drop((output.into_parts(), permit));
            // The client may be gone.
            let _ = parts.send(Part::End(written));
        }));
        Self { receiver, has_ended: false }
    }
}

impl hyper::body::Body for ExportBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.has_ended {
            return Poll::Ready(None);
        }
        let failed = match ready!(self.receiver.poll_recv(context)) {
            Some(Part::Bytes(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
            Some(Part::End(written)) => written.err(),
            None => Some(io::Error::other("the writer has ended")),
        };
        self.has_ended = true;
        Poll::Ready(failed.map(Err))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::{BodyExt as _, Collected};

    use super::*;

    /// The bytes of the body of a writer; none if it ends with an error.
    async fn collect(write: WriteExport, limit: Duration) -> (Option<Bytes>, Exports) {
        let exports = Exports::default();
        let permit = Arc::clone(&exports.0).try_acquire_owned().unwrap();
        let collected = ExportBody::start(write, permit, limit).collect().await;
        (collected.ok().map(Collected::to_bytes), exports)
    }

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn body_has_all_that_is_written() {
        let write = |output: &mut dyn Write| {
            (0..10_000).try_for_each(|number: u32| output.write_all(&number.to_be_bytes()))
        };
        let (bytes, exports) = collect(Box::new(write), MINUTE).await;
        let bytes = bytes.unwrap();
        assert_eq!((bytes.len(), &bytes[39_996..]), (40_000, &9_999_u32.to_be_bytes()[..]));
        assert_eq!(exports.0.available_permits(), 1, "the next export may begin");
    }

    #[tokio::test]
    async fn failed_writer_ends_the_body_with_an_error() {
        let write = |output: &mut dyn Write| {
            output.write_all(&vec![0; 3 * PART])?;
            Err(io::Error::other("the store cannot be read"))
        };
        assert_eq!(collect(Box::new(write), MINUTE).await.0, None);
        let panics = |_: &mut dyn Write| -> io::Result<()> { panic!("a defect") };
        assert_eq!(collect(Box::new(panics), MINUTE).await.0, None);
    }

    #[tokio::test]
    async fn client_that_does_not_read_ends_the_export_after_its_time() {
        let exports = Exports::default();
        let permit = Arc::clone(&exports.0).try_acquire_owned().unwrap();
        let write = |output: &mut dyn Write| output.write_all(&vec![0; 20 * PART]);
        let body = ExportBody::start(Box::new(write), permit, Duration::from_millis(50));
        let next = tokio::time::timeout(MINUTE, exports.0.acquire());
        assert!(next.await.is_ok(), "the export goes on without its client");
        assert!(body.collect().await.is_err());
    }
}
