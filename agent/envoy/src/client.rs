//! The client of `supervisor.sock`, which the commands use.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::time::timeout;

use crate::local_http::{self, LocalAddress, LocalHttpError};
use crate::plan::BoxError;
use crate::progress::ReloadProgress;
use crate::server::socket_path;
use crate::status::SupervisorStatus;

/// The time limit of a request, and of the begin of the answer to a reload.
const LIMIT: Duration = Duration::from_secs(5);

/// The failure of a request to the supervisor.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorClientError {
    /// Nothing listens, or this user may not connect.
    #[error(
        "cannot reach the supervisor of Envoy at `{}`: is `ironmesh envoy run` running with this folder, as this user?",
        socket.display()
    )]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The reason.
        source: BoxError,
    },
    /// The supervisor does not answer.
    #[error("the supervisor of Envoy at `{}` has not answered within {} s; see its log", socket.display(), LIMIT.as_secs())]
    Timeout {
        /// The socket.
        socket: PathBuf,
    },
    /// The answer broke off, or has an unknown form.
    #[error("the supervisor of Envoy broke off its answer, or sent an unknown one; see its log")]
    Broken(#[source] BoxError),
}

/// A client of the supervisor of one folder.
#[derive(Debug, Clone)]
pub struct SupervisorClient {
    socket: PathBuf,
}

/// The steps of a running reload.
#[derive(Debug)]
pub struct ReloadEvents {
    body: Incoming,
    unread: Vec<u8>,
}

impl SupervisorClient {
    /// A client of the supervisor of `folder`.
    pub fn new(folder: &Path) -> Self {
        Self { socket: socket_path(folder) }
    }

    /// The status of the supervisor and its Envoys.
    pub async fn status(&self) -> Result<SupervisorStatus, SupervisorClientError> {
        let body = self.exchange(Method::GET, "/status").await?;
        serde_json::from_slice(&body).map_err(|error| SupervisorClientError::Broken(error.into()))
    }

    /// Begins a drain, after which Envoy and the supervisor end.
    pub async fn drain(&self) -> Result<(), SupervisorClientError> {
        self.exchange(Method::POST, "/drain").await.map(drop)
    }

    /// Begins a drain, after which the supervisor waits for [`Self::resume`].
    pub async fn hold(&self) -> Result<(), SupervisorClientError> {
        self.exchange(Method::POST, "/hold").await.map(drop)
    }

    /// Starts Envoy after a hold; without one, it changes nothing.
    pub async fn resume(&self) -> Result<(), SupervisorClientError> {
        self.exchange(Method::POST, "/resume").await.map(drop)
    }

    /// Begins a reload, and returns its steps.
    pub async fn reload(&self) -> Result<ReloadEvents, SupervisorClientError> {
        let address = LocalAddress::Socket(self.socket.clone());
        let response = timeout(LIMIT, local_http::send(&address, Method::POST, "/reload"));
        let response = response.await.map_err(|_| self.timeout())?;
        let response = response.map_err(|error| self.failed(error))?;
        Ok(ReloadEvents { body: response.into_body(), unread: Vec::new() })
    }

    async fn exchange(&self, method: Method, path: &str) -> Result<Bytes, SupervisorClientError> {
        let address = LocalAddress::Socket(self.socket.clone());
        let answer = timeout(LIMIT, local_http::exchange(&address, method, path));
        answer.await.map_err(|_| self.timeout())?.map_err(|error| self.failed(error))
    }

    fn timeout(&self) -> SupervisorClientError {
        SupervisorClientError::Timeout { socket: self.socket.clone() }
    }

    fn failed(&self, error: LocalHttpError) -> SupervisorClientError {
        match error {
            LocalHttpError::Connect(source) => SupervisorClientError::Unreachable {
                socket: self.socket.clone(),
                source: source.into(),
            },
            other => SupervisorClientError::Broken(other.into()),
        }
    }
}

impl ReloadEvents {
    /// The next step; `None` after the last one.
    pub async fn next(&mut self) -> Result<Option<ReloadProgress>, SupervisorClientError> {
        loop {
            if let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let step = serde_json::from_slice(&line);
                return step.map(Some).map_err(|error| SupervisorClientError::Broken(error.into()));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(SupervisorClientError::Broken(error.into())),
                Some(Ok(frame)) => {
                    self.unread.extend(frame.into_data().unwrap_or_default());
                }
            }
        }
    }
}
