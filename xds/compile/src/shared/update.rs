//! Incremental compilation: what is compiled again between two snapshots, and which proxies that
//! affects.
//!
//! Endpoints take a short path, including those of lists in policy: a new assignment of a service
//! port is encoded once, and replaced in the views that contain it. Everything else is compiled again if it has read
//! something that changed, the pieces before those that contain them: a piece with another result is such a change itself.
//! A proxy without a changed read is not affected.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{ProxyId, ServiceAccount, ServiceName, ServicePort, Snapshot};
use ironmesh_xds_wire::{Resource, changed_names};

use super::{LocalizedEndpoints, Pieces, Scope, Shared};
use crate::mesh_view::keys;
use crate::reads::{ChangedReads, Read, Reads};
use crate::secret;

/// The proxies affected by a new snapshot. Others would compile to what they have.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// All proxies.
    pub all_proxies: bool,
    /// The proxies that must be compiled again: of all that were compiled, except forgotten ones.
    pub proxies: BTreeSet<ProxyId>,
    /// The service ports whose applications differ behind a proxy. Unless the proxy is affected otherwise, its
    /// clusters of these ports are all that differs for it ([`Compiler::renew_applications`]).
    ///
    /// [`Compiler::renew_applications`]: crate::Compiler::renew_applications
    pub applications: BTreeMap<ProxyId, Vec<ServicePort>>,
    /// The new endpoints of a service port, for one locality, with the accounts whose proxies have
    /// them in some locality ([`Compiler::endpoints_of`]). Unless these are affected otherwise, the
    /// endpoints of this port are all that differs for them.
    ///
    /// [`Compiler::endpoints_of`]: crate::Compiler::endpoints_of
    pub endpoints: Vec<(Arc<Resource>, BTreeSet<ServiceAccount>)>,
}

impl Shared {
    /// Moves to `snapshot`.
    pub(crate) fn update(&mut self, snapshot: Arc<Snapshot>) -> Changes {
        let next = Arc::new(self.mesh.next(snapshot));
        let before = std::mem::replace(&mut self.mesh, next);
        let (old, new) = (&*before.snapshot, Arc::clone(&self.mesh.snapshot));
        let mut changed = before.changed_reads(&self.mesh, &self.read_table);
        let mut changes = Changes::default();
        // The applications and the record of a proxy concern no other one.
        for (proxy, port) in keys(&old.local_endpoints, &new.local_endpoints) {
            // Ingress must not use the ports of applications.
            if has_ingress(&new, proxy) {
                changes.proxies.insert(proxy);
            } else {
                changes.applications.entry(proxy).or_default().push(port);
            }
        }
        changes.proxies.extend(new.proxies_with_other_services(old));
        self.update_secrets(old, &new);
        self.forget_other_orders(&changed);
        for port in keys(&old.endpoints, &new.endpoints) {
            changes.endpoints.extend(self.renew_endpoints(&port));
        }
        if !changed.is_empty() {
            self.update_pieces(&mut changed);
            changes.proxies.extend(self.proxies.stale(&changed));
        }
        if !before.has_same_index(&self.mesh) {
            let mesh = Arc::clone(&self.mesh);
            self.collectors.retain(|collector, _| mesh.uses_collector(collector));
        }
        if self.read_table.is_due() {
            self.forget_unused_reads();
        }
        changes
    }

    /// Encodes again what follows from certificates and revocations alone.
    fn update_secrets(&mut self, old: &Snapshot, new: &Snapshot) {
        if old.trust_bundle != new.trust_bundle {
            self.trust_bundle = self.encoder.encode(&secret::trust_bundle(&new.trust_bundle));
        }
        let (before, after) = (&old.revoked_callers, &new.revoked_callers);
        if !Arc::ptr_eq(before, after) && before.dns_names != after.dns_names {
            self.update_revoked();
        }
        let certificates = keys(&old.certificates, &new.certificates);
        for account in &certificates {
            self.certificates.remove(account);
        }
        if !certificates.is_empty() {
            let all = new.certificates.values();
            let numbers: BTreeSet<_> = all.map(|one| one.history.reissues).collect();
            self.clusters.retain(|key| key.reissues == 0 || numbers.contains(&key.reissues));
        }
    }

