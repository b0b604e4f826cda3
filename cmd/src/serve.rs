//! `ironmesh serve`: the control plane.
//!
//! Here the rooms are wired, one direction only: the policy folder, the register of proxies and the
//! certificates flow into one reconciler, which builds the snapshot, compiles it and publishes what
//! each proxy is to have; the xDS engine carries it out and tells how far each has come.

mod admission;
mod audit;
mod control_plane;
mod log;
mod metrics;
mod open_files;
mod policy_source;
mod providers;
mod reconciler;
mod register;
mod signals;
mod state_watch;
mod statement;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, bail};
use ironmesh_admin::{bind_socket, check_socket_path, serve_reads, serve_socket};
use ironmesh_catalog::{CertificateStore, Mesh};
use ironmesh_cert::{Authority, ServiceCertificates};
use ironmesh_config::{EtcdPolicy, PolicyPlace, Settings, load_folder};
use ironmesh_store::{KeyEncryptionKey, Store};
use ironmesh_xds_server::{Hub, Limits};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::{Output, ServeArguments};
use crate::exit::{self, Answered, chain};
use crate::places::Places;
pub(crate) use admission::OLDEST_ENVOY;
use admission::ProxyAdmission;
use audit::Audit;
use control_plane::{Planning, RunningControlPlane};
use policy_source::{PolicySource, Source};
use providers::endpoints_options;
use reconciler::Reconciler;
use register::Register;
use signals::Signals;
use state_watch::StateWatch;

/// Runs the control plane until it is told to stop. With JSON as output, the reason of a failure is a line of the
/// log like all others.
pub(crate) async fn serve(arguments: &ServeArguments, output: Output) -> anyhow::Result<()> {
    log::init(output);
    let result = Box::pin(run(arguments)).await;
    match (output, result) {
        (Output::Json, Err(error)) => {
            log::write_failure(&chain(error.as_ref()));
            Err(Answered(exit::number(&error)).into())
        }
        (_, result) => result,
    }
}

async fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    // From the first moment on, a signal ends us in good order.
    let signals = Signals::install()?;
    let mut places = Places::find(&arguments.config)?;
    if let Some(policy) = &arguments.policy {
        places.policy = PolicyPlace::Folder(policy.clone());
    }
    let settings = &places.settings;

    let limits = Limits { connection_age: settings.xds.max_connection_age, ..Limits::default() };
    open_files::raise_limit(&limits);

    // What may be refused comes before anything is written: a failed first start leaves no state.
    check_socket_path(&places.admin_socket())?;
    let source = match &places.policy {
        PolicyPlace::Folder(path) => {
            if let (Err(error), false) = (load_folder(path), Store::database_exists(&places.state))
            {
                return Err(error.into());
            }
            Source::folder(path.clone())
        }
        PolicyPlace::Etcd(etcd) => Source::etcd(EtcdPolicy::open(etcd.clone())?),
    };
    let xds_listener = bind(settings.listen.xds, "xDS", "listen.xds")?;
    let admin_listener = bind(settings.listen.admin, "the admin API", "listen.admin")?;
    let store = Arc::new(open_store(&places)?);
    let mesh = fixed_mesh(&store, settings)?;
    let socket = bind_socket(&places.admin_socket())?;

    let now = Timestamp::now();
    let is_new = store.authority()?.is_none();
    let authority = Authority::open(&*store, &mesh.trust_domain, now)?;
    if is_new {
        tracing::warn!(
            state = %places.state.display(),
            "a new certification authority was created: proxies that were enrolled with a different \
             state folder reject it"
        );
    }
    let certificate_store: Arc<dyn CertificateStore> = Arc::<Store>::clone(&store);
    let certificates = ServiceCertificates::open(certificate_store)?;
    let register = Arc::new(Register::open(Arc::clone(&store), now)?);
    let authority = Arc::new(Mutex::new(authority));
    let (policy_source, rollbacks, policy) =
        PolicySource::open(source, Arc::clone(&store), settings.removal_hold).await?;
    let hub = Arc::new(Hub::default());
    let (endpoints, group) = endpoints_options(&places, &arguments.without)?;
    let (reconciler, feeds, acceptances) = Reconciler::new(
        mesh.clone(),
        settings,
        Arc::clone(&store),
        Arc::clone(&authority),
        certificates,
        Arc::clone(&register),
        policy.clone(),
        endpoints,
        Arc::clone(&hub),
    )?;
    let (state_watch, state_findings) = StateWatch::new(Arc::clone(&store), Arc::clone(&hub));
    let audit = Arc::new(Audit::new(mesh.trust_domain.clone(), feeds.snapshot.clone()));
    let standing_findings = settings.standing_findings(&places.policy);
    let control_plane = Arc::new(RunningControlPlane {
        mesh: mesh.clone(),
        authority,
        register: Arc::clone(&register),
        policy: policy.clone(),
        rollbacks,
        acceptances,
        store,
        feeds: feeds.clone(),
        state_findings,
        hub: Arc::clone(&hub),
        audit: Arc::clone(&audit),
        xds_address: xds_listener.local_addr()?,
        advertise: settings.advertise.clone(),
        planning: Planning::default(),
        standing_findings: standing_findings.iter().map(Into::into).collect(),
    });

    for finding in &standing_findings {
        tracing::warn!("{finding}");
    }
    let shutdown = CancellationToken::new();
    let mut tasks = JoinSet::new();
    let admission = Arc::new(ProxyAdmission::new(mesh.trust_domain.clone(), register, audit));
    tasks.spawn(policy_source.run(shutdown.clone()));
    tasks.spawn(reconciler.run(shutdown.clone()));
    tasks.spawn(state_watch.run(shutdown.clone()));
    if let Some(group) = group {
        tasks.spawn(group.run(shutdown.clone()));
    }
    let (reads, all) = (Arc::clone(&control_plane), control_plane);
    let names: Vec<_> = settings.advertise.iter().map(|(host, _)| host.clone()).collect();
    let port = async { Ok(serve_reads(admin_listener, names, reads).await?) };
    tasks.spawn(until(shutdown.clone(), port));
    tasks.spawn(until(shutdown.clone(), async { Ok(serve_socket(socket, all).await?) }));
    tasks.spawn(serve_xds(xds_listener, feeds, hub, admission, limits, shutdown.clone()));
    tracing::info!(
        mesh = %settings.mesh,
        trust_domain = %mesh.trust_domain,
        mode = %settings.mode,
        state = %places.state.display(),
        policy = policy.borrow().view.source,
        xds = %settings.listen.xds,
        admin = %settings.listen.admin,
        "the control plane has started"
    );
    supervise(tasks, signals, shutdown).await
}

