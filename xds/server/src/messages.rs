//! The requests of a stream, out of the bytes that come.
//!
//! tonic's own reader keeps the room of the largest message for as long as the stream lives, and an
//! Envoy's first request is 61 KB, its later ones some dozen bytes. Here the room goes with the message.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;

use bytes::{Buf, Bytes, BytesMut};
use http_body::Body as _;
use prost::Message;
use tonic::body::Body;
use tonic::{Code, Status};

/// The largest request: Envoy's first is 61 KB.
const MAX_REQUEST: usize = 4 << 20;

/// What stands before each message: whether it is compressed, and its length.
const PREFIX: usize = 5;

/// The messages of a request's body.
pub(crate) struct Messages<M> {
    body: Body,
    /// What has come of the next message.
    buffer: BytesMut,
    message: PhantomData<fn() -> M>,
}

impl<M: Message + Default> Messages<M> {
    pub(crate) fn new(body: Body) -> Self {
        Self { body, buffer: BytesMut::new(), message: PhantomData }
    }

    /// The next message; `None` when the client has ended the stream. Nothing is lost where this is
    /// given up before it is done.
    pub(crate) async fn next(&mut self) -> Result<Option<M>, Status> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            match poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.add(&data);
                    }
                }
                // The client has reset the stream.
                Some(Err(status)) if status.code() == Code::Cancelled => return Ok(None),
                Some(Err(status)) => return Err(status),
                None if self.buffer.is_empty() => return Ok(None),
                None => return Err(unreadable("the stream ended within it")),
            }
        }
    }

    fn add(&mut self, data: &Bytes) {
        if self.buffer.is_empty() {
            // At once as much as the message is long, and not twice as much each time.
            let length = length(data).unwrap_or_default().min(MAX_REQUEST);
            self.buffer.reserve((PREFIX + length).max(data.len()));
        }
        self.buffer.extend_from_slice(data);
    }

    /// Takes the next message out of what has come, if it is there.
    fn take(&mut self) -> Result<Option<M>, Status> {
        let Some(length) = length(&self.buffer) else { return Ok(None) };
        if self.buffer.first() != Some(&0) {
            return Err(unreadable("it is said to be compressed, and is not read"));
        }
        if length > MAX_REQUEST {
            let words = format!(
                "the request has {length} bytes, and the largest that is read {MAX_REQUEST}"
            );
            return Err(Status::resource_exhausted(words));
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        let message = M::decode(self.buffer.split_to(length));
        if self.buffer.is_empty() {
            self.buffer = BytesMut::new();
        }
        message.map(Some).map_err(|error| unreadable(&error.to_string()))
    }
}

/// The length of the message that begins here, if that can be read yet.
fn length(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(1..PREFIX)?.try_into().ok()?;
    usize::try_from(u32::from_be_bytes(length)).ok()
}

fn unreadable(why: &str) -> Status {
    Status::invalid_argument(format!("the request cannot be read: {why}"))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::{Context, Poll};

    use http_body::Frame;
    use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DiscoveryRequest;

    use super::*;

    /// Gives these pieces, one at a time, and then ends.
    struct Pieces(VecDeque<Bytes>);

    impl http_body::Body for Pieces {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
        }
    }

    fn messages(bytes: &[u8], size: usize) -> Messages<DiscoveryRequest> {
        let pieces = bytes.chunks(size).map(Bytes::copy_from_slice).collect();
        Messages::new(Body::new(Pieces(pieces)))
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
    async fn messages_come_whole_however_they_are_cut() {
        let all = [request("a"), request(&"x".repeat(70_000)), request(""), request("b")];
        let bytes: Vec<u8> = all.iter().flat_map(framed).collect();
        for size in [1, 4, 5, 6, 1000, bytes.len()] {
            let mut messages = messages(&bytes, size);
            for message in &all {
                assert_eq!(messages.next().await.unwrap().as_ref(), Some(message));
            }
            assert_eq!(messages.next().await.unwrap(), None);
            assert_eq!(messages.buffer.capacity(), 0, "no room is kept");
        }
    }

    #[tokio::test]
    async fn what_is_no_message_is_told() {
        let mut garbage = framed(&request("a"));
        *garbage.last_mut().unwrap() = 0xff;
        garbage[PREFIX] = 0xff;
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
            let status = messages(bytes, 3).next().await.unwrap_err();
            assert_eq!(status.code(), code, "{status}");
        }
    }
}
