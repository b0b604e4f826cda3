//! The reconciler: one task that makes what every proxy has follow from what is known.
//!
//! It is level-triggered: what changed is only told as "look again", at the policy in force, the
//! register, the certificates, and the clients to whom something happened; what could not be settled is
//! looked at again at every pass. The first change is acted on at once; those that come in a burst are
//! acted on together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    Finding, Inputs, JoinRecord, Mesh, MeshSpecification, Mode, Proxy, ProxyId, Snapshot,
    TcpAccesses,
};
use ironmesh_cert::tls::{TlsError, server_config};
use ironmesh_cert::{Authority, ServiceCertificates};
use ironmesh_config::Settings;
use ironmesh_providers::discover;
use ironmesh_store::Store;
use ironmesh_xds_compile::{Compiled, Compiler};
use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::Node;
use jiff::Timestamp;
use parking_lot::Mutex;
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::admission::statement;
use super::policy_source::PolicyState;
use super::register::Register;
use crate::exit::chain;

/// How long a burst of changes settles after one was acted on.
const SETTLE: Duration = Duration::from_millis(20);

/// How often the clock is looked at, for what is due by it. Short, because the wall clock may jump.
const TICK: Duration = Duration::from_secs(30);

/// What the reconciler tells the rest of the process.
#[derive(Debug, Clone)]
pub(crate) struct Outlook {
    /// Whether there is something to serve.
    pub(crate) ready: watch::Receiver<bool>,
    /// The TLS of the xDS listener.
    pub(crate) tls: watch::Receiver<Arc<ServerConfig>>,
    /// What is wrong with the mesh as a whole.
    pub(crate) mesh_findings: watch::Receiver<Vec<Finding>>,
    /// What is wrong with what each proxy asks for.
    pub(crate) findings: watch::Receiver<BTreeMap<ProxyId, Vec<Finding>>>,
}

pub(crate) struct Reconciler {
    mesh: Mesh,
    mode: Mode,
    service_lifetime: Duration,
    store: Arc<Store>,
    authority: Arc<Mutex<Authority>>,
    certificates: ServiceCertificates,
    register: Arc<Register>,
    policy: watch::Receiver<PolicyState>,
    hub: Arc<Hub>,

    ready: watch::Sender<bool>,
    tls: watch::Sender<Arc<ServerConfig>>,
    tls_renew_at: Timestamp,
    mesh_findings: watch::Sender<Vec<Finding>>,
    findings: watch::Sender<BTreeMap<ProxyId, Vec<Finding>>>,

    /// What the compiler was made from, and the generation of the register then.
    inputs: Option<(Arc<MeshSpecification>, Vec<JoinRecord>)>,
    generation: watch::Receiver<u64>,
    /// The clients that are connected, and what each last said of itself.
    connected: BTreeMap<ClientKey, Node>,
    compiler: Option<Compiler>,
    /// Who may connect to TCP service ports, as it was compiled last.
    tcp_accesses: TcpAccesses,
    /// When the clock is looked at next.
    next_tick: Instant,
    /// What each connected client was last given.
    given: BTreeMap<ClientKey, Given>,
    /// Those of whom it is not known yet that they have it in force.
    undecided: BTreeSet<ClientKey>,
}

/// What a client was given, and what it had said of itself then.
struct Given {
    proxy: Proxy,
    compiled: Compiled,
}

impl Reconciler {
    #[expect(clippy::too_many_arguments, reason = "it is where everything comes together")]
    pub(crate) fn new(
        mesh: Mesh,
        settings: &Settings,
        store: Arc<Store>,
        authority: Arc<Mutex<Authority>>,
        certificates: ServiceCertificates,
        register: Arc<Register>,
        policy: watch::Receiver<PolicyState>,
        hub: Arc<Hub>,
    ) -> anyhow::Result<(Self, Outlook)> {
        let (config, tls_renew_at) = xds_tls(&authority.lock(), Timestamp::now())?;
        let (ready, tls) = (watch::Sender::new(false), watch::Sender::new(config));
        let (mesh_findings, findings) = (watch::Sender::default(), watch::Sender::default());
        let outlook = Outlook {
            ready: ready.subscribe(),
            tls: tls.subscribe(),
            mesh_findings: mesh_findings.subscribe(),
            findings: findings.subscribe(),
        };
        let reconciler = Self {
            generation: register.generation(),
            connected: BTreeMap::new(),
            tcp_accesses: store.tcp_accesses()?,
            mesh,
            mode: settings.mode,
            service_lifetime: settings.certificates.service_lifetime,
            store,
            authority,
            certificates,
            register,
            policy,
            hub,
            ready,
            tls,
            tls_renew_at,
            mesh_findings,
            findings,
            inputs: None,
            compiler: None,
            next_tick: Instant::now(),
            given: BTreeMap::new(),
            undecided: BTreeSet::new(),
        };
        Ok((reconciler, outlook))
    }

