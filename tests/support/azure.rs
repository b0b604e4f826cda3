//! A fake Azure that is as strict as the real one: Resource Manager (compute, network, Resource
//! Graph), token endpoints and the metadata service of a machine.
//!
//! It answers with the official examples, filled with the machines of the test. It rejects what
//! Azure rejects, counts requests and injects faults.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::Response;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::Loopback;

mod manager;
mod resource_group;
mod tokens;

pub use resource_group::{GROUP, Interface, Machine, ResourceGroup, SUBSCRIPTION, ScaleSet};

/// The kind of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// List scale sets.
    ScaleSets,
    /// List the machines of a uniform scale set.
    UniformMachines,
    /// List the network interfaces of a uniform scale set.
    UniformInterfaces,
    /// List the machines of a flexible scale set.
    FlexibleMachines,
    /// List the machines outside uniform scale sets.
    Machines,
    /// List the power states of these machines.
    States,
    /// List the network interfaces of these machines.
    Interfaces,
    /// Query Resource Graph.
    Graph,
    /// List the machines of a scale set from Resource Graph instead of from the compute provider.
    GraphMachines,
    /// Request a token for an application.
    Login,
    /// Request a token for a machine.
    Metadata,
    /// Any request to a host that is not part of Azure.
    Foreign,
}

/// A fault that the fake injects into the answers to one kind of request.
#[derive(Debug, Clone)]
pub enum AzureFault {
    /// Answer with a status and an error code.
    Status(u16, &'static str),
    /// Answer 429 with `retry-after` in seconds.
    Throttled(u64),
    /// Answer with this status this many times, then recover.
    Transient(u16, usize),
    /// Answer with this body.
    Body(String),
    /// Delay the answer.
    Slow(Duration),
    /// Answer with an empty list.
    Empty,
    /// Break the connection in the middle of the answer.
    Disconnect,
    /// Point the next page at a foreign host.
    NextPageAtForeignHost,
    /// Point the next page at another port of the same host.
    NextPageAtOtherPort,
    /// Report a low remaining quota.
    LowQuota,
    /// Reject the token, and report a clock this many minutes ahead.
    ClockAhead(i64),
}

/// A running fake Azure.
#[derive(Debug)]
pub struct FakeAzure {
    shared: Arc<Shared>,
    manager: SocketAddr,
    login: SocketAddr,
    metadata: SocketAddr,
    _loopback: Loopback,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// A change to the machines after one page is answered.
type AfterPage = Box<dyn FnOnce(&mut ResourceGroup) + Send>;

pub(crate) struct Shared {
    state: Mutex<Inner>,
    pub(crate) manager: SocketAddr,
    pub(crate) other_port: SocketAddr,
    pub(crate) foreign: SocketAddr,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("manager", &self.manager).finish_non_exhaustive()
    }
}

#[derive(Default)]
pub(crate) struct Inner {
    /// The resource groups by subscription and lower-case name.
    groups: BTreeMap<(String, String), ResourceGroup>,
    pub(crate) faults: BTreeMap<RequestKind, AzureFault>,
    pub(crate) counts: BTreeMap<RequestKind, usize>,
    pub(crate) mixes_case: bool,
    pub(crate) page_size: usize,
    pub(crate) after_page: BTreeMap<RequestKind, AfterPage>,
    pub(crate) tokens: tokens::Tokens,
    pub(crate) foreign_requests: Vec<String>,
    pub(crate) request_times: Vec<(RequestKind, tokio::time::Instant)>,
    /// The fake has been dropped: it closes the remaining connections.
    pub(crate) is_closed: bool,
}

impl FakeAzure {
    /// Starts an empty fake.
    pub async fn start() -> Self {
        let loopback = Loopback::claim();
        let listen = async |host: u8| TcpListener::bind((loopback.host(host), 0)).await.unwrap();
        let (manager, other_port, foreign) = (listen(1).await, listen(1).await, listen(2).await);
        let (login, metadata) = (listen(3).await, listen(4).await);
        let at = |listener: &TcpListener| listener.local_addr().unwrap();
        let mut inner = Inner { page_size: 250, ..Inner::default() };
        inner.resource_group(SUBSCRIPTION, GROUP);
        let shared = Arc::new(Shared {
            state: Mutex::new(inner),
            manager: at(&manager),
            other_port: at(&other_port),
            foreign: at(&foreign),
        });
        let (manager_at, login_at, metadata_at) = (at(&manager), at(&login), at(&metadata));
        let serve = |listener: TcpListener, router: axum::Router| {
            let task = async move { axum::serve(listener, router).await.unwrap() };
            AbortOnDropHandle::new(tokio::spawn(task))
        };
        let with = |router: axum::Router<Arc<Shared>>| router.with_state(Arc::clone(&shared));
        let router = axum::Router::new;
        let tasks = vec![
            serve(manager, with(router().fallback(manager::answer))),
            serve(other_port, with(router().fallback(manager::answer))),
            serve(foreign, with(router().fallback(foreign_host))),
            serve(login, with(router().fallback(tokens::login))),
            serve(metadata, with(router().fallback(tokens::metadata))),
        ];
        Self {
            shared,
            manager: manager_at,
            login: login_at,
            metadata: metadata_at,
            _loopback: loopback,
            _tasks: tasks,
        }
    }

    /// The URL of the Resource Manager.
    pub fn manager(&self) -> String {
        format!("http://{}", self.manager)
    }

    /// The URL where applications request tokens.
    pub fn login(&self) -> String {
        format!("http://{}", self.login)
    }

