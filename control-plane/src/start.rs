//! Starts the control plane: opens the state, binds the ports and wires the tasks.

use std::collections::BTreeSet;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use ironmesh_admin::{
    AdminApi, ConnectionLosses, bind_group_socket, bind_socket, check_socket_path,
};
use ironmesh_catalog::{CertificateStore, Mesh, Provider};
use ironmesh_cert::{Authority, ServiceCertificates};
use ironmesh_config_settings::{PolicyLocation, ReloadableSettings, Settings};
use ironmesh_config_sources::{EtcdPolicy, load_folder};
use ironmesh_enrollment::{EnrollmentCounters, EnrollmentLimits, serve as serve_enrollment};
use ironmesh_store::{MeshState, Store};
use ironmesh_xds_server::{Hub, Limits};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::net::{TcpListener as TokioListener, TcpSocket};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admission::ProxyAdmission;
use crate::api::{ActiveSettings, Planning, RunningControlPlane};
use crate::audit::Audit;
use crate::change_traces;
use crate::enrollment::{
    Alarms, AttestationTrust, AzureJoins, MachineEnrollment, TokenTable, XdsAddresses,
};
use crate::events::Events;
use crate::health_discovery::HealthDiscovery;
use crate::health_table::HealthTable;
use crate::journal::{Journal, RecordedCertificates};
use crate::leave_table::LeaveTable;
use crate::log_level::{LogControl, LogLevel};
use crate::logins::Logins;
use crate::open_files;
use crate::operators::Operators;
use crate::peers::Peers;
use crate::policy_source::{PolicySource, Releases, Source};
use crate::providers::endpoints_options;
use crate::reconciler::Reconciler;
use crate::register::Register;
use crate::serving_table::ServingTable;
use crate::shared_changes::SharedChanges;
use crate::sidecars::{SERVERS, ServerContext, SidecarServers};
use crate::silences::SilenceTable;
use crate::single_addresses::SingleAddresses;
use crate::state_watch::{Replicas, Searches, StateWatch};
use crate::stores::{Stores, host_name};
use crate::traffic_table::TrafficTable;
use crate::transfer::Exporter;

/// The options of a control plane.
#[derive(Debug)]
pub struct Options {
    /// The settings file's content. Paths in it are absolute.
    pub settings: Settings,
    /// The settings file, if there is one.
    pub settings_file: Option<PathBuf>,
    /// The path of the state folder.
    pub state: PathBuf,
    /// The source of policy.
    pub policy: PolicyLocation,
    /// The file of the key-encryption key, which is created together with the state.
    pub key_encryption_key: PathBuf,
    /// The path of the admin socket.
    pub admin_socket: PathBuf,
    /// The providers for which the start does not wait.
    pub without: BTreeSet<Provider>,
    /// Whether a store in etcd counts that is older than what this control plane had.
    pub accepts_older_store: bool,
    /// The log of the process.
    pub log: Arc<dyn LogControl>,
}

/// A running control plane.
#[derive(Debug)]
pub struct Running {
    /// Its tasks, which run until the shutdown or until one of them fails.
    pub tasks: JoinSet<anyhow::Result<()>>,
    /// The heartbeat of the reconciler: a new value every 5 s or more often, unless a single pass takes longer or hangs.
    pub heartbeat: watch::Receiver<()>,
}

