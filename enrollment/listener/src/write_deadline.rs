//! A stream that fails when its peer has not read for a while, so that no response waits for a reader that has gone.
//!
//! It belongs below TLS, whose buffer takes further bytes of a response while the peer reads nothing.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// How long a write may make no progress.
pub const WRITE_LIMIT: Duration = Duration::from_secs(30);

/// The stream.
#[derive(Debug)]
pub struct WriteDeadline<S> {
    stream: S,
    limit: Duration,
    /// Ends the write that waits.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl<S> WriteDeadline<S> {
    /// A stream whose writes may each wait for `limit`.
    pub fn new(stream: S, limit: Duration) -> Self {
        Self { stream, limit, deadline: Box::pin(sleep(limit)), is_waiting: false }
    }

    /// The stream itself.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The result of a write, or its failure once it has waited for the limit.
    fn bounded<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + self.limit);
        }
        ready!(self.deadline.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteDeadline<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteDeadline<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.bounded(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, parts);
        self.bounded(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if flushed.is_pending() { self.bounded(context, flushed) } else { flushed }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.bounded(context, shut)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn write_without_a_reader_fails_after_the_limit() {
        let (stream, _reader) = duplex(8);
        let mut stream = WriteDeadline::new(stream, WRITE_LIMIT);
        let start = Instant::now();
        let error = stream.write_all(&[0; 9]).await.unwrap_err();
        assert_eq!((error.kind(), start.elapsed()), (io::ErrorKind::TimedOut, WRITE_LIMIT));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_reader_with_progress_is_served_to_the_end() {
        let (stream, mut reader) = duplex(8);
        let mut stream = WriteDeadline::new(stream, WRITE_LIMIT);
        let read = async {
            for _ in 0..10 {
                sleep(Duration::from_secs(29)).await;
                reader.read_exact(&mut [0; 8]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 80]), read);
        written.unwrap();
    }
}