    /// The URL where the machine requests tokens.
    pub fn metadata(&self) -> String {
        format!("http://{}", self.metadata)
    }

    /// Changes the machines of the default resource group.
    pub fn change<T>(&self, change: impl FnOnce(&mut ResourceGroup) -> T) -> T {
        self.change_in(SUBSCRIPTION, GROUP, change)
    }

    /// Changes the machines of a resource group, which is created if it is missing.
    pub fn change_in<T>(
        &self,
        subscription: &str,
        group: &str,
        change: impl FnOnce(&mut ResourceGroup) -> T,
    ) -> T {
        change(self.shared.state.lock().resource_group(subscription, group))
    }

    /// Sets the fault of one kind of request; `None` removes it.
    pub fn set_fault(&self, kind: RequestKind, fault: impl Into<Option<AzureFault>>) {
        let mut state = self.shared.state.lock();
        match fault.into() {
            Some(fault) => drop(state.faults.insert(kind, fault)),
            None => drop(state.faults.remove(&kind)),
        }
    }

    /// Varies the case of ids from now on.
    pub fn mix_case(&self) {
        self.shared.state.lock().mixes_case = true;
    }

    /// Sets the number of entries on a page.
    pub fn set_page_size(&self, size: usize) {
        self.shared.state.lock().page_size = size;
    }

    /// Runs a change once, after the next page of this kind.
    pub fn after_page(
        &self,
        kind: RequestKind,
        change: impl FnOnce(&mut ResourceGroup) + Send + 'static,
    ) {
        self.shared.state.lock().after_page.insert(kind, Box::new(change));
    }

    /// The number of requests of this kind.
    pub fn count(&self, kind: RequestKind) -> usize {
        self.shared.state.lock().counts.get(&kind).copied().unwrap_or(0)
    }

    /// The number of requests to the Resource Manager.
    pub fn calls(&self) -> usize {
        let counts = self.shared.state.lock().counts.clone();
        let of_tokens = [RequestKind::Login, RequestKind::Metadata, RequestKind::Foreign];
        counts.iter().filter(|(kind, _)| !of_tokens.contains(kind)).map(|(_, count)| count).sum()
    }

    /// The kind and time of each request, by the test's clock.
    pub fn request_times(&self) -> Vec<(RequestKind, tokio::time::Instant)> {
        self.shared.state.lock().request_times.clone()
    }

    /// The requests that reached hosts outside Azure.
    pub fn foreign_requests(&self) -> Vec<String> {
        self.shared.state.lock().foreign_requests.clone()
    }

    /// Revokes all tokens issued so far.
    pub fn revoke_tokens(&self) {
        self.shared.state.lock().tokens.revoke();
    }

    /// Denies an action on the resource group and the subscription.
    pub fn deny(&self, action: &'static str) {
        self.shared.state.lock().tokens.denied.insert(action);
    }

    /// Allows all actions again.
    pub fn deny_nothing(&self) {
        self.shared.state.lock().tokens.denied.clear();
    }

    /// Sets the lifetime of tokens issued from now on.
    pub fn set_token_lifetime(&self, life: Duration) {
        self.shared.state.lock().tokens.life = life;
    }

    /// Sets the application's secret.
    pub fn set_secret(&self, secret: &str) {
        secret.clone_into(&mut self.shared.state.lock().tokens.secret);
    }
}

impl Drop for FakeAzure {
    fn drop(&mut self) {
        self.shared.state.lock().is_closed = true;
    }
}

impl Inner {
    /// A resource group, created if it is missing.
    pub(crate) fn resource_group(&mut self, subscription: &str, group: &str) -> &mut ResourceGroup {
        let key = (subscription.to_lowercase(), group.to_lowercase());
        self.groups.entry(key).or_insert_with(|| ResourceGroup::of(subscription, group))
    }

    /// The resource groups of a subscription, or only the named one.
    pub(crate) fn resource_groups(
        &self,
        subscription: &str,
        group: Option<&str>,
    ) -> Vec<&ResourceGroup> {
        let matches = |vms: &&ResourceGroup| {
            vms.subscription.eq_ignore_ascii_case(subscription)
                && group.is_none_or(|group| vms.group.eq_ignore_ascii_case(group))
        };
        self.groups.values().filter(matches).collect()
    }
}

impl Shared {
    /// Counts a request and returns the fault for its kind.
    pub(crate) fn record(&self, kind: RequestKind) -> Option<AzureFault> {
        let mut state = self.state.lock();
        *state.counts.entry(kind).or_default() += 1;
        state.request_times.push((kind, tokio::time::Instant::now()));
        if state.is_closed {
            return Some(AzureFault::Disconnect);
        }
        if let Some(AzureFault::Transient(status, left)) = state.faults.get_mut(&kind) {
            let (status, was_last) = (*status, *left <= 1);
            *left = left.saturating_sub(1);
            if was_last {
                state.faults.remove(&kind);
            }
            return Some(AzureFault::Status(status, "Passing"));
        }
        state.faults.get(&kind).cloned()
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.state.lock())
    }
}

/// Records a request that must not have come here, and rejects it.
async fn foreign_host(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    shared.record(RequestKind::Foreign);
    let headers = request.headers().keys().map(ToString::to_string).collect::<Vec<_>>();
    let what = format!("{} {}", request.uri(), headers.join(" "));
    shared.with(|state| state.foreign_requests.push(what));
    manager::error_response(404, "NotFound", "no such host")
}
