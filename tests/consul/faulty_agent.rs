//! A proxy in front of a real agent that injects faults into its answers.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use ironmesh_tests::tls;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// A fault of the agent.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum AgentFault {
    /// None: answers are forwarded unchanged.
    None,
    /// Queries for instances of `web` get this answer.
    Answer { status: u16, index: u64, body: String },
    /// All answers have these headers in addition.
    Headers(Vec<(&'static str, &'static str)>),
    /// All answers are a second late.
    Slow,
    /// No query is answered, and answers in flight are held back: a partition.
    Silence,
    /// No connection is accepted, and open ones are closed.
    Closed,
}

#[derive(Debug)]
pub(crate) struct FaultyAgent {
    address: SocketAddr,
    fault: Arc<watch::Sender<AgentFault>>,
    requests: Arc<watch::Sender<usize>>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone)]
struct AgentState {
    agent: String,
    fault: watch::Receiver<AgentFault>,
    requests: Arc<watch::Sender<usize>>,
    http: reqwest::Client,
}

impl FaultyAgent {
    /// Starts a proxy without faults in front of the agent at URL `agent`.
    pub(crate) async fn start(agent: String, address: IpAddr) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let fault = Arc::new(watch::Sender::new(AgentFault::None));
        let requests = Arc::new(watch::Sender::new(0));
        let http = tls::plain_http_client();
        let state =
            AgentState { agent, fault: fault.subscribe(), requests: Arc::clone(&requests), http };
        let router = axum::Router::new().fallback(answer).with_state(state);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, fault, requests, _task: AbortOnDropHandle::new(task) }
    }

    /// The URL of this proxy.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the fault, also for queries in flight.
    pub(crate) fn set_fault(&self, fault: AgentFault) {
        self.fault.send_replace(fault);
    }

    /// The number of queries so far.
    pub(crate) fn requests(&self) -> usize {
        *self.requests.borrow()
    }
}

async fn answer(State(state): State<AgentState>, request: Request) -> Response {
    let mut fault_changes = state.fault.clone();
    state.requests.send_modify(|count| *count += 1);
    let path = request.uri().to_string();
    loop {
        let fault = fault_changes.borrow_and_update().clone();
        match fault {
            AgentFault::Answer { status, index, body }
                if path.starts_with("/v1/health/service/web") =>
            {
                let headers = [("X-Consul-Index", index.to_string())];
                return (StatusCode::from_u16(status).unwrap(), headers, body).into_response();
            }
            AgentFault::Silence => fault_changes.changed().await.unwrap(),
            AgentFault::Closed => return cut_off(),
            AgentFault::None
            | AgentFault::Answer { .. }
            | AgentFault::Headers(_)
            | AgentFault::Slow => {
                tokio::select! {
                    biased;
                    changed = fault_changes.changed() => changed.unwrap(),
                    answered = forward(&state, request.headers(), &path) => {
                        let Ok(mut answered) = answered else { return cut_off() };
                        if fault == AgentFault::Slow {
                            // This sleep is the fault itself, not a wait for a condition.
                            sleep(SLOW_ANSWER).await;
                        }
                        if let AgentFault::Headers(headers) = fault {
                            for (name, value) in headers {
                                answered.headers_mut().insert(name, value.parse().unwrap());
                            }
                        }
                        return answered;
                    }
                }
            }
        }
    }
}

const SLOW_ANSWER: Duration = Duration::from_secs(1);

async fn forward(state: &AgentState, headers: &HeaderMap, path: &str) -> reqwest::Result<Response> {
    let mut requests = state.http.get(format!("{}{path}", state.agent));
    if let Some(token) = headers.get("X-Consul-Token") {
        requests = requests.header("X-Consul-Token", token);
    }
    let answered = requests.send().await?;
    let mut response = Response::builder().status(answered.status());
    for (name, value) in answered.headers() {
        if name.as_str().starts_with("x-consul") {
            response = response.header(name, value);
        }
    }
    Ok(response.body(Body::from(answered.bytes().await?)).unwrap())
}

/// A broken body: the connection ends in the middle of the answer.
fn cut_off() -> Response {
    let broken = tokio_stream::once(Err::<&str, _>(std::io::Error::other("cut off")));
    Body::from_stream(broken).into_response()
}
