//! The requests of a stream, decoded from the incoming bytes.
//!
//! tonic's own reader keeps the memory of the largest message for the life of the stream; an
//! Envoy's first request has 61 KB, later ones some dozen bytes. Here the memory is freed with the
//! message, and the memory of an incomplete message counts against a quota ([`MemoryQuota`]).

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http_body::Body as _;
use prost::Message;
use tokio::time::{Instant, timeout};
use tonic::body::Body;
use tonic::{Code, Status};

use crate::memory_quota::{MemoryQuota, QuotaExceeded, QuotaShare};

/// The maximum size of a request: Envoy's first has 61 KB.
const MAX_REQUEST: u32 = 4 << 20;

/// The length of the prefix of each message: a compression flag and the length.
const PREFIX: u32 = 5;

/// The time from the first byte of a message to its last. Time in which the server does not read,
/// for example because the client does not, does not count.
const DEADLINE: Duration = Duration::from_secs(60);

/// The messages of a request body.
pub(crate) struct Messages<M> {
    body: Body,
    quota: MemoryQuota,
    /// Bytes that have arrived and are not processed yet.
    data: Bytes,
    /// The bytes of the next message so far.
    buffer: BytesMut,
    /// The quota that an incomplete message takes.
    held: Option<QuotaShare>,
    /// The time left for the client to complete a message that has begun.
    patience: Option<Duration>,
    /// The maximum size of a message.
    limit: u32,
    message: PhantomData<fn() -> M>,
}

/// Why there is no further message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The message exceeds a memory quota.
    #[error(transparent)]
    QuotaExceeded(#[from] QuotaExceeded),
    /// The bytes are not a message, or no more arrive.
    #[error("{}", .0.message())]
    Status(Status),
}

impl<M: Message + Default> Messages<M> {
    pub(crate) fn new(body: Body, quota: MemoryQuota) -> Self {
        Self {
            body,
            quota,
            data: Bytes::new(),
            buffer: BytesMut::new(),
            held: None,
            patience: None,
            limit: MAX_REQUEST,
            message: PhantomData,
        }
    }

    /// The same messages, which may have `limit` bytes.
    pub(crate) fn with_limit(self, limit: u32) -> Self {
        Self { limit, ..self }
    }

    /// The quotas of the connection.
    pub(crate) fn quota(&self) -> &MemoryQuota {
        &self.quota
    }

    /// Waits for the next message; `None` when the client has ended the stream. Nothing is lost if
    /// the future is dropped.
    pub(crate) async fn next(&mut self) -> Result<Option<M>, ReadError> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let frame = match &mut self.patience {
                None => frame.await,
                Some(left) => {
                    let waiting = Waiting { since: Instant::now(), left };
                    timeout(*waiting.left, frame)
                        .await
                        .map_err(|_| unreadable("it was not completed in time"))?
                }
            };
            match frame {
                Some(Ok(frame)) => self.data = frame.into_data().unwrap_or_default(),
                // The client has reset the stream.
                Some(Err(status)) if status.code() == Code::Cancelled => return Ok(None),
                Some(Err(status)) => return Err(ReadError::Status(status)),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(unreadable("the stream ended before it was complete")),
            }
        }
    }

    /// Decodes the next message if it is complete. If not, all bytes so far are processed.
    fn take(&mut self) -> Result<Option<M>, ReadError> {
        if let Some(message) = self.take_whole() {
            return decode(message).map(Some);
        }
        self.fill(PREFIX);
        let Some(length) = length(&self.buffer) else { return Ok(None) };
        if self.buffer.first() != Some(&0) {
            return Err(unreadable("it is compressed, which is not supported"));
        }
        if length > self.limit {
            let limit = self.limit;
            let words = format!("the request has {length} bytes, and the limit is {limit}");
            return Err(ReadError::Status(Status::resource_exhausted(words)));
        }
        if self.held.is_none() && self.lacks(PREFIX + length) > self.data.len() {
            self.held = Some(self.quota.hold(PREFIX + length)?);
        }
        // Reserves the message's length at once, instead of doubling each time.
        self.buffer.reserve(self.lacks(PREFIX + length));
        self.fill(PREFIX + length);
        if self.lacks(PREFIX + length) > 0 {
            return Ok(None);
        }
        let mut message = std::mem::take(&mut self.buffer);
        (self.held, self.patience) = (None, None);
        message.advance(size(PREFIX));
        decode(message).map(Some)
    }

    /// The next message, without a copy, if all of it has just arrived, as nearly every message does.
    fn take_whole(&mut self) -> Option<Bytes> {
        let length = length(&self.data).filter(|length| *length <= self.limit)?;
        let is_whole = self.buffer.is_empty()
            && self.data.first() == Some(&0)
            && self.data.len() >= size(PREFIX + length);
        is_whole.then(|| self.data.split_to(size(PREFIX + length)).split_off(size(PREFIX)))
    }

    /// The number of bytes that the buffer lacks to have `whole`.
    fn lacks(&self, whole: u32) -> usize {
        size(whole).saturating_sub(self.buffer.len())
    }

    /// Fills the buffer up to `whole` bytes, as far as they have arrived.
    fn fill(&mut self, whole: u32) {
        let some = self.lacks(whole).min(self.data.len());
        self.buffer.extend_from_slice(&self.data.split_to(some));
        if !self.buffer.is_empty() {
            self.patience.get_or_insert(DEADLINE);
        }
    }
}

/// Subtracts the time of a wait from the time left, even if the wait is cancelled.
struct Waiting<'a> {
    since: Instant,
    left: &'a mut Duration,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.left = self.left.saturating_sub(self.since.elapsed());
    }
}

fn decode<M: Message + Default>(message: impl bytes::Buf) -> Result<M, ReadError> {
    M::decode(message).map_err(|error| unreadable(&error.to_string()))
}

/// The length of the message that begins here, if it has arrived.
fn length(bytes: &[u8]) -> Option<u32> {
    let length = bytes.get(1..size(PREFIX))?.try_into().ok()?;
    Some(u32::from_be_bytes(length))
}

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn unreadable(why: &str) -> ReadError {
    ReadError::Status(Status::invalid_argument(format!("the request cannot be read: {why}")))
}

#[cfg(any(test, feature = "fuzzing"))]
#[expect(clippy::expect_used, clippy::panic, reason = "for tests: a panic is a failed test")]
pub(crate) mod fuzzing;
#[cfg(test)]
mod tests;
