//! HTTP/2 frames of a client, counted as they are read.
//!
//! h2 limits what costs memory: resets, endless headers, data in tiny pieces. It answers PING and
//! SETTINGS, and ignores some frames, without limit (CVE-2019-9512, -9515 and similar). Each of
//! these costs work here and few bytes of the client. So frames without data have a rate limit, far
//! above that of any honest client. Beyond it, the server reads nothing more from the connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::rate_limiter::RateLimiter;

/// The interval at which a client may send a frame without data, and the burst. A client sends some
/// for each response that it reads (window updates), and for each stream.
pub(super) const FRAME_INTERVAL: Duration = Duration::from_millis(1);
pub(super) const BURST: u32 = 20_000;

/// The length of the client's preface before its first frame (RFC 9113, 3.4).
const PREFACE: usize = 24;

/// The length of a frame header: length (3 bytes), type, flags (1 each) and stream (4) (RFC 9113,
/// 4.1).
const HEAD: usize = 9;

/// The type of the frames that carry requests. h2 limits small ones, and flow-control windows limit
/// all.
const DATA: u8 = 0;

/// A connection whose frames are counted.
#[derive(Debug)]
pub(super) struct Counted<IO> {
    io: IO,
    limiter: RateLimiter,
    /// The bytes to skip until the next header.
    skip: usize,
    /// The bytes of that header so far.
    head: Vec<u8>,
    flood: CancellationToken,
}

impl<IO> Counted<IO> {
    /// Wraps `io`. When its client exceeds the rate limit, `flood` is cancelled and reads return
    /// nothing more.
    pub(super) fn new(io: IO, flood: CancellationToken) -> Self {
        let limiter = RateLimiter::new(FRAME_INTERVAL, BURST);
        Self { io, limiter, skip: PREFACE, head: Vec::with_capacity(HEAD), flood }
    }

    /// Counts the frames that begin in these bytes. Returns whether the client exceeds the rate
    /// limit.
    fn count(&mut self, mut bytes: &[u8]) -> bool {
        let mut frames = 0;
        while !bytes.is_empty() {
            let skip = self.skip.min(bytes.len());
            bytes = bytes.get(skip..).unwrap_or_default();
            self.skip -= skip;
            let head_bytes = (HEAD - self.head.len()).min(bytes.len());
            let (head, rest) = bytes.split_at(head_bytes);
            self.head.extend_from_slice(head);
            bytes = rest;
            if let [a, b, c, kind, ..] = self.head[..]
                && self.head.len() == HEAD
            {
                frames += u32::from(kind != DATA);
                self.skip = u32::from_be_bytes([0, a, b, c]) as usize;
                self.head.clear();
            }
        }
        let now = Instant::now();
        self.limiter.take(frames, now);
        frames > 0 && !self.limiter.is_ready(now)
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Counted<IO> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.flood.is_cancelled() {
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        let new = buffer.filled().get(before..).unwrap_or_default();
        if self.count(new) {
            self.flood.cancel();
        }
        Poll::Ready(Ok(()))
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Counted<IO> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, length: u8) -> Vec<u8> {
        let head = [0, 0, length, kind, 0, 0, 0, 0, 0];
        [&head[..], &vec![7; usize::from(length)]].concat()
    }

    #[tokio::test(start_paused = true)]
    async fn frame_count_ignores_chunking_and_data_frames() {
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        for kind in [4, 6, DATA, 8, DATA, 0x55] {
            bytes.extend([frame(kind, 0), frame(kind, 17)].concat());
        }
        for size in [1, 2, 9, 10, 25, bytes.len()] {
            let mut counted = Counted::new((), CancellationToken::new());
            let begin = counted.limiter.ready_at();
            assert!(!bytes.chunks(size).any(|piece| counted.count(piece)));
            assert_eq!(
                counted.limiter.ready_at(),
                begin + 8 * FRAME_INTERVAL,
                "in pieces of {size}"
            );
        }
    }

    /// A38.
    #[tokio::test(start_paused = true)]
    async fn frames_within_the_rate_limit_are_never_rejected() {
        let mut counted = Counted::new((), CancellationToken::new());
        counted.skip = 0;
        let ping = frame(6, 8);
        assert!(!counted.count(&ping.repeat(BURST as usize)));
        for _ in 0..1000 {
            tokio::time::advance(10 * FRAME_INTERVAL).await;
            assert!(!counted.count(&ping.repeat(10)));
        }
        assert!(counted.count(&ping.repeat(1)));
    }
}
