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
mod tokens;
mod world;

pub use world::{GROUP, Interface, Machine, SUBSCRIPTION, ScaleSet, World};

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
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
    MachinesOfGraph,
    /// A token of an application.
    Login,
    /// A token of a machine.
    Metadata,
    /// Whatever came to a host that has nothing to do with it.
    Foreign,
}

/// What is wrong.
#[derive(Debug, Clone)]
pub enum Fault {
    /// It answers with a status and a code.
    Status(u16, &'static str),
    /// It was asked too often, and says after how many seconds it may be asked again.
    Throttled(u64),
    /// It is being updated, or fails, this many times: with this status.
    Passing(u16, usize),
    /// The body is this.
    Body(String),
    /// It takes this long to answer.
    Slow(Duration),
    /// There is nothing in the list.
    Empty,
    /// It ends the connection.
    Cut,
    /// The next page is said to be at a foreign host.
    ForeignNext,
    /// The next page is said to be at another port of the same host.
    OtherPort,
    /// It says that little is left to ask.
    LittleLeft,
    /// It takes no token, and says that it is so many minutes later than it is here.
    Later(i64),
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
type AfterPage = Box<dyn FnOnce(&mut World) + Send>;

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
    worlds: BTreeMap<(String, String), World>,
    pub(crate) faults: BTreeMap<Kind, Fault>,
    pub(crate) counts: BTreeMap<Kind, usize>,
    pub(crate) mixes_case: bool,
    pub(crate) page_size: usize,
    pub(crate) after_page: BTreeMap<Kind, AfterPage>,
    pub(crate) tokens: tokens::Tokens,
    pub(crate) leaked: Vec<String>,
    pub(crate) asked_at: Vec<(Kind, tokio::time::Instant)>,
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
        inner.world(SUBSCRIPTION, GROUP);
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
            serve(foreign, with(router().fallback(stranger))),
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
    pub fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        self.change_in(SUBSCRIPTION, GROUP, change)
    }

    /// Changes what there is in a resource group, which is there from now on.
    pub fn change_in<T>(
        &self,
        subscription: &str,
        group: &str,
        change: impl FnOnce(&mut World) -> T,
    ) -> T {
        change(self.shared.state.lock().world(subscription, group))
    }

    /// From now on it is wrong like this about what is asked; none for nothing wrong.
    pub fn be(&self, kind: Kind, fault: impl Into<Option<Fault>>) {
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
    pub fn page(&self, size: usize) {
        self.shared.state.lock().page_size = size;
    }

    /// After the next page of this kind, this happens.
    pub fn after_page(&self, kind: Kind, change: impl FnOnce(&mut World) + Send + 'static) {
        self.shared.state.lock().after_page.insert(kind, Box::new(change));
    }

    /// How often this was asked.
    pub fn count(&self, kind: Kind) -> usize {
        self.shared.state.lock().counts.get(&kind).copied().unwrap_or(0)
    }

    /// How often the Resource Manager was asked.
    pub fn calls(&self) -> usize {
        let counts = self.shared.state.lock().counts.clone();
        let of_tokens = [Kind::Login, Kind::Metadata, Kind::Foreign];
        counts.iter().filter(|(kind, _)| !of_tokens.contains(kind)).map(|(_, count)| count).sum()
    }

    /// When what was asked, by the clock of the tests.
    pub fn asked_at(&self) -> Vec<(Kind, tokio::time::Instant)> {
        self.shared.state.lock().asked_at.clone()
    }

    /// What came to hosts that have nothing to do with it.
    pub fn leaked(&self) -> Vec<String> {
        self.shared.state.lock().leaked.clone()
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
    pub fn token_life(&self, life: Duration) {
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
    pub(crate) fn world(&mut self, subscription: &str, group: &str) -> &mut World {
        let key = (subscription.to_lowercase(), group.to_lowercase());
        self.worlds.entry(key).or_insert_with(|| World::of(subscription, group))
    }

    /// What there is in a subscription; in one resource group alone where it is named.
    pub(crate) fn worlds(&self, subscription: &str, group: Option<&str>) -> Vec<&World> {
        let is_it = |world: &&World| {
            world.subscription.eq_ignore_ascii_case(subscription)
                && group.is_none_or(|group| world.group.eq_ignore_ascii_case(group))
        };
        self.worlds.values().filter(is_it).collect()
    }
}

impl Shared {
    /// Notes what was asked, and says what is wrong about it.
    pub(crate) fn note(&self, kind: Kind) -> Option<Fault> {
        let mut state = self.state.lock();
        *state.counts.entry(kind).or_default() += 1;
        state.asked_at.push((kind, tokio::time::Instant::now()));
        if state.is_closed {
            return Some(Fault::Cut);
        }
        if let Some(Fault::Passing(status, left)) = state.faults.get_mut(&kind) {
            let (status, was_last) = (*status, *left <= 1);
            *left = left.saturating_sub(1);
            if was_last {
                state.faults.remove(&kind);
            }
            return Some(Fault::Status(status, "Passing"));
        }
        state.faults.get(&kind).cloned()
    }

    pub(crate) fn with<T>(&self, look: impl FnOnce(&mut Inner) -> T) -> T {
        look(&mut self.state.lock())
    }
}

/// Nobody has any business here.
async fn stranger(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    shared.note(Kind::Foreign);
    let headers = request.headers().keys().map(ToString::to_string).collect::<Vec<_>>();
    let what = format!("{} {}", request.uri(), headers.join(" "));
    shared.with(|state| state.leaked.push(what));
    manager::refusal(404, "NotFound", "nobody is here")
}
