//! Load on a mesh while a test changes it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, StatusCode, header};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::client::{Http1Connection, Http2Connection, Response, is_unsent};
use crate::eventually::eventually;
use crate::ledger::TcpConnection;

/// Running load. Dropping this value stops it.
#[derive(Debug)]
pub struct Load {
    report: Arc<Mutex<LoadReport>>,
    /// The minimum number of requests before the load may finish.
    min_requests: u64,
    begin: Instant,
    stop: CancellationToken,
    workers: JoinSet<()>,
}

/// The result of load.
#[derive(Debug, Clone, Default)]
pub struct LoadReport {
    /// The number of requests that were answered or failed.
    pub requests: u64,
    /// The number of messages that the long stream echoed.
    pub stream_messages: u64,
    /// The number of lines that the long TCP connection echoed.
    pub connection_lines: u64,
    /// The number of short calls over streams that ended as planned.
    pub calls: u64,
    /// The number of new TCP connections that were served.
    pub connections: u64,
    /// Descriptions of results other than 200; the first hundred.
    pub failures: Vec<String>,
    /// The number of results other than 200.
    pub failed: u64,
    /// The number of answers by status.
    pub by_status: BTreeMap<u16, u64>,
    /// The number of connections that the server closed in good order and a worker reopened.
    pub reconnects: u64,
    /// The duration of the load.
    pub duration: Duration,
}

impl LoadReport {
    /// Fails the test unless every request got a 200 on its first connection.
    pub fn assert_undisturbed(&self) {
        self.assert_answered_with(&[StatusCode::OK]);
    }

    /// Fails the test unless every request got one of these statuses.
    pub fn assert_answered_with(&self, statuses: &[StatusCode]) {
        let is_foreseen = |status: &&u16| statuses.iter().any(|one| one.as_u16() == **status);
        let answered = self.by_status.iter().filter(|(status, _)| is_foreseen(status));
        let of_settings = answered.filter(|(status, _)| **status != 200).map(|(_, count)| count);
        // Requests without an answer and errors of long-lived connections are failures as well.
        assert!(
            self.failed == of_settings.sum::<u64>()
                && self.by_status.keys().all(|one| is_foreseen(&one)),
            "{} of {} failed ({:?}): {:#?}",
            self.failed,
            self.requests,
            self.by_status,
            self.failures
        );
        assert_eq!(self.reconnects, 0, "connections were closed under load");
        assert!(self.requests >= REQUESTS_AFTER_LAST_CHANGE, "too few requests: {self:?}");
    }
}

impl Load {
    /// Starts load on `path` of `host` over kept HTTP/1.1 and HTTP/2 connections, up to 250
    /// requests a second. A busy machine may be slower: the required amount of load is counted,
    /// never timed.
    pub fn start(address: SocketAddr, host: &str, path: &str) -> Self {
        Self::start_at_rate(address, host, path, REQUESTS_PER_SECOND, REQUESTS_PER_FAULT)
    }

    /// Starts load of up to 50 requests a second, to run next to other load.
    pub fn long_connections(address: SocketAddr, host: &str, path: &str) -> Self {
        Self::start_at_rate(address, host, path, SLOW_REQUESTS_PER_SECOND, MIN_REQUESTS_SLOW)
    }

    fn start_at_rate(
        address: SocketAddr,
        host: &str,
        path: &str,
        rate: u64,
        min_requests: u64,
    ) -> Self {
        let mut load = Self {
            report: Arc::default(),
            min_requests,
            begin: Instant::now(),
            stop: CancellationToken::new(),
            workers: JoinSet::new(),
        };
        for index in 0..WORKERS {
            let worker = Worker {
                address,
                host: host.to_owned(),
                path: path.to_owned(),
                http2: index % 2 == 1,
                rate,
                report: Arc::clone(&load.report),
                stop: load.stop.clone(),
            };
            load.workers.spawn(worker.run());
        }
        load
    }

