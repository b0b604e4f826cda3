//! HTTP requests to one Consul agent. This module never selects the agent, and never interprets an
//! answer.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::Secret;
use ironmesh_catalog::text::chain;
use parking_lot::Mutex;
use reqwest::{Client, Url};

use crate::{PeerClock, http};

use super::error::{ConsulError, RequestError};
use super::options::ConsulOptions;
use super::tls;

/// The queries per connection. Go's HTTP/2 server takes 250 streams, and a client has one
/// connection to each agent.
const QUERIES_PER_CONNECTION: usize = 200;
/// The timeout of a connection attempt.
const CONNECT: Duration = Duration::from_secs(2);
/// The characters of an error body that are kept.
const MAX_WORDS: usize = 200;

/// The HTTP clients that all queries share.
#[derive(Debug)]
pub(super) struct Clients(Mutex<State>, PeerClock);

#[derive(Debug)]
struct State {
    tls: rustls::ClientConfig,
    /// The fingerprint of the latest certificate files, valid or not.
    fingerprint: u64,
    /// The client of the agent selector, which must never wait for queries.
    first: Lane,
    lanes: Vec<Lane>,
}

/// A client that some queries share. Each clone counts as one query.
#[derive(Debug, Clone)]
pub(super) struct Lane(Arc<Mutex<Client>>, PeerClock);

/// A request to an agent.
#[derive(Debug)]
pub(super) struct Request<'a> {
    pub(super) agent: &'a Url,
    pub(super) token: Option<&'a Secret>,
    /// The path segments, before they are encoded.
    pub(super) path: &'a [&'a str],
    /// The query parameters that have a value.
    pub(super) parameters: Vec<(&'a str, &'a str)>,
    /// The timeout of the whole answer.
    pub(super) patience: Duration,
}

/// An answer with status 200.
#[derive(Debug)]
pub(super) struct Response {
    /// `X-Consul-Index`; 1 if it is 0 or missing, because a query with index 0 does not block.
    pub(super) index: u64,
    /// Whether the server that answered has a leader.
    pub(super) has_leader: bool,
    /// The time since the server's last contact with the leader.
    pub(super) last_contact: Duration,
    /// Whether Consul (1.11 or later) reports that missing rights removed a part.
    pub(super) is_filtered: bool,
    pub(super) body: Vec<u8>,
}

impl Clients {
    pub(super) fn new(options: &ConsulOptions, peer_clock: PeerClock) -> Result<Self, ConsulError> {
        // The next reload sees changes after this line.
        let fingerprint = tls::fingerprint(options);
        let tls = tls::client_config(options)?;
        // If one client can be made, all can.
        let first = Lane(Arc::new(Mutex::new(client(&tls)?)), peer_clock.clone());
        Ok(Self(Mutex::new(State { tls, fingerprint, first, lanes: Vec::new() }), peer_clock))
    }

    /// Reads the certificate files again. Returns whether there are new connections: if the files
    /// have changed and are valid. Invalid files change nothing.
    pub(super) fn renew(&self, options: &ConsulOptions) -> bool {
        let fingerprint = tls::fingerprint(options);
        let mut state = self.0.lock();
        if state.fingerprint == fingerprint {
            return false;
        }
        state.fingerprint = fingerprint;
        let renewed = state.renew(options);
        if let Err(error) = &renewed {
            tracing::warn!(
                reason = chain(error),
                action = "the previous certificates stay in use",
                "cannot use the new consul certificates"
            );
        }
        renewed.is_ok()
    }

    /// The client that queries do not share.
    pub(super) fn first(&self) -> Lane {
        self.0.lock().first.clone()
    }

    /// Returns a client that can take one more query.
    pub(super) fn lane(&self) -> Result<Lane, ConsulError> {
        let mut state = self.0.lock();
        let is_available = |lane: &&Lane| Arc::strong_count(&lane.0) <= QUERIES_PER_CONNECTION;
        if let Some(lane) = state.lanes.iter().find(is_available) {
            return Ok(lane.clone());
        }
        let lane = Lane(Arc::new(Mutex::new(client(&state.tls)?)), self.1.clone());
        state.lanes.push(lane.clone());
        Ok(lane)
    }
}

