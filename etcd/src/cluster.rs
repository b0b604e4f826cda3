//! A cluster: its endpoints, one of which is used until it fails.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::error::{EtcdError, SessionError};
use crate::options::EtcdOptions;
use crate::session::{Credentials, Session};

/// A cluster, and the endpoint in use.
#[derive(Debug)]
pub struct Cluster {
    options: EtcdOptions,
    endpoint: usize,
}

/// How long [`Cluster::insist`] waits for a cluster that answers and cannot serve yet: it elects a new leader
/// within some two seconds.
const PATIENCE: Duration = Duration::from_secs(10);

/// The pause after all endpoints have failed.
const PAUSE: Duration = Duration::from_millis(300);

impl Cluster {
    /// The cluster of `options`. Reads the files that they name, and does not connect yet.
    pub fn open(options: EtcdOptions) -> Result<Self, EtcdError> {
        // The files are read again for each connection, since they may be replaced. Their errors are reported
        // before anything else is done.
        Credentials::read(&options)?;
        Ok(Self { options, endpoint: 0 })
    }

    /// The prefix of all keys.
    pub fn prefix(&self) -> &str {
        &self.options.prefix
    }

    /// All endpoints.
    pub fn endpoints(&self) -> &[String] {
        &self.options.endpoints
    }

    /// Opens a session at the endpoint in use.
    pub async fn session(&self) -> Result<Session, EtcdError> {
        let credentials = Credentials::read(&self.options)?;
        let opened = Session::open(self.endpoint(), credentials).await;
        opened.map_err(|error| self.error(error))
    }

    /// Switches to the next endpoint.
    pub fn rotate(&mut self) {
        self.endpoint += 1;
    }

    /// The error of a session at the endpoint in use.
    pub fn error(&self, error: SessionError) -> EtcdError {
        EtcdError::new(self.endpoint(), &self.options, error)
    }

    /// Runs `work` at one endpoint after the other, until it succeeds or exceeds its time.
    pub async fn insist<T>(
        &mut self,
        mut work: impl AsyncFnMut(&mut Session) -> Result<T, SessionError>,
    ) -> Result<T, EtcdError> {
        let begin = Instant::now();
        let mut tried = Vec::new();
        let mut has_answered = false;
        loop {
            let error = match self.session().await {
                Ok(mut session) => {
                    has_answered = true;
                    match work(&mut session).await {
                        Ok(done) => return Ok(done),
                        Err(error) => self.error(error),
                    }
                }
                Err(error) => error,
            };
            if !error.is_endpoint_failure() {
                return Err(error);
            }
            tried.push(error);
            self.rotate();
            if tried.len() >= self.options.endpoints.len() {
                // Waiting helps if there is no leader, but not if no endpoint answers.
                if !has_answered || begin.elapsed() > PATIENCE {
                    return Err(EtcdError::all(tried));
                }
                tried.clear();
                sleep(PAUSE).await;
            }
        }
    }

    fn endpoint(&self) -> &str {
        let endpoints = &self.options.endpoints;
        endpoints.get(self.endpoint % endpoints.len().max(1)).map_or("", String::as_str)
    }
}