/// Waits until a signal or a failed task ends everything.
async fn supervise(
    mut tasks: JoinSet<anyhow::Result<()>>,
    mut signals: Signals,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut signal = None;
    let mut result = tokio::select! {
        name = signals.stop() => {
            signal = Some(name);
            Ok(())
        }
        ended = tasks.join_next() => match ended {
            Some(Ok(Err(error))) => Err(error),
            Some(Err(panicked)) => Err(panicked.into()),
            _ => Err(anyhow::anyhow!("a part of the control plane ended by itself")),
        },
    };
    tracing::info!(signal, "the control plane is stopping; proxies run on with what they have");
    shutdown.cancel();
    loop {
        let ended = tokio::select! {
            ended = tasks.join_next() => ended,
            _ = signals.stop() => bail!("told to stop at once, before all was in order"),
        };
        let Some(ended) = ended else { return result };
        result = result.and_then(|()| ended.unwrap_or_else(|panicked| Err(panicked.into())));
    }
}

/// Serves xDS as soon as there is something to serve (invariant 11).
async fn serve_xds(
    listener: TcpListener,
    mut feeds: reconciler::StatusFeeds,
    hub: Arc<Hub>,
    admission: Arc<ProxyAdmission>,
    limits: Limits,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    tokio::select! {
        // At the end of the process the reconciler, which says so, may go first.
        biased;
        () = shutdown.cancelled() => return Ok(()),
        ready = feeds.ready.wait_for(|ready| *ready) => drop(ready?),
    }
    tracing::info!(address = %listener.local_addr()?, "xDS is served");
    ironmesh_xds_server::serve(listener, feeds.tls, hub, admission, limits, shutdown).await;
    Ok(())
}

async fn until(
    shutdown: CancellationToken,
    task: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        result = task => result,
        () = shutdown.cancelled() => Ok(()),
    }
}

/// How many connections may wait to be accepted; the system allows as many as its `somaxconn`. When all
/// proxies connect at once, those that find no room are not told so: they try again after one second, then
/// two, four and so on, up to a minute.
const BACKLOG: u32 = 65_535;

fn bind(address: SocketAddr, what: &str, setting: &str) -> anyhow::Result<TcpListener> {
    listen(address).with_context(|| {
        format!("cannot listen on {address} for {what}: stop what listens there, or set `{setting}` in the settings")
    })
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // What was closed a moment ago does not keep the address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

fn open_store(places: &Places) -> anyhow::Result<Store> {
    let key = KeyEncryptionKey::load_or_create(
        &places.key_encryption_key,
        Store::database_exists(&places.state),
    )?;
    Ok(Store::open(&places.state, key)?)
}

/// The names of the mesh, which are fixed at its first start: they are in every certificate.
fn fixed_mesh(store: &Store, settings: &Settings) -> anyhow::Result<Mesh> {
    let (domain, trust_domain) = (settings.domain.clone(), settings.trust_domain.clone());
    match store.mesh()? {
        None => store.put_mesh(&domain, &trust_domain)?,
        Some(fixed) if fixed == (domain.clone(), trust_domain.clone()) => {}
        Some((old_domain, old_trust_domain)) => bail!(
            "the mesh in this state folder has the domain `{old_domain}` and the trust domain \
             `{old_trust_domain}`, and the settings say `{domain}` and `{trust_domain}`: these are \
             fixed at the first start; mend the settings, or set `state` to a new folder"
        ),
    }
    Ok(Mesh { domain, trust_domain })
}
