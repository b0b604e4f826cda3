//! A response body made of shared bytes: each resource is held once for all streams, up to the TLS
//! layer. (tonic's own encoding would copy every response for every stream.)

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tonic::Status;

mod parts;

pub(crate) use parts::Parts;

/// One message, as the chunks that it is made of.
pub(crate) type Message = Vec<Bytes>;

/// Why a stream ends, where it is not for the client's wish: set before the sender of its messages is
/// dropped. It is no message, so that it gets through where a slow reader has filled their queue.
pub(crate) type End = Arc<OnceLock<Status>>;

/// The body of a streaming gRPC response.
#[derive(Debug)]
pub(crate) struct MessageBody {
    messages: mpsc::Receiver<Message>,
    end: End,
    is_over: bool,
}

impl MessageBody {
    pub(crate) fn new(messages: mpsc::Receiver<Message>, end: End) -> Self {
        Self { messages, end, is_over: false }
    }
}

impl Body for MessageBody {
    type Data = Parts;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Parts>, Status>>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        self.messages.poll_recv(context).map(|message| {
            let frame = message.map(|message| Ok(Frame::data(Parts::from(message))));
            Some(frame.unwrap_or_else(|| {
                self.is_over = true;
                let status = self.end.get().cloned().unwrap_or_else(|| Status::ok(""));
                let mut trailers = HeaderMap::new();
                status.add_header(&mut trailers).map(|()| Frame::trailers(trailers))
            }))
        })
    }
}

/// The body of any response on the port.
#[derive(Debug)]
pub(crate) enum ResponseBody {
    /// Of a stream of ours.
    Messages(MessageBody),
    /// Of what tonic serves.
    Other(tonic::body::Body),
}

impl Body for ResponseBody {
    type Data = Parts;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Parts>, Status>>> {
        match self.get_mut() {
            Self::Messages(body) => Pin::new(body).poll_frame(context),
            Self::Other(body) => {
                let frame = Pin::new(body).poll_frame(context);
                frame.map(|frame| Some(frame?.map(|frame| frame.map_data(Parts::from))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Messages(body) => body.is_end_stream(),
            Self::Other(body) => body.is_end_stream(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::Buf as _;

    use super::*;

    // Invariant 10: the one whose stream is cut for reading too slowly has a full queue.
    #[tokio::test]
    async fn the_status_arrives_also_behind_a_full_queue() {
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