    /// Adds one long stream to `/echo` of `host` that echoes up to 50 messages a second. Returns
    /// once it is open.
    pub async fn with_stream(mut self, address: SocketAddr, host: &str) -> anyhow::Result<Self> {
        let mut connection = Http2Connection::connect(address).await?;
        let mut stream = connection.open_echo("/echo", host).await?;
        let (report, stop) = (Arc::clone(&self.report), self.stop.clone());
        self.workers.spawn(async move {
            let mut rate = interval(Duration::from_millis(20));
            while !stop.is_cancelled() {
                rate.tick().await;
                let outcome = stream.exchange(Bytes::from_static(b"one message")).await;
                let mut report = report.lock().unwrap();
                if let Err(error) = outcome {
                    report.fail(format!("the long stream: {error:#}"));
                    return;
                }
                report.stream_messages += 1;
            }
            drop(connection);
        });
        Ok(self)
    }

    /// Adds one long TCP connection to a [`crate::Ledger`] that echoes up to 50 lines a second.
    /// Returns once it is open.
    pub async fn with_connection(mut self, address: SocketAddr) -> anyhow::Result<Self> {
        let mut connection = TcpConnection::connect(address).await?;
        connection.line().await?;
        let (report, stop) = (Arc::clone(&self.report), self.stop.clone());
        self.workers.spawn(async move {
            let mut rate = interval(Duration::from_millis(20));
            while !stop.is_cancelled() {
                rate.tick().await;
                let outcome = connection.exchange("one line").await;
                let mut report = report.lock().unwrap();
                if let Err(error) = outcome {
                    report.fail(format!("the long connection: {error:#}"));
                    return;
                }
                report.connection_lines += 1;
            }
        });
        Ok(self)
    }

    /// Adds short calls to `/echo` of `host`, each a stream of some messages, one after the other on a kept connection.
    /// As clients of gRPC do, it leaves a connection that the server drains.
    #[must_use]
    pub fn with_calls(mut self, address: SocketAddr, host: &str) -> Self {
        let (report, stop) = (Arc::clone(&self.report), self.stop.clone());
        let host = host.to_owned();
        self.workers.spawn(async move {
            let mut connection = None;
            let mut rate = interval(Duration::from_millis(100));
            while !stop.is_cancelled() {
                rate.tick().await;
                let mut outcome = call(&mut connection, address, &host).await;
                if outcome.as_ref().is_err_and(is_unsent) {
                    outcome = call(&mut connection, address, &host).await;
                }
                let mut report = report.lock().unwrap();
                match outcome {
                    Ok(()) => report.calls += 1,
                    Err(error) => report.fail(format!("a short call: {error:#}")),
                }
            }
        });
        self
    }

    /// Adds new TCP connections to a [`crate::Ledger`], up to 20 a second, each for one line.
    #[must_use]
    pub fn with_new_connections(mut self, address: SocketAddr) -> Self {
        let (report, stop) = (Arc::clone(&self.report), self.stop.clone());
        self.workers.spawn(async move {
            let mut rate = interval(Duration::from_millis(50));
            while !stop.is_cancelled() {
                rate.tick().await;
                let outcome = exchange_line(address).await;
                let mut report = report.lock().unwrap();
                match outcome {
                    Ok(()) => report.connections += 1,
                    Err(error) => report.fail(format!("a new TCP connection: {error:#}")),
                }
            }
        });
        self
    }

    /// The number of requests so far.
    pub fn requests(&self) -> u64 {
        self.report.lock().unwrap().requests
    }

    /// Waits until this many more requests were answered or failed. A lasting fault stays in place
    /// meanwhile: it ends when enough load has met it, not after a fixed time.
    pub async fn wait_for_requests(&self, requests: u64) {
        let before = self.requests();
        eventually(&format!("{requests} more requests"), async || {
            let passed = self.requests() - before;
            if passed >= requests { Ok(()) } else { Err(format!("{passed} requests")) }
        })
        .await;
    }

    /// The number of requests so far that did not get a 200.
    pub fn failed(&self) -> u64 {
        self.report.lock().unwrap().failed
    }

    /// The number of answers so far with this status.
    pub fn answers(&self, status: StatusCode) -> u64 {
        self.report.lock().unwrap().answers(status)
    }