    /// Compiles the pieces with changed reads again.
    fn update_pieces(&mut self, changed: &mut ChangedReads) {
        let none = Reads::default();
        self.compile_again(
            changed,
            |shared| &mut shared.clusters,
            |shared, key| _ = shared.cluster(key.clone(), &none),
            is_same_resource,
            Read::Cluster,
        );
        self.compile_again(
            changed,
            |shared| &mut shared.inbound_routes,
            |shared, port| _ = shared.inbound_routes(port, &none),
            is_same_resource,
            Read::InboundRoutes,
        );
        self.compile_again(
            changed,
            |shared| &mut shared.tcp_authorizations,
            |shared, port| _ = shared.tcp_authorization(port, &none),
            is_same_resource,
            Read::TcpAuthorization,
        );
        self.compile_again(
            changed,
            |shared| &mut shared.by_caller,
            |shared, port| _ = shared.by_caller(port, &none),
            |old, new| old.iter().zip(new).all(|(old, new)| is_same_resource(old, new)),
            Read::ByCaller,
        );
        self.update_views(changed);
        self.update_scopes(changed);
        self.compile_again(
            changed,
            |shared| &mut shared.agent_fed_views,
            |shared, view| _ = shared.agent_fed_clusters(*view, &none),
            |old, new| changed_names(old, new).is_empty(),
            Read::AgentFedView,
        );
        self.compile_again(
            changed,
            |shared| &mut shared.upstream_routes,
            |shared, (view, port)| {
                let account = shared.view_table.accounts(*view).next().cloned();
                if let Some(account) = account {
                    shared.upstream_routes(&account, port, &none);
                }
            },
            is_same_resource,
            |(view, port)| Read::UpstreamRoutes(view, port),
        );
    }

    /// Compiles pieces with changed reads again. One with the same result keeps its value; any other is a changed read of
    /// the pieces that contain it.
    fn compile_again<K: Ord + Clone, V>(
        &mut self,
        changed: &mut ChangedReads,
        pieces: impl Fn(&mut Self) -> &mut Pieces<K, V>,
        compile: impl Fn(&mut Self, &K),
        is_same: impl Fn(&V, &V) -> bool,
        read: impl Fn(K) -> Read,
    ) {
        for key in pieces(self).stale(changed) {
            let Some(known) = pieces(self).remove(&key) else { continue };
            compile(self, &key);
            if !pieces(self).keep(&key, known, &is_same) {
                self.read_table.mark(&read(key), changed);
            }
        }
    }

    /// Compiles the scopes with changed reads again. Unchanged resources keep their values.
    fn update_scopes(&mut self, changed: &mut ChangedReads) {
        for account in self.scopes.stale(changed) {
            let Some(known) = self.scopes.remove(&account) else { continue };
            let none = Reads::default();
            // Without a service that runs as this account, no proxy has the scope.
            let is_used = !self.mesh.read_by(&none).services_of(&account).is_empty();
            let compiled = is_used.then(|| self.new_scope(&account, Some(&known.resources)));
            if compiled.is_none_or(|new| new.view != known.view) {
                self.leave_view(known.view, &account);
            }
            if self.scopes.keep(&account, known, |old, new| old.is_same_as(new)) {
                continue;
            }
            self.read_table.mark(&Read::Scope(account), changed);
        }
    }

    /// Forgets the reads that no piece has any more.
    fn forget_unused_reads(&mut self) {
        // All fields are named: a set of reads that is missing here would not be compared any more.
        let Self {
            read_table,
            scopes,
            views,
            agent_fed_views,
            clusters,
            endpoints,
            inbound_routes,
            tcp_authorizations,
            by_caller,
            upstream_routes,
            proxies,
            mesh: _,
            encoder: _,
            view_table: _,
            endpoint_views: _,
            certificates: _,
            collectors: _,
            no_withdrawals: _,
            trust_bundle: _,
            revoked: _,
        } = self;
        let sets = scopes.reads().chain(views.reads()).chain(agent_fed_views.reads());
        let sets = sets.chain(clusters.reads());
        let sets = sets.chain(inbound_routes.reads()).chain(tcp_authorizations.reads());
        let sets = sets.chain(by_caller.reads()).chain(upstream_routes.reads());
        let of_endpoints = endpoints.values().map(LocalizedEndpoints::reads);
        let sets = sets.chain(proxies.reads()).chain(of_endpoints);
        read_table.retain(sets);
    }
}

/// Whether a proxy serves a port with ingress, or whether that is unknown.
fn has_ingress(snapshot: &Snapshot, proxy: ProxyId) -> bool {
    let serves = |service: &ServiceName| {
        snapshot.record(proxy).is_none_or(|record| record.services.contains(service))
    };
    snapshot.ingress_rules.keys().any(|port| serves(&port.service))
}

impl Scope {
    fn is_same_as(&self, other: &Self) -> bool {
        self.view == other.view
            && self.resources.is_same_as(&other.resources)
            && self.callees == other.callees
    }
}

fn is_same_resource(old: &Arc<Resource>, new: &Arc<Resource>) -> bool {
    old.version() == new.version()
}
