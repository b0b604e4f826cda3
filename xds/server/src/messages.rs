//! The requests of a stream, out of the bytes that come.
//!
//! tonic's own reader keeps the room of the largest message for as long as the stream lives, and an
//! Envoy's first request is 61 KB, its later ones some dozen bytes. Here the room goes with the message;
//! and where a message comes in part, it is room that is counted ([`MemoryQuota`]).

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

/// The largest request: Envoy's first is 61 KB.
const MAX_REQUEST: u32 = 4 << 20;

/// What stands before each message: whether it is compressed, and its length.
const PREFIX: u32 = 5;

/// How long a client is waited for until a message is whole, from its first byte on. What is not read
/// meanwhile, such as while it does not read itself, is not its time.
const DEADLINE: Duration = Duration::from_secs(60);

/// The messages of a request's body.
pub(crate) struct Messages<M> {
    body: Body,
    quota: MemoryQuota,
    /// What has come and was not looked at.
    data: Bytes,
    /// What has come of the next message.
    buffer: BytesMut,
    /// The room that it takes, where it comes in part.
    held: Option<QuotaShare>,
    /// How long the client is waited for yet, where it has begun.
    patience: Option<Duration>,
    message: PhantomData<fn() -> M>,
}

/// Why there is no further message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    /// The message would take more room than there is.
    #[error(transparent)]
    QuotaExceeded(#[from] QuotaExceeded),
    /// What has come is no message, or none comes.
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
            message: PhantomData,
        }
    }

    /// The room of the connection that they come on.
    pub(crate) fn quota(&self) -> &MemoryQuota {
        &self.quota
    }

    /// The next message; `None` when the client has ended the stream. Nothing is lost where this is
    /// given up before it is done.
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
                        .map_err(|_| unreadable("it does not come to its end"))?
                }
            };
            match frame {
                Some(Ok(frame)) => self.data = frame.into_data().unwrap_or_default(),
                // The client has reset the stream.
                Some(Err(status)) if status.code() == Code::Cancelled => return Ok(None),
                Some(Err(status)) => return Err(ReadError::Status(status)),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(unreadable("the stream ended within it")),
            }
        }
    }

    /// Takes the next message out of what has come, if it is there. If not, nothing is left that was not
    /// looked at.
    fn take(&mut self) -> Result<Option<M>, ReadError> {
        self.fill(PREFIX);
        let Some(length) = length(&self.buffer) else { return Ok(None) };
        if self.buffer.first() != Some(&0) {
            return Err(unreadable("it is said to be compressed, and is not read"));
        }
        if length > MAX_REQUEST {
            let words = format!(
                "the request has {length} bytes, and the largest that is read {MAX_REQUEST}"
            );
            return Err(ReadError::Status(Status::resource_exhausted(words)));
        }
        if self.held.is_none() && self.lacks(PREFIX + length) > self.data.len() {
            self.held = Some(self.quota.hold(PREFIX + length)?);
        }
        // At once as much as the message is long, and not twice as much each time.
        self.buffer.reserve(self.lacks(PREFIX + length));
        self.fill(PREFIX + length);
        if self.lacks(PREFIX + length) > 0 {
            return Ok(None);
        }
        let mut message = std::mem::take(&mut self.buffer);
        (self.held, self.patience) = (None, None);
        message.advance(size(PREFIX));
        M::decode(message).map(Some).map_err(|error| unreadable(&error.to_string()))
    }

    /// How many bytes are not in the buffer until it has as many.
    fn lacks(&self, whole: u32) -> usize {
        size(whole).saturating_sub(self.buffer.len())
    }

    /// Fills the buffer up to this size, as far as that has come.
    fn fill(&mut self, whole: u32) {
        let some = self.lacks(whole).min(self.data.len());
        self.buffer.extend_from_slice(&self.data.split_to(some));
        if !self.buffer.is_empty() {
            self.patience.get_or_insert(DEADLINE);
        }
    }
}

/// Takes the time of a wait off what is left, also where the wait is given up.
struct Waiting<'a> {
    since: Instant,
    left: &'a mut Duration,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        *self.left = self.left.saturating_sub(self.since.elapsed());
    }
}

/// The length of the message that begins here, if that can be read yet.
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
