//! The response body: a message made of shared bytes.
//!
//! All streams share the bytes of each resource, down to the TLS layer. tonic's own encoding would
//! copy every response for every stream.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tonic::Status;

mod parts;

pub(crate) use parts::Parts;

/// One message, as the chunks that compose it.
pub(crate) type Message = Vec<Bytes>;

/// The final status of a stream that the server ends.
///
/// It is set before the sender of the stream's messages is dropped. It is not a message, so it
/// reaches a slow reader whose queue is full.
pub(crate) type End = Arc<OnceLock<Status>>;

/// The body of a gRPC response. The default is empty, for a response that consists of a status
/// only.
#[derive(Debug, Default)]
pub(crate) struct MessageBody {
    /// `None` after the last message.
    messages: Option<mpsc::Receiver<Message>>,
    end: End,
}

impl MessageBody {
    pub(crate) fn new(messages: mpsc::Receiver<Message>, end: End) -> Self {
        Self { messages: Some(messages), end }
    }
}

impl Body for MessageBody {
    type Data = Parts;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Parts>, Status>>> {
        let Some(messages) = &mut self.messages else { return Poll::Ready(None) };
        messages.poll_recv(context).map(|message| {
            let frame = message.map(|message| Ok(Frame::data(Parts::from(message))));
            Some(frame.unwrap_or_else(|| {
                self.messages = None;
                let status = self.end.get().cloned().unwrap_or_else(|| Status::ok(""));
                let mut trailers = HeaderMap::new();
                let added = status.add_header(&mut trailers);
                leave_spaces(&mut trailers);
                added.map(|()| Frame::trailers(trailers))
            }))
        })
    }

    fn is_end_stream(&self) -> bool {
        self.messages.is_none()
    }
}

/// Writes the spaces of a status message unencoded, as gRPC allows ("Percent-Byte-Unencoded" in its
/// protocol over HTTP/2).
///
/// tonic encodes them, and Envoy logs the message as it arrives, for people to read.
fn leave_spaces(trailers: &mut HeaderMap) {
    let words = trailers.get_mut(Status::GRPC_MESSAGE);
    let Some((words, text)) = words.and_then(|words| {
        let text = words.to_str().ok()?.replace("%20", " ");
        Some((words, text))
    }) else {
        return;
    };
    // HTTP header values have no spaces at their ends.
    if text.trim() == text
        && let Ok(value) = HeaderValue::from_str(&text)
    {
        *words = value;
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::Buf as _;

    use super::*;

    #[test]
    fn grpc_message_is_readable_and_decodes_unchanged() {
        for (words, written) in [
            ("proxy x was revoked: sold", "proxy x was revoked: sold"),
            ("100 %20 ä\n", "100 %2520 %C3%A4%0A"),
            (" around ", "%20around%20"),
            ("", ""),
        ] {
            let mut trailers = HeaderMap::new();
            Status::permission_denied(words).add_header(&mut trailers).unwrap();
            leave_spaces(&mut trailers);
            let value = trailers.get(Status::GRPC_MESSAGE);
            assert_eq!(value.map_or("", |value| value.to_str().unwrap()), written);
            assert_eq!(Status::from_header_map(&trailers).unwrap().message(), words);
        }
    }

    /// Invariant 10: the queue of a client that is disconnected for reading too slowly is full.
    #[tokio::test]
    async fn status_is_delivered_behind_a_full_queue() {
        let (messages, queue) = mpsc::channel(1);
        let end = End::default();
        let mut body = MessageBody::new(queue, Arc::clone(&end));
        messages.try_send(vec![Bytes::from_static(b"head"), Bytes::from_static(b"rest")]).unwrap();
        end.set(Status::resource_exhausted("too slow")).unwrap();
        drop(messages);
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let mut data = frame.unwrap().unwrap().into_data().unwrap();
        assert_eq!(data.copy_to_bytes(data.remaining()), "headrest");
        let frame = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
        let trailers = frame.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(Status::from_header_map(&trailers).unwrap().message(), "too slow");
        assert!(poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await.is_none());
    }
}
