//! A response body made of shared bytes: each resource is held once for all streams, up to the TLS
//! layer. (tonic's own encoding would copy every response for every stream.)

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use tokio::sync::mpsc;
use tonic::Status;

/// One message, as the chunks that it is made of; or the end of the stream, with its status.
pub(crate) type Message = Result<Vec<Bytes>, Status>;

/// The body of a streaming gRPC response.
#[derive(Debug)]
pub(crate) struct MessageBody {
    messages: mpsc::Receiver<Message>,
    chunks: VecDeque<Bytes>,
    is_over: bool,
}

impl MessageBody {
    pub(crate) fn new(messages: mpsc::Receiver<Message>) -> Self {
        Self { messages, chunks: VecDeque::new(), is_over: false }
    }
}

impl Body for MessageBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        loop {
            if let Some(chunk) = self.chunks.pop_front() {
                return Poll::Ready(Some(Ok(Frame::data(chunk))));
            }
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.messages.poll_recv(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Some(Ok(chunks))) => self.chunks.extend(chunks),
                Poll::Ready(end) => {
                    self.is_over = true;
                    let status = end.and_then(Result::err).unwrap_or_else(|| Status::ok(""));
                    let mut trailers = HeaderMap::new();
                    return Poll::Ready(Some(
                        status.add_header(&mut trailers).map(|()| Frame::trailers(trailers)),
                    ));
                }
            }
        }
    }
}