impl State {
    fn renew(&mut self, options: &ConsulOptions) -> Result<(), ConsulError> {
        let tls = tls::client_config(options)?;
        let lanes = || std::iter::once(&self.first).chain(&self.lanes);
        let clients = lanes().map(|_| client(&tls)).collect::<Result<Vec<_>, _>>()?;
        for (lane, client) in lanes().zip(clients) {
            *lane.0.lock() = client;
        }
        self.tls = tls;
        Ok(())
    }
}

/// Creates a client with connections of its own.
fn client(tls: &rustls::ClientConfig) -> Result<Client, ConsulError> {
    http::client_builder(tls.clone(), CONNECT)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .http2_keep_alive_timeout(Duration::from_secs(5))
        .http2_keep_alive_while_idle(true)
        .tcp_keepalive(Duration::from_secs(10))
        .no_proxy()
        .build()
        .map_err(ConsulError::Client)
}

impl Lane {
    /// Sends the request, and reads the whole answer.
    pub(super) async fn get(&self, request: Request<'_>) -> Result<Response, RequestError> {
        let client = self.0.lock().clone();
        let mut builder = client.get(url(&request));
        // The reader of the token has checked that it is a header value.
        if let Some(token) = request.token.and_then(|token| http::secret_header(token.expose())) {
            builder = builder.header("X-Consul-Token", token);
        }
        let answer = http::ask(builder, request.patience, Some(&self.1)).await?;
        if answer.status != 200 {
            let text = String::from_utf8_lossy(&answer.body);
            let text = text.trim().chars().take(MAX_WORDS).collect();
            return Err(RequestError::Status { status: answer.status, text });
        }
        let number = |name| Some(answer.header(name)?.parse::<u64>().ok());
        Ok(Response {
            index: number("X-Consul-Index").flatten().unwrap_or(1).max(1),
            has_leader: answer.header("X-Consul-KnownLeader") != Some("false"),
            last_contact: number("X-Consul-LastContact")
                .flatten()
                .map_or(Duration::ZERO, Duration::from_millis),
            is_filtered: answer.header("X-Consul-Results-Filtered-By-ACLs") == Some("true"),
            body: answer.body,
        })
    }
}

impl Response {
    /// Returns the answer, or an error if it may be older than `max_staleness`.
    pub(super) fn recent(self, max_staleness: Duration) -> Result<Self, RequestError> {
        if !self.has_leader {
            return Err(RequestError::Old("the server that answers knows of no leader".to_owned()));
        }
        if self.last_contact > max_staleness {
            return Err(RequestError::Old(format!(
                "the server that answers has not heard of its leader for more than {} s (`max_staleness`)",
                max_staleness.as_secs_f32()
            )));
        }
        Ok(self)
    }
}

fn url(request: &Request<'_>) -> Url {
    let mut url = request.agent.clone();
    // The URL has a host (checked when it was parsed), so it has a path.
    if let Ok(mut path) = url.path_segments_mut() {
        path.pop_if_empty().push("v1").extend(request.path);
    }
    url.query_pairs_mut().extend_pairs(&request.parameters);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_filters_are_url_encoded() {
        let agent = Url::parse("http://127.0.0.1:8500/behind/").unwrap();
        let filter = r#"Checks.Status != "critical" & x"#;
        let url = url(&Request {
            agent: &agent,
            token: None,
            path: &["health", "service", "a b/c?d"],
            parameters: vec![("stale", ""), ("filter", filter)],
            patience: CONNECT,
        });
        assert_eq!(
            url.as_str(),
            "http://127.0.0.1:8500/behind/v1/health/service/a%20b%2Fc%3Fd\
             ?stale=&filter=Checks.Status+%21%3D+%22critical%22+%26+x"
        );
    }

    #[test]
    fn response_without_leader_or_too_stale_is_rejected() {
        let response = |has_leader, millis| Response {
            index: 1,
            has_leader,
            last_contact: Duration::from_millis(millis),
            is_filtered: false,
            body: Vec::new(),
        };
        let bound = Duration::from_secs(10);
        assert!(response(true, 10_000).recent(bound).is_ok());
        assert!(response(false, 0).recent(bound).is_err());
        let error = response(true, 10_001).recent(bound).unwrap_err();
        assert!(error.to_string().contains("for more than 10 s"), "{error}");
    }
}
