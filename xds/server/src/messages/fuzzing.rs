//! A comparison of the request reader with one that has all bytes from the start.

use std::collections::VecDeque;
use std::task::{Context, Poll, Waker};

use http_body::Frame;

use super::*;
use crate::limits::Limits;
use crate::memory_quota::QuotaPool;

/// A message of arbitrary bytes.
#[derive(Clone, PartialEq, Message)]
struct Anything {
    #[prost(bytes = "vec", repeated, tag = "1")]
    field: Vec<Vec<u8>>,
}

/// A body that returns `Pending` before each piece.
struct Pieces {
    pieces: VecDeque<Bytes>,
    is_ready: bool,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        self.is_ready = !self.is_ready;
        if !self.is_ready {
            return Poll::Pending;
        }
        Poll::Ready(self.pieces.pop_front().map(|piece| Ok(Frame::data(piece))))
    }
}

/// Compares what is read from `bytes` in pieces of these sizes, repeated, with the reference.
pub(crate) fn read(bytes: &[u8], sizes: &[u8]) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    let runtime = runtime.expect("a runtime without IO");
    let _entered = runtime.enter();
    let (mut pieces, mut rest) = (VecDeque::new(), bytes);
    // Sizes that are all 0 would never end.
    for size in sizes.iter().chain(&[255]).cycle() {
        // Small sizes as they are, larger ones up to the largest frame.
        let size = usize::from(*size);
        let size = if size < 128 { size } else { (size - 127) * 128 };
        let (piece, left) = rest.split_at(size.min(rest.len()));
        pieces.push_back(Bytes::copy_from_slice(piece));
        rest = left;
        if rest.is_empty() {
            break;
        }
    }
    let pool = QuotaPool::new(&Limits::default());
    let quota = pool.connection_quota(&pool.client_quota());
    let body = Body::new(Pieces { pieces, is_ready: true });
    let mut messages = Messages::<Anything>::new(body, quota);
    let mut at_once = bytes;
    loop {
        let read = next(&mut messages);
        assert!(messages.held.is_none() || read.is_err(), "a complete message takes quota");
        let expected = reference(&mut at_once);
        match (read, expected) {
            (Ok(None), Ok(None)) => return,
            (Ok(Some(read)), Ok(Some(expected))) => assert_eq!(read, expected),
            (Err(ReadError::Status(read)), Err(expected)) => {
                return assert_eq!(read.code(), expected, "{read}");
            }
            (read, expected) => panic!("{read:?} is read, and {expected:?} is expected"),
        }
    }
}

/// The next message, with a future that is dropped and created again at each poll.
fn next(messages: &mut Messages<Anything>) -> Result<Option<Anything>, ReadError> {
    loop {
        let poll = std::pin::pin!(messages.next()).poll(&mut Context::from_waker(Waker::noop()));
        // The memory of an incomplete message is counted.
        let length = length(&messages.buffer).filter(|_| messages.held.is_some());
        let held = length.map_or(0, |length| size(PREFIX + length));
        let kept = messages.buffer.capacity();
        assert!(kept <= held.max(16), "{kept} bytes are kept, and {held} counted");
        if let Poll::Ready(next) = poll {
            return next;
        }
        assert!(messages.data.is_empty(), "all bytes are processed");
    }
}

/// The next message of complete bytes.
fn reference(bytes: &mut &[u8]) -> Result<Option<Anything>, Code> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let (prefix, rest) = bytes.split_at_checked(5).ok_or(Code::InvalidArgument)?;
    let [flag, a, b, c, d] = *prefix else { unreachable!("it has five bytes") };
    if flag != 0 {
        return Err(Code::InvalidArgument);
    }
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if length > 4 << 20 {
        return Err(Code::ResourceExhausted);
    }
    let (message, rest) = rest.split_at_checked(length).ok_or(Code::InvalidArgument)?;
    *bytes = rest;
    Anything::decode(message).map(Some).map_err(|_| Code::InvalidArgument)
}
