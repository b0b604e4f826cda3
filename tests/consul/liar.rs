//! Stands before a real agent, and answers otherwise when it is told to.

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

/// What is wrong.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Fault {
    /// Nothing: what the agent says is handed on.
    None,
    /// Questions about instances of `web` are answered with this.
    Answer { status: u16, index: u64, body: String },
    /// All answers have these headers, whatever the agent says.
    Headers(Vec<(&'static str, &'static str)>),
    /// All answers come a second late.
    Slowness,
    /// Nobody is answered any more, and what was under way is kept back: a partition.
    Silence,
    /// Nobody is let in, and whoever is there is cut off.
    Refusal,
}

#[derive(Debug)]
pub(crate) struct Liar {
    address: SocketAddr,
    fault: Arc<watch::Sender<Fault>>,
    asked: Arc<watch::Sender<usize>>,
    _task: AbortOnDropHandle<()>,
}

#[derive(Clone)]
struct Behind {
    agent: String,
    fault: watch::Receiver<Fault>,
    asked: Arc<watch::Sender<usize>>,
    http: reqwest::Client,
}

impl Liar {
    /// In front of the agent that is asked at `agent`, honest at first.
    pub(crate) async fn before(agent: String, address: IpAddr) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let fault = Arc::new(watch::Sender::new(Fault::None));
        let asked = Arc::new(watch::Sender::new(0));
        let http = tls::plain_http_client();
        let behind = Behind { agent, fault: fault.subscribe(), asked: Arc::clone(&asked), http };
        let router = axum::Router::new().fallback(answer).with_state(behind);
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, fault, asked, _task: AbortOnDropHandle::new(task) }
    }

    /// Where it is asked.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on it is wrong like this, also about what was asked before.
    pub(crate) fn be(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }

    /// How many questions have come.
    pub(crate) fn asked(&self) -> usize {
        *self.asked.borrow()
    }
}

async fn answer(State(behind): State<Behind>, request: Request) -> Response {
    let mut news = behind.fault.clone();
    behind.asked.send_modify(|count| *count += 1);
    let path = request.uri().to_string();
    loop {
        let fault = news.borrow_and_update().clone();
        match fault {
            Fault::Answer { status, index, body } if path.starts_with("/v1/health/service/web") => {
                let headers = [("X-Consul-Index", index.to_string())];
                return (StatusCode::from_u16(status).unwrap(), headers, body).into_response();
            }
            Fault::Silence => news.changed().await.unwrap(),
            Fault::Refusal => return cut_off(),
            Fault::None | Fault::Answer { .. } | Fault::Headers(_) | Fault::Slowness => {
                tokio::select! {
                    biased;
                    changed = news.changed() => changed.unwrap(),
                    told = hand_on(&behind, request.headers(), &path) => {
                        let Ok(mut told) = told else { return cut_off() };
                        if fault == Fault::Slowness {
                            // Not to wait for anything: it is what is wrong.
                            sleep(SLOWNESS).await;
                        }
                        if let Fault::Headers(headers) = fault {
                            for (name, value) in headers {
                                told.headers_mut().insert(name, value.parse().unwrap());
                            }
                        }
                        return told;
                    }
                }
            }
        }
    }
}

const SLOWNESS: Duration = Duration::from_secs(1);

async fn hand_on(behind: &Behind, headers: &HeaderMap, path: &str) -> reqwest::Result<Response> {
    let mut asked = behind.http.get(format!("{}{path}", behind.agent));
    if let Some(token) = headers.get("X-Consul-Token") {
        asked = asked.header("X-Consul-Token", token);
    }
    let told = asked.send().await?;
    let mut response = Response::builder().status(told.status());
    for (name, value) in told.headers() {
        if name.as_str().starts_with("x-consul") {
            response = response.header(name, value);
        }
    }
    Ok(response.body(Body::from(told.bytes().await?)).unwrap())
}

/// A body that breaks: the connection ends in the middle of the answer.
fn cut_off() -> Response {
    let broken = tokio_stream::once(Err::<&str, _>(std::io::Error::other("cut off")));
    Body::from_stream(broken).into_response()
}