    /// Waits for one more answer with this status, so that the load has met its cause.
    pub async fn wait_for_status(&self, status: StatusCode) {
        let before = self.answers(status);
        eventually(&format!("load that is answered with {status}"), async || {
            let answers = self.answers(status);
            if answers > before { Ok(()) } else { Err(answers) }
        })
        .await;
    }

    /// Finishes the load once enough requests have passed, in total and since the last change.
    /// Waits for requests in flight.
    pub async fn finish(mut self) -> LoadReport {
        let missing = self.min_requests.saturating_sub(self.requests());
        self.wait_for_requests(missing.max(REQUESTS_AFTER_LAST_CHANGE)).await;
        self.stop.cancel();
        while let Some(worker) = self.workers.join_next().await {
            worker.unwrap();
        }
        let mut report = self.report.lock().unwrap().clone();
        report.duration = self.begin.elapsed();
        report
    }
}

impl LoadReport {
    /// The number of answers with this status.
    pub fn answers(&self, status: StatusCode) -> u64 {
        self.by_status.get(&status.as_u16()).copied().unwrap_or_default()
    }

    fn fail(&mut self, failure: String) {
        self.failed += 1;
        if self.failures.len() < MAX_FAILURES {
            self.failures.push(failure);
        }
    }

    fn record(&mut self, outcome: &anyhow::Result<Response>) {
        self.requests += 1;
        match outcome {
            Ok(response) => {
                *self.by_status.entry(response.status.as_u16()).or_default() += 1;
                if response.status != StatusCode::OK {
                    self.fail(format!("{}: {}", response.status, response.text()));
                }
            }
            Err(error) => self.fail(format!("{error:#}")),
        }
    }
}

/// One connection of load.
struct Worker {
    address: SocketAddr,
    host: String,
    path: String,
    http2: bool,
    /// The request rate of all workers together, per second.
    rate: u64,
    report: Arc<Mutex<LoadReport>>,
    stop: CancellationToken,
}

impl Worker {
    async fn run(self) {
        let mut rate = interval(Duration::from_millis(1000 * WORKERS / self.rate));
        // Late requests are made up for, so that a pause of the machine does not lower the rate.
        rate.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut connection = None;
        while !self.stop.is_cancelled() {
            rate.tick().await;
            let mut outcome = self.request(&mut connection).await;
            // The server drained the connection before the request was sent: a client repeats it on
            // a new one.
            if connection.is_some() && outcome.as_ref().is_err_and(is_unsent) {
                connection = None;
                self.report.lock().unwrap().reconnects += 1;
                outcome = self.request(&mut connection).await;
            }
            self.report.lock().unwrap().record(&outcome);
            match outcome {
                // A failure may have left the connection unusable.
                Err(_) => connection = None,
                // The server requests that the client leaves the connection, which is no failure.
                Ok(response) if response.header(header::CONNECTION.as_str()) == Some("close") => {
                    connection = None;
                    self.report.lock().unwrap().reconnects += 1;
                }
                Ok(_) => {}
            }
        }
    }

    async fn request(&self, kept: &mut Option<Connection>) -> anyhow::Result<Response> {
        // An HTTP/2 connection after GOAWAY accepts no new requests; it has no header to announce
        // this.
        if matches!(kept, Some(Connection::Http2(connection)) if connection.is_closed()) {
            *kept = None;
            self.report.lock().unwrap().reconnects += 1;
        }
        let connection = match kept {
            Some(connection) => connection,
            None if self.http2 => {
                kept.insert(Connection::Http2(Http2Connection::connect(self.address).await?))
            }
            None => kept.insert(Connection::Http1(Http1Connection::connect(self.address).await?)),
        };
        let headers = [("host", self.host.as_str())];
        match connection {
            Connection::Http1(http1) => http1.request(Method::GET, &self.path, &headers).await,
            Connection::Http2(http2) => http2.request(Method::GET, &self.path, &headers).await,
        }
    }
}