/// Starts the control plane, which runs until `shutdown` is cancelled. The newest value of `reloads` replaces the
/// reloadable part of the settings.
///
/// # Errors
///
/// Fails where the settings contradict the state, or where the state cannot be opened, a port not be bound or a
/// provider not be configured. A first start that fails leaves no state.
pub async fn start(
    options: &Options,
    reloads: watch::Receiver<ReloadableSettings>,
    shutdown: CancellationToken,
) -> anyhow::Result<Running> {
    let settings = &options.settings;
    let log_level = Arc::new(LogLevel::new(Arc::clone(&options.log), settings.log.level.clone()));
    let max_proxies = settings.xds.max_proxies;
    let max_proxies = max_proxies.map(|most| usize::try_from(most).unwrap_or(usize::MAX));
    let limits = Limits {
        connection_age: settings.max_connection_age(),
        clients: max_proxies,
        ..Limits::default()
    };
    open_files::raise_limit(&limits);

    // All checks that may fail come before the first write: a failed first start leaves no state.
    let (traces, trace_exporter) = change_traces::open(settings)?.unzip();
    check_socket_path(&options.admin_socket)?;
    let group_socket = match &settings.group_socket {
        Some(path) => {
            check_socket_path(path)?;
            Some(bind_group_socket(path)?)
        }
        None => None,
    };
    let source = match &options.policy {
        PolicyLocation::Folder(path) => {
            if let (Err(error), false) =
                (load_folder(path), Store::database_exists(&Stores::local_folder(options)))
            {
                return Err(error.into());
            }
            Source::folder(path.clone())
        }
        PolicyLocation::Etcd(etcd) => Source::etcd(EtcdPolicy::open(etcd.clone())?),
        PolicyLocation::Releases => Source::releases(Releases::of(&options.state)),
    };
    // Not tokio's: each server of sidecars has a handle of its own.
    let xds_listener: TcpListener = bind(settings.listen.xds, "xDS", "listen.xds")?.into_std()?;
    let enrollment_listener = bind(settings.listen.enrollment, "enrollment", "listen.enrollment")?;
    let admin_listener = bind(settings.listen.admin, "the admin API", "listen.admin")?;
    let api_listener = match settings.listen.api {
        Some(address) => Some(bind(address, "the operators' API", "listen.api")?),
        None => None,
    };
    let Stores { local: store, shared, etcd: etcd_store, exchange, export_key } =
        tokio::task::block_in_place(|| Stores::open(options))?;
    let exporter = Exporter {
        key: export_key,
        mesh: settings.mesh.to_string(),
        local: Arc::clone(&store),
        etcd: etcd_store.clone(),
    };
    let state = MeshState::new(Arc::clone(&shared));
    let mesh = fixed_mesh(&state, settings)?;
    let socket = bind_socket(&options.admin_socket)?;

    let now = Timestamp::now();
    let is_new = state.authority()?.is_none();
    let journal = Journal::new(Arc::clone(&state));
    let certificate_store: Arc<dyn CertificateStore> =
        Arc::new(RecordedCertificates { state: Arc::clone(&state), journal: journal.clone() });
    let authority = Authority::open(&*certificate_store, &mesh.trust_domain, now)?;
    if is_new {
        tracing::warn!(
            state = %options.state.display(),
            "created a new certificate authority: proxies enrolled with a different state folder reject it"
        );
    }
    let certificates = ServiceCertificates::open(Arc::clone(&certificate_store))?;
    let register = Arc::new(Register::open(Arc::clone(&shared), now)?);
    let operators = Arc::new(Operators::open(Arc::clone(&shared), mesh.trust_domain.clone())?);
    let logins = Arc::new(Logins::open(Arc::clone(&shared))?);
    let silences = Arc::new(SilenceTable::open(Arc::clone(&shared), now)?);
    let events = Arc::new(Events::open(Arc::clone(&state))?);
    let tokens = Arc::new(TokenTable::open(shared)?);
    let (leaves, serving) = <(Arc<LeaveTable>, Arc<ServingTable>)>::default();
    let (health, traffic) = <(Arc<HealthTable>, Arc<TrafficTable>)>::default();
    let (alarms, enrollment_counters) = <(Arc<Alarms>, Arc<EnrollmentCounters>)>::default();
    let api_losses = Arc::<ConnectionLosses>::default();
    let authority = Arc::new(Mutex::new(authority));
    let (mut policy_source, source_requests, policy) =
        PolicySource::open(source, Arc::clone(&store), settings.removal_hold).await?;
    policy_source.record_in(journal.clone());
    policy_source.follow_settings(reloads.clone());
    let hub = Arc::new(Hub::default());
    let (endpoints, azure, group) = endpoints_options(
        settings,
        &options.policy,
        etcd_store.as_deref(),
        options.without.clone(),
    )?;
    let shared_changes = Arc::<SharedChanges>::default();
    let (mut reconciler, feeds, acceptances) = Reconciler::new(
        mesh.clone(),
        settings,
        Arc::clone(&store),
        Arc::clone(&state),
        certificate_store,
        Arc::clone(&authority),
        certificates,
        Arc::clone(&register),
        Arc::clone(&leaves),
        Arc::clone(&serving),
        Arc::clone(&health),
        policy.clone(),
        endpoints,
        Arc::clone(&hub),
    )?;
    reconciler.follow_settings(reloads.clone());
    if let Some(traces) = &traces {
        reconciler.trace_changes(Arc::clone(traces));
    }
    let peers = Arc::<Peers>::default();
    if let Some(exchange) = &exchange {
        peers.exchange_by(exchange);
    }
    reconciler.follow_shared(Arc::clone(&shared_changes), Arc::clone(&peers));
    let single_addresses = Arc::<SingleAddresses>::default();
    let replicas = Replicas {
        hub: Arc::clone(&hub),
        peers: Arc::clone(&peers),
        register: Arc::clone(&register),
        single_addresses: Arc::clone(&single_addresses),
        max_proxies,
        searches: Searches::default(),
    };
    let (state_watch, state_findings) = StateWatch::new(
        Arc::clone(&store),
        etcd_store.zip(exchange.clone()),
        replicas,
        feeds.snapshot.clone(),
    );
    let local_outage = state_watch.outage_since();
    let audit = Arc::new(Audit::new(mesh.trust_domain.clone(), feeds.snapshot.clone()));
    let xds_addresses = XdsAddresses {
        listener: xds_listener.local_addr()?,
        advertise: settings.advertise.clone(),
    };
    let health_discovery =
        Arc::new(HealthDiscovery::new(Arc::clone(&health), feeds.snapshot.clone()));
    let log_level_task = Arc::clone(&log_level).run(reloads.clone(), shutdown.clone());
    let enrollment = Arc::new(MachineEnrollment {
        mesh: mesh.clone(),
        authority: Arc::clone(&authority),
        register: Arc::clone(&register),
        tokens: Arc::clone(&tokens),
        alarms: Arc::clone(&alarms),
        journal: journal.clone(),
        xds: xds_addresses.clone(),
        hub: Arc::clone(&hub),
        leaves: Arc::clone(&leaves),
        peers: Arc::clone(&peers),
        serving,
        health,
        traffic: Arc::clone(&traffic),
        snapshot: feeds.snapshot.clone(),
        convergence: feeds.convergence.clone(),
        policy: policy.clone(),
        settings: reloads.clone(),
        azure: AzureJoins {
            machines: azure,
            trust: AttestationTrust::new(&settings.azure),
            driver: settings.sidecar_class.clone(),
        },
        enrolling: Mutex::default(),
    });
    let risk_findings = settings.risk_findings(&options.policy);
    let trust_domain = mesh.trust_domain.clone();
    let admission = ProxyAdmission::new(
        trust_domain,
        Arc::clone(&register),
        Arc::clone(&audit),
        journal.clone(),
        Arc::clone(&alarms),
        Arc::clone(&health_discovery),
        single_addresses,
    );
    let context = ServerContext {
        listener: xds_listener,
        hub: Arc::clone(&hub),
        admission: Arc::new(admission),
        feeds: feeds.clone(),
        limits,
        shutdown: shutdown.clone(),
    };
    let (mut sidecars, mut servers) = (SidecarServers::default(), Vec::new());
    for (name, server) in SERVERS.rows() {
        let started = server.start(&context)?;
        sidecars.add(name, started.probes, started.debug);
        servers.push(started.task);
    }
    drop(context);
    let shared_audit = Arc::clone(&audit);
    let control_plane = Arc::new(RunningControlPlane {
        mesh: mesh.clone(),
        authority,
        register: Arc::clone(&register),
        leaves,
        peers: Arc::clone(&peers),
        policy: policy.clone(),
        source_requests,
        releases: matches!(options.policy, PolicyLocation::Releases)
            .then(|| Releases::of(&options.state)),
        acceptances,
        store,
        exporter,
        feeds: feeds.clone(),
        state_findings,
        local_outage,
        hub,
        audit,
        traffic,
        journal: journal.clone(),
        events: Arc::clone(&events),
        silences: Arc::clone(&silences),
        log_level,
        traces,
        xds_addresses,
        enrollment_address: enrollment_listener.local_addr()?,
        api_address: api_listener.as_ref().map(TokioListener::local_addr).transpose()?,
        operators: Arc::clone(&operators),
        logins: Arc::clone(&logins),
        tokens,
        alarms,
        enrollment_counters: Arc::clone(&enrollment_counters),
        api_losses: Arc::clone(&api_losses),
        health_discovery: Arc::clone(&health_discovery),
        sidecars,
        sidecar_class: settings.sidecar_class.clone(),
        planning: Planning::default(),
        settings: ActiveSettings::new(options, reloads),
        risk_findings: risk_findings.iter().map(Into::into).collect(),
    });

    for finding in &risk_findings {
        tracing::warn!("{finding}");
    }
    let mut tasks = JoinSet::new();
    tasks.spawn(journal.run(shutdown.clone()));
    tasks.spawn(register.follow(shutdown.clone()));
    tasks.spawn(operators.follow(shutdown.clone()));
    tasks.spawn(logins.follow(shutdown.clone()));
    tasks.spawn(silences.follow(shutdown.clone()));
    tasks.spawn(log_level_task);
    if let Some(exporter) = trace_exporter {
        let end = shutdown.clone();
        tasks.spawn(async {
            exporter.run(end).await;
            Ok(())
        });
    }
    tasks.spawn(events.follow_journal(shutdown.clone()));
    tasks.spawn(Arc::clone(&control_plane).observe(shutdown.clone()));
    tasks.spawn(policy_source.run(shutdown.clone()));
    tasks.spawn(reconciler.run(shutdown.clone()));
    tasks.spawn(state_watch.run(shutdown.clone()));
    tasks.spawn(health_discovery.follow(shutdown.clone()));
    if let Some(exchange) = exchange {
        let (convergence, end) = (feeds.convergence.clone(), shutdown.clone());
        tasks.spawn(peers.run(exchange, host_name(), shared_audit, convergence, end));
        tasks.spawn(shared_changes.follow(state, shutdown.clone()));
    }
    if let Some(group) = group {
        tasks.spawn(group.run(shutdown.clone()));
    }
    let api = AdminApi::new(control_plane);
    let names: Vec<_> = settings.advertise.iter().map(|(host, _)| host.clone()).collect();
    if let Some(listener) = api_listener {
        let (credentials, end) = (feeds.enrollment_credentials.clone(), shutdown.clone());
        let (names, losses) = (names.clone(), Arc::clone(&api_losses));
        let network = api.clone().serve_network(listener, credentials, names, losses, end);
        tasks.spawn(async {
            network.await;
            Ok(())
        });
    }
    let port = api.clone().serve_port(admin_listener, names);
    tasks.spawn(run_until(shutdown.clone(), async {
        port.await;
        Ok(())
    }));
    if let Some(socket) = group_socket {
        let group = api.clone().serve_group_socket(socket);
        tasks.spawn(run_until(shutdown.clone(), async {
            group.await;
            Ok(())
        }));
    }
    let socket = api.serve_socket(socket);
    tasks.spawn(run_until(shutdown.clone(), async { Ok(socket.await?) }));
    let (credentials, end) = (feeds.enrollment_credentials, shutdown.clone());
    tasks.spawn(async move {
        let (listener, limits) = (enrollment_listener, EnrollmentLimits::default());
        serve_enrollment(listener, credentials, enrollment, limits, enrollment_counters, end).await;
        Ok(())
    });
    for server in servers {
        tasks.spawn(server);
    }
    tracing::info!(
        mesh = %settings.mesh,
        trust_domain = %mesh.trust_domain,
        mode = %settings.mode,
        state = %options.state.display(),
        policy = policy.borrow().view.source,
        xds = %settings.listen.xds,
        enrollment = %settings.listen.enrollment,
        admin = %settings.listen.admin,
        api = settings.listen.api.map(tracing::field::display),
        "the control plane has started"
    );
    Ok(Running { tasks, heartbeat: feeds.heartbeat })
}

