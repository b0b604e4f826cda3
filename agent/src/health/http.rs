//! The HTTP probe.

use std::net::SocketAddr;

use http::{Request, Version, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ironmesh_catalog::StatusRange;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

/// The most bytes of a head, and the most of a body that is read: the rest does not matter.
const MAX_HEAD: usize = 16 << 10;
const MAX_BODY: usize = 4 << 10;

/// The most bytes of the headers of a response by HTTP/2.
const MAX_HEAD_LIST: u32 = 16 << 10;

/// A request for a path.
#[derive(Debug)]
pub(super) struct HttpProbe<'a> {
    pub(super) path: &'a str,
    pub(super) host: Option<&'a str>,
    pub(super) statuses: &'a [StatusRange],
}

impl HttpProbe<'_> {
    /// Sends the request, and examines the response. It follows no redirect.
    pub(super) async fn send(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        is_http2: bool,
    ) -> Result<(), String> {
        let host = self.host.map_or_else(|| address.to_string(), str::to_owned);
        let request = Request::get(if is_http2 {
            format!("http://{host}{}", self.path)
        } else {
            self.path.to_owned()
        });
        let request = request.header(header::USER_AGENT, "ironmesh-health");
        let request = if is_http2 {
            request.version(Version::HTTP_2)
        } else {
            request.header(header::HOST, host).header(header::CONNECTION, "close")
        };
        let request = request.body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        // Dropping it ends the connection.
        let mut connections = JoinSet::new();
        let response = if is_http2 {
            let opened = http2::Builder::new(TokioExecutor::new())
                .max_header_list_size(MAX_HEAD_LIST)
                .handshake(TokioIo::new(stream))
                .await;
            let (mut sender, connection) = opened.map_err(|error| failed(&error))?;
            connections.spawn(async { drop(connection.await) });
            sender.send_request(request).await
        } else {
            let opened =
                http1::Builder::new().max_buf_size(MAX_HEAD).handshake(TokioIo::new(stream)).await;
            let (mut sender, connection) = opened.map_err(|error| failed(&error))?;
            connections.spawn(async { drop(connection.await) });
            sender.send_request(request).await
        };
        let response = response.map_err(|error| failed(&error))?;
        let status = response.status().as_u16();
        if !self.statuses.iter().any(|range| range.contains(status)) {
            return Err(format!("status {status}"));
        }
        read_start(response.into_body()).await
    }
}

/// Reads the start of a body. An application that dies while it answers is not healthy.
async fn read_start(mut body: Incoming) -> Result<(), String> {
    let mut read = 0;
    while read < MAX_BODY {
        match body.frame().await {
            None => return Ok(()),
            Some(Err(error)) => return Err(format!("response ended early: {error}")),
            Some(Ok(frame)) => read += frame.data_ref().map_or(0, Bytes::len),
        }
    }
    Ok(())
}

/// The text of an error, with its causes.
pub(super) fn failed(error: &hyper::Error) -> String {
    format!("request failed: {}", ironmesh_catalog::text::chain(error))
}
