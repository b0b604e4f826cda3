//! A fake Azure, as strict as the real one: its Resource Manager (compute, network, Resource Graph), who gives
//! out tokens, and the metadata service of a machine.
//!
//! It answers with the official examples and what tests have put in them, refuses what Azure refuses, counts
//! what it is asked, and misbehaves on command.

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

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// Which scale sets there are.
    ScaleSets,
    /// The machines of a uniform scale set.
    UniformMachines,
    /// Their network interfaces.
    UniformInterfaces,
    /// The machines of a flexible scale set.
    FlexibleMachines,
    /// All machines that are in no uniform scale set.
    Machines,
    /// Whether they run.
    States,
    /// Their network interfaces.
    Interfaces,
    /// Resource Graph.
    Graph,
    /// The machines of a scale set, of Resource Graph in its provider's stead.
    GraphMachines,
    /// A token of an application.
    Login,
    /// A token of a machine.
    Metadata,
    /// Whatever came to a host that has nothing to do with it.
    Foreign,
}

/// What is wrong.
#[derive(Debug, Clone)]
pub enum AzureFault {
    /// It answers with a status and a code.
    Status(u16, &'static str),
    /// It was asked too often, and says after how many seconds it may be asked again.
    Throttled(u64),
    /// It is being updated, or fails, this many times: with this status.
    Transient(u16, usize),
    /// The body is this.
    Body(String),
    /// It takes this long to answer.
    Slow(Duration),
    /// There is nothing in the list.
    Empty,
    /// It ends the connection.
    Disconnect,
    /// The next page is said to be at a foreign host.
    NextPageAtForeignHost,
    /// The next page is said to be at another port of the same host.
    NextPageAtOtherPort,
    /// It says that little is left to ask.
    LowQuota,
    /// It takes no token, and says that it is so many minutes later than it is here.
    ClockAhead(i64),
}

/// The fake.
#[derive(Debug)]
pub struct FakeAzure {
    shared: Arc<Shared>,
    manager: SocketAddr,
    login: SocketAddr,
    metadata: SocketAddr,
    _loopback: Loopback,
    _tasks: Vec<AbortOnDropHandle<()>>,
}

/// What is done to the world after a page was answered.
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
    /// What there is in each resource group, by its subscription and name in lower case.
    groups: BTreeMap<(String, String), ResourceGroup>,
    pub(crate) faults: BTreeMap<RequestKind, AzureFault>,
    pub(crate) counts: BTreeMap<RequestKind, usize>,
    pub(crate) mixes_case: bool,
    pub(crate) page_size: usize,
    pub(crate) after_page: BTreeMap<RequestKind, AfterPage>,
    pub(crate) tokens: tokens::Tokens,
    pub(crate) foreign_requests: Vec<String>,
    pub(crate) request_times: Vec<(RequestKind, tokio::time::Instant)>,
    /// It is gone: connections that there are still are cut.
    pub(crate) is_closed: bool,
}

impl FakeAzure {
    /// An empty one.
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

    /// The Resource Manager.
    pub fn manager(&self) -> String {
        format!("http://{}", self.manager)
    }

    /// Where applications get tokens.
    pub fn login(&self) -> String {
        format!("http://{}", self.login)
    }

    /// Where the machine gets tokens.
    pub fn metadata(&self) -> String {
        format!("http://{}", self.metadata)
    }

    /// Changes what there is.
    pub fn change<T>(&self, change: impl FnOnce(&mut ResourceGroup) -> T) -> T {
        self.change_in(SUBSCRIPTION, GROUP, change)
    }

    /// Changes what there is in a resource group, which is there from now on.
    pub fn change_in<T>(
        &self,
        subscription: &str,
        group: &str,
        change: impl FnOnce(&mut ResourceGroup) -> T,
    ) -> T {
        change(self.shared.state.lock().resource_group(subscription, group))
    }

    /// From now on it is wrong like this about what is asked; none for nothing wrong.
    pub fn set_fault(&self, kind: RequestKind, fault: impl Into<Option<AzureFault>>) {
        let mut state = self.shared.state.lock();
        match fault.into() {
            Some(fault) => drop(state.faults.insert(kind, fault)),
            None => drop(state.faults.remove(&kind)),
        }
    }

    /// From now on ids are told in whatever case.
    pub fn mix_case(&self) {
        self.shared.state.lock().mixes_case = true;
    }

    /// So many entries are on a page.
    pub fn set_page_size(&self, size: usize) {
        self.shared.state.lock().page_size = size;
    }

    /// After the next page of this kind, this happens.
    pub fn after_page(
        &self,
        kind: RequestKind,
        change: impl FnOnce(&mut ResourceGroup) + Send + 'static,
    ) {
        self.shared.state.lock().after_page.insert(kind, Box::new(change));
    }

    /// How often this was asked.
    pub fn count(&self, kind: RequestKind) -> usize {
        self.shared.state.lock().counts.get(&kind).copied().unwrap_or(0)
    }

    /// How often the Resource Manager was asked.
    pub fn calls(&self) -> usize {
        let counts = self.shared.state.lock().counts.clone();
        let of_tokens = [RequestKind::Login, RequestKind::Metadata, RequestKind::Foreign];
        counts.iter().filter(|(kind, _)| !of_tokens.contains(kind)).map(|(_, count)| count).sum()
    }

    /// When what was asked, by the clock of the tests.
    pub fn request_times(&self) -> Vec<(RequestKind, tokio::time::Instant)> {
        self.shared.state.lock().request_times.clone()
    }

    /// What came to hosts that have nothing to do with it.
    pub fn foreign_requests(&self) -> Vec<String> {
        self.shared.state.lock().foreign_requests.clone()
    }

    /// No token that was given out up to now is good any more.
    pub fn revoke_tokens(&self) {
        self.shared.state.lock().tokens.revoke();
    }

    /// Who asks may not do this any more, on this machine's resource group or subscription.
    pub fn deny(&self, action: &'static str) {
        self.shared.state.lock().tokens.denied.insert(action);
    }

    /// Who asks may do all again.
    pub fn deny_nothing(&self) {
        self.shared.state.lock().tokens.denied.clear();
    }

    /// Tokens live this long from now on.
    pub fn set_token_lifetime(&self, life: Duration) {
        self.shared.state.lock().tokens.life = life;
    }

    /// The secret of the application is this from now on.
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
    /// What there is in a resource group. It is made where there is none.
    pub(crate) fn resource_group(&mut self, subscription: &str, group: &str) -> &mut ResourceGroup {
        let key = (subscription.to_lowercase(), group.to_lowercase());
        self.groups.entry(key).or_insert_with(|| ResourceGroup::of(subscription, group))
    }

    /// What there is in a subscription; in one resource group alone where it is named.
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
    /// Notes what was asked, and says what is wrong about it.
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

/// Nobody has any business here.
async fn foreign_host(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    shared.record(RequestKind::Foreign);
    let headers = request.headers().keys().map(ToString::to_string).collect::<Vec<_>>();
    let what = format!("{} {}", request.uri(), headers.join(" "));
    shared.with(|state| state.foreign_requests.push(what));
    manager::error_response(404, "NotFound", "nobody is here")
}