    /// Reconciles until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut clients = self.hub.changes();
        let (mut policy, mut generation) = (self.policy.clone(), self.generation.clone());
        loop {
            clients.mark_unchanged();
            policy.mark_unchanged();
            generation.mark_unchanged();
            let settled = Instant::now() + SETTLE;
            // It compiles and may write to the store: other tasks go on on other threads.
            tokio::task::block_in_place(|| self.reconcile(Timestamp::now()));
            tokio::select! {
                // At the end of the process the sources go too: that is no failure of theirs.
                biased;
                () = shutdown.cancelled() => return Ok(()),
                changed = policy.changed() => changed?,
                changed = generation.changed() => changed?,
                changed = clients.changed() => changed?,
                () = sleep_until(self.next_tick) => {}
            }
            sleep_until(settled).await;
        }
    }

    fn reconcile(&mut self, now: Timestamp) {
        // By the clock and not by what woke us: a client that answers without end wakes us first.
        let is_tick = Instant::now() >= self.next_tick;
        if is_tick {
            self.next_tick = Instant::now() + TICK;
            self.renew_own_certificates(now);
        }
        let Some(specification) = self.policy.borrow().specification.clone() else { return };
        let clients = self.hub.take_changed();
        for (client, status) in &clients {
            if status.streams > 0 {
                self.connected.insert(Arc::clone(client), status.node.clone());
            } else {
                self.connected.remove(client);
                self.given.remove(client);
                self.undecided.remove(client);
            }
        }
        if self.renew_compiler(&specification, now, is_tick) {
            let everyone: Vec<_> = self.connected.keys().cloned().collect();
            self.publish(everyone.iter(), true);
        } else {
            self.publish(clients.iter().map(|(client, _)| client), false);
        }
        self.record_participation();
        self.ready.send_if_modified(|ready| !std::mem::replace(ready, true));
    }

    /// Makes a compiler for what is known now; says whether it differs from what was known before.
    fn renew_compiler(
        &mut self,
        specification: &Arc<MeshSpecification>,
        now: Timestamp,
        is_tick: bool,
    ) -> bool {
        let same_policy =
            self.inputs.as_ref().is_some_and(|(old, _)| Arc::ptr_eq(old, specification));
        let same_register = !self.generation.has_changed().unwrap_or(false);
        if same_policy && same_register && !is_tick {
            return false;
        }
        self.generation.mark_unchanged();
        let records = self.register.records_in_use(now);
        let same_certificates = !self.renew_service_certificates(specification, &records, now);
        let same_records = self.inputs.as_ref().is_some_and(|(_, old)| are_alike(old, &records));
        if same_policy && same_records && same_certificates {
            return false;
        }
        let snapshot = Snapshot::assemble(Inputs {
            mesh: self.mesh.clone(),
            mode: self.mode,
            specification: Arc::clone(specification),
            discovered: &discover(specification, &records),
            proxies: &records,
            certificates: self.certificates.current(),
            trust_bundle: Arc::new(self.authority.lock().trust_bundle()),
            tcp_accesses: &self.tcp_accesses,
        });
        self.keep_tcp_accesses(&snapshot.tcp_accesses);
        self.mesh_findings.send_if_modified(|told| {
            for finding in snapshot.findings.iter().filter(|finding| !told.contains(finding)) {
                tracing::warn!("{finding}");
            }
            let is_news = *told != snapshot.findings;
            told.clone_from(&snapshot.findings);
            is_news
        });
        self.compiler = Some(Compiler::new(Arc::new(snapshot)));
        self.inputs = Some((Arc::clone(specification), records));
        true
    }

    /// Keeps who may connect to TCP service ports before it comes into force: after a restart a
    /// withdrawal that was carried out must not look like a new one, nor a new one like none.
    fn keep_tcp_accesses(&mut self, accesses: &TcpAccesses) {
        if self.tcp_accesses == *accesses {
            return;
        }
        if let Err(error) = self.store.put_tcp_accesses(accesses) {
            tracing::error!(error = chain(&error), "cannot keep who may connect to TCP ports");
        }
        self.tcp_accesses = accesses.clone();
    }

    /// Gives clients what they are to have. Where not `everything` may have changed, only to those
    /// who have come or say something else of themselves.
    fn publish<'a>(&mut self, clients: impl Iterator<Item = &'a ClientKey>, everything: bool) {
        let mut told = Vec::new();
        for client in clients {
            let Some((proxy, compiler)) = self.proxy(client).zip(self.compiler.as_mut()) else {
                continue;
            };
            let old = self.given.get(client);
            let published = self.hub.published(client);
            let is_served = old.is_some_and(|given| given.proxy.statement == proxy.statement)
                && published.is_some();
            if is_served && !everything {
                continue;
            }
            let mut compiled = compiler.compile(&proxy);
            if let Some(old) = old {
                compiled.resources = compiled.resources.sharing_with(&old.compiled.resources);
            }
            for finding in &compiled.findings {
                if !old.is_some_and(|old| old.compiled.findings.contains(finding)) {
                    tracing::warn!(%client, "{finding}");
                }
            }
            if !published.is_some_and(|published| published.is_same_as(&compiled.resources)) {
                self.hub.publish(client, compiled.resources.clone());
            }
            self.undecided.insert(Arc::clone(client));
            told.push((proxy.record.id, compiled.findings.clone()));
            self.given.insert(Arc::clone(client), Given { proxy, compiled });
        }
        self.findings.send_if_modified(|all| {
            let mut is_news = false;
            for (id, findings) in told {
                let old = if findings.is_empty() {
                    all.remove(&id)
                } else {
                    all.insert(id, findings.clone())
                };
                is_news |= old.unwrap_or_default() != findings;
            }
            is_news
        });
    }

    /// A connected client as the compiler sees it.
    fn proxy(&self, client: &ClientKey) -> Option<Proxy> {
        let node = self.connected.get(client)?;
        let record = self.register.get(client.parse().ok()?)?;
        // Admission has let in no other than well-formed ones.
        Some(Proxy { record, statement: statement(node).ok()? })
    }

    /// Proxies that have in force what they were given take part with it, from now on and over
    /// restarts. What they serve no longer they take part with no longer.
    fn record_participation(&mut self) {
        let (hub, register, given) = (&self.hub, &self.register, &self.given);
        self.undecided.retain(|client| {
            let Some(given) = given.get(client) else { return false };
            let (compiled, id) = (&given.compiled, given.proxy.record.id);
            let is_in_force = !compiled.takes_part_with.is_empty()
                && hub.has_all(client, &compiled.takes_part_with);
            let kept = if is_in_force {
                register.participates(id, &compiled.serves)
            } else {
                register.participates_at_most(id, &compiled.serves)
            };
            if let Err(error) = &kept {
                tracing::error!(%client, error = chain(error), "cannot keep that a proxy takes part");
            }
            !(is_in_force && kept.is_ok())
        });
    }

    fn renew_service_certificates(
        &mut self,
        specification: &MeshSpecification,
        records: &[JoinRecord],
        now: Timestamp,
    ) -> bool {
        let accounts = Snapshot::accounts_served(specification, records);
        let authority = self.authority.lock();
        let ensured = self.certificates.ensure(&accounts, &authority, self.service_lifetime, now);
        match ensured {
            Ok(ensured) => {
                for (account, error) in &ensured.failures {
                    tracing::error!(%account, error = chain(error), "cannot renew a service certificate");
                }
                ensured.changed
            }
            Err(error) => {
                tracing::error!(error = chain(&error), "cannot renew the service certificates");
                false
            }
        }
    }

    /// Renews the intermediate of the authority and the certificate of the xDS listener, when due.
    fn renew_own_certificates(&mut self, now: Timestamp) {
        let mut authority = self.authority.lock();
        if let Err(error) = authority.renew_intermediate(&*self.store, now) {
            tracing::error!(error = chain(&error), "cannot renew the intermediate certificate");
        }
        if now < self.tls_renew_at {
            return;
        }
        match xds_tls(&authority, now) {
            Ok((config, renew_at)) => {
                self.tls.send_replace(config);
                self.tls_renew_at = renew_at;
            }
            Err(error) => {
                tracing::error!(error = %format!("{error:#}"), "cannot renew the control plane's certificate");
            }
        }
    }
}

/// Whether two states of the register compile to the same. When a certificate was claimed and when it
/// ends is nothing that a proxy is sent.
fn are_alike(old: &[JoinRecord], new: &[JoinRecord]) -> bool {
    let alike = |(old, new): (&JoinRecord, &JoinRecord)| {
        old.id == new.id
            && old.services == new.services
            && old.mesh_address == new.mesh_address
            && old.participation == new.participation
    };
    old.len() == new.len() && old.iter().zip(new).all(alike)
}

/// TLS for the xDS listener with a new certificate, and when that is to be replaced.
fn xds_tls(
    authority: &Authority,
    now: Timestamp,
) -> anyhow::Result<(Arc<ServerConfig>, Timestamp)> {
    let certificate = authority.issue_control_plane_certificate(now)?;
    let config: Result<_, TlsError> = server_config(&certificate, &authority.trust_bundle());
    Ok((config?, certificate.renew_at))
}

#[cfg(test)]
mod tests;
