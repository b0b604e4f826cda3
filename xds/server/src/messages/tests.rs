//! Messages that arrive in pieces, on a clock that only the tests move.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use http_body::Frame;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DiscoveryRequest;

use super::*;
use crate::limits::Limits;
use crate::memory_quota::QuotaPool;

/// A body of these pieces, one at a time, which then ends or stays silent.
struct Pieces {
    pieces: VecDeque<Bytes>,
    ends: bool,
}

impl http_body::Body for Pieces {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        match self.pieces.pop_front() {
            None if !self.ends => Poll::Pending,
            piece => Poll::Ready(piece.map(|piece| Ok(Frame::data(piece)))),
        }
    }
}

fn quota(limits: &Limits) -> MemoryQuota {
    let pool = QuotaPool::new(limits);
    pool.connection_quota(&pool.client_quota())
}

fn messages_in(
    quota: MemoryQuota,
    bytes: &[u8],
    size: usize,
    ends: bool,
) -> Messages<DiscoveryRequest> {
    let pieces = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
    Messages::new(Body::new(Pieces { pieces, ends }), quota)
}

fn messages(bytes: &[u8], size: usize) -> Messages<DiscoveryRequest> {
    messages_in(quota(&Limits::default()), bytes, size, true)
}

fn request(type_url: &str) -> DiscoveryRequest {
    DiscoveryRequest { type_url: type_url.to_owned(), ..DiscoveryRequest::default() }
}

fn framed(message: &DiscoveryRequest) -> Vec<u8> {
    let body = message.encode_to_vec();
    let length = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &body].concat()
}

#[tokio::test]
async fn messages_are_reassembled_from_chunks_of_any_size() {
    let all = [request("a"), request(&"x".repeat(70_000)), request(""), request("b")];
    let bytes: Vec<u8> = all.iter().flat_map(framed).collect();
    for size in [1, 4, 5, 6, 1000, bytes.len()] {
        let mut messages = messages(&bytes, size);
        for message in &all {
            assert_eq!(messages.next().await.unwrap().as_ref(), Some(message));
            assert_eq!(messages.buffer.capacity(), 0, "no memory is kept");
            assert!(messages.held.is_none());
        }
        assert_eq!(messages.next().await.unwrap(), None);
    }
}

#[tokio::test]
async fn malformed_message_is_rejected_with_a_status() {
    let mut garbage = framed(&request("a"));
    *garbage.last_mut().unwrap() = 0xff;
    garbage[5] = 0xff;
    let too_large = [0, 0xff, 0xff, 0xff, 0xff];
    let mut compressed = framed(&request("a"));
    compressed[0] = 1;
    let cut = &framed(&request("abc"))[..7];
    for (bytes, code) in [
        (cut, Code::InvalidArgument),
        (&garbage[..], Code::InvalidArgument),
        (&too_large, Code::ResourceExhausted),
        (&compressed, Code::InvalidArgument),
    ] {
        let Err(ReadError::Status(status)) = messages(bytes, 3).next().await else {
            panic!("it is accepted: {bytes:?}")
        };
        assert_eq!(status.code(), code, "{status}");
    }
}

/// Invariant 10.
#[tokio::test]
async fn partial_message_holds_memory_quota_until_dropped() {
    let limits = Limits { unfinished_per_client: 200 << 10, ..Limits::default() };
    let quota = quota(&limits);
    let bytes = framed(&request(&"x".repeat(150 << 10)));
    let mut first = messages_in(quota.clone(), &bytes, 16 << 10, true);
    // Until there is nothing more to read.
    let mut begun = messages_in(quota.clone(), &bytes[..6], 16 << 10, false);
    assert!(poll_once(begun.next()).is_pending());
    let Err(ReadError::QuotaExceeded(exceeded)) = first.next().await else {
        panic!("the quota was not exceeded")
    };
    assert_eq!(exceeded, QuotaExceeded::PerClient);
    // A message that arrives at once takes no quota.
    let mut whole = messages_in(quota.clone(), &bytes, bytes.len(), true);
    assert!(whole.next().await.unwrap().is_some());
    drop(begun);
    let mut again = messages_in(quota, &bytes, 16 << 10, true);
    assert!(again.next().await.unwrap().is_some());
}

/// Invariant 10, A23.
#[tokio::test(start_paused = true)]
async fn unfinished_message_fails_at_the_deadline() {
    let bytes = framed(&request("abc"));
    let begin = Instant::now();
    let mut messages = messages_in(quota(&Limits::default()), &bytes[..7], 1, false);
    let Err(ReadError::Status(status)) = messages.next().await else { panic!("it has no end") };
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("was not completed in time"), "{status}");
    assert!((DEADLINE..DEADLINE + Duration::from_millis(10)).contains(&begin.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn message_deadline_counts_only_time_spent_reading() {
    const WAITED: Duration = Duration::from_secs(40);
    let bytes = framed(&request("abc"));
    let mut messages = messages_in(quota(&Limits::default()), &bytes[..7], 1, false);
    assert!(timeout(WAITED, messages.next()).await.is_err(), "given up");
    // For example, while the client does not read.
    tokio::time::advance(2 * DEADLINE).await;
    let begin = Instant::now();
    let Err(ReadError::Status(status)) = messages.next().await else { panic!("it has no end") };
    assert!(status.message().contains("was not completed in time"), "{status}");
    // Timers of tokio have a resolution of 1 ms.
    let difference = (WAITED + begin.elapsed()).abs_diff(DEADLINE);
    assert!(difference < Duration::from_millis(10), "{:?}", begin.elapsed());
}

/// Polls a future once.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    std::pin::pin!(future).poll(&mut Context::from_waker(std::task::Waker::noop()))
}