async fn run_until(
    shutdown: CancellationToken,
    task: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<()> {
    tokio::select! {
        result = task => result,
        () = shutdown.cancelled() => Ok(()),
    }
}

/// The most connections that may wait to be accepted; the system allows up to its `somaxconn`. When all proxies connect
/// at once, the kernel drops the rest silently: these retry after one second, then two, four and so on, up to a minute.
const BACKLOG: u32 = 65_535;

fn bind(address: SocketAddr, what: &str, setting: &str) -> anyhow::Result<TokioListener> {
    listen(address).with_context(|| {
        format!("cannot listen on {address} for {what}: stop what listens there, or set `{setting}` in the settings")
    })
}

fn listen(address: SocketAddr) -> io::Result<TokioListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A connection that was closed a moment ago does not block the address.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// The names of the mesh, which are fixed at its first start: every certificate contains them.
fn fixed_mesh(state: &MeshState, settings: &Settings) -> anyhow::Result<Mesh> {
    let (domain, trust_domain) = (settings.domain.clone(), settings.trust_domain.clone());
    match state.mesh()? {
        None => state.put_mesh(&domain, &trust_domain)?,
        Some(fixed) if fixed == (domain.clone(), trust_domain.clone()) => {}
        Some((old_domain, old_trust_domain)) => bail!(
            "the mesh in this store has the domain `{old_domain}` and the trust domain \
             `{old_trust_domain}`, and the settings set `{domain}` and `{trust_domain}`: these are \
             fixed at the first start; correct the settings, or begin a new mesh in a new state folder or prefix"
        ),
    }
    Ok(Mesh { domain, trust_domain })
}