/// One short call. After a failure, the next one uses a new connection.
async fn call(
    kept: &mut Option<Http2Connection>,
    address: SocketAddr,
    host: &str,
) -> anyhow::Result<()> {
    let mut connection = match kept.take() {
        Some(connection) if !connection.is_closed() => connection,
        _ => Http2Connection::connect(address).await?,
    };
    let mut stream = connection.open_echo("/echo", host).await?;
    for _ in 0..MESSAGES_PER_CALL {
        stream.exchange(Bytes::from_static(b"one message")).await?;
    }
    stream.finish().await?;
    *kept = Some(connection);
    Ok(())
}

/// Opens a TCP connection, for one line.
async fn exchange_line(address: SocketAddr) -> anyhow::Result<()> {
    let mut connection = TcpConnection::connect(address).await?;
    connection.line().await?;
    connection.exchange("one line").await
}

#[derive(Debug)]
enum Connection {
    Http1(Http1Connection),
    Http2(Http2Connection),
}

/// The minimum number of requests that meet a fault (design §11).
pub const REQUESTS_PER_FAULT: u64 = 500;
const MIN_REQUESTS_SLOW: u64 = 100;
const REQUESTS_AFTER_LAST_CHANGE: u64 = 50;
const REQUESTS_PER_SECOND: u64 = 250;
const SLOW_REQUESTS_PER_SECOND: u64 = 50;
const MESSAGES_PER_CALL: usize = 5;
const WORKERS: u64 = 4;
const MAX_FAILURES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::App;

    #[tokio::test(flavor = "multi_thread")]
    async fn load_counts_failures() {
        // HTTP/1.1 only, so that HTTP/2 workers fail.
        let app = App::http1("shop", SocketAddr::from(([127, 0, 0, 1], 0))).await;
        let load = Load::start(app.address(), "bookstore", "/");
        eventually("some load", async || match load.requests() {
            count if count >= 50 => Ok(()),
            count => Err(count),
        })
        .await;
        let report = load.finish().await;
        assert!(report.by_status[&200] > 0, "{report:?}");
        assert_eq!(report.by_status[&200] + report.failed, report.requests, "{report:?}");
        assert!(report.failed > 0, "{report:?}");
    }

    fn report(by_status: &[(u16, u64)], requests: u64, failed: u64) -> LoadReport {
        let by_status = by_status.iter().copied().collect();
        LoadReport { requests, failed, by_status, ..LoadReport::default() }
    }

    #[test]
    fn expected_statuses_are_no_failures() {
        let both = [StatusCode::OK, StatusCode::IM_A_TEAPOT];
        report(&[(200, 50), (418, 2)], 52, 2).assert_answered_with(&both);
        report(&[(200, 50)], 50, 0).assert_answered_with(&both);
    }

    #[test]
    #[should_panic(expected = "too few requests")]
    fn report_of_few_requests_is_rejected() {
        report(&[(200, 5)], 5, 0).assert_undisturbed();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn load_on_slow_server_ends_after_enough_requests() {
        let app = App::http2("shop", SocketAddr::from(([127, 0, 0, 1], 0))).await;
        // A fiftieth of the usual rate: the number of requests counts.
        let load =
            Load::start_at_rate(app.address(), "bookstore", "/", REQUESTS_PER_SECOND / 50, 20);
        let report = load.finish().await;
        assert!(report.requests >= REQUESTS_AFTER_LAST_CHANGE, "{report:?}");
    }

    #[test]
    #[should_panic(expected = "1 of 7 failed")]
    fn unexpected_status_is_a_failure() {
        report(&[(200, 6), (503, 1)], 7, 1).assert_answered_with(&[StatusCode::OK]);
    }

    #[test]
    #[should_panic(expected = "3 of 8 failed")]
    fn missing_response_is_a_failure() {
        let both = [StatusCode::OK, StatusCode::IM_A_TEAPOT];
        report(&[(200, 5), (418, 2)], 8, 3).assert_answered_with(&both);
    }

    #[test]
    #[should_panic(expected = "0 of 2 failed")]
    fn unexpected_200_is_a_failure() {
        report(&[(200, 2)], 2, 0).assert_answered_with(&[StatusCode::IM_A_TEAPOT]);
    }
}
