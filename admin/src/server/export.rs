//! The route of exports: a body that is written while it is sent, so that its size does not matter.

use std::io::{self, BufWriter, Write};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{ConnectInfo, Extension, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use hyper::body::Frame;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{Instant, timeout_at};

use super::read_queue::blocking;
use super::{ApiError, Shared};
use crate::journal::Operator;

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
    ConnectInfo(operator): ConnectInfo<Operator>,
    Extension(exports): Extension<Exports>,
) -> Result<Response, ApiError> {
    let busy = |_| ApiError::Busy("another export runs: try again when it has ended".to_owned());
    let permit = exports.0.try_acquire_owned().map_err(busy)?;
    let write = blocking(move || control_plane.export(operator)).await?;
    let (sender, receiver) = channel(WAITING);
    let parts = Parts { sender, runtime: Handle::current(), end: Instant::now() + EXPORT_LIMIT };
    // It ends with the body, or with its time: then nothing can be sent any more.
    drop(tokio::task::spawn_blocking(move || {
        let mut output = BufWriter::with_capacity(PART, &parts);
        let written = write(&mut output).and_then(|()| output.flush());
        drop((output, permit));
        // The client may be gone.
        let _ = parts.send(Part::End(written));
    }));
    let body = ExportBody { receiver, has_ended: false };
    Ok(([(header::CONTENT_TYPE, "application/octet-stream")], Body::new(body)).into_response())
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
