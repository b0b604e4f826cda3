//! The outbound resources that accounts share: clusters, endpoints and routes by `Host`.
//!
//! A fleet may have a thousand accounts, of which most may call the same services in the same way. So these resources are
//! compiled once per visibility, which is all that they depend on besides the mesh. They never name the calling account,
//! and contain no secret.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{Egress, Locality, LocalitySetting, Name, ServiceAccount, ServicePort};
use ironmesh_xds_wire::{ResourceMap, ResourceSet};

use super::{ClusterKey, Shared};
use crate::destination::Destination;
use crate::egress::EgressScope;
use crate::mesh_view::MeshView;
use crate::outbound::ByHost;
use crate::reads::{ChangedReads, Read, ReadSet, Reads};
use crate::{external, outbound};

/// The namespace and the name of an object of policy.
type ObjectKey = (Name, Name);

/// What decides which services an account may call, and how. Accounts with an equal one have equal outbound resources.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Visibility {
    pub(crate) namespace: Name,
    /// The traffic targets with the account as a source.
    pub(crate) targets: Vec<ObjectKey>,
    /// The egresses with the account as a source.
    pub(crate) egresses: Vec<ObjectKey>,
    /// The number of replacements of the account's certificate.
    pub(crate) reissues: u32,
    /// The account itself, if HTTP routes or retries name it as a caller.
    pub(crate) named_caller: Option<ServiceAccount>,
}

/// The number of a view. A visibility may have a thousand targets, so it is compared only when a scope is compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ViewId(u32);

/// The views in use. A number is never given again, so what was read of a dropped view is not confused with a new one.
#[derive(Debug, Default)]
pub(super) struct ViewTable {
    ids: BTreeMap<Arc<Visibility>, ViewId>,
    users: BTreeMap<ViewId, Users>,
    next: u32,
}

/// A visibility, and the accounts that have it and whose scopes are compiled.
#[derive(Debug)]
struct Users {
    visibility: Arc<Visibility>,
    accounts: BTreeSet<ServiceAccount>,
}

impl ViewTable {
    /// The view of a visibility.
    pub(super) fn id_of(&mut self, visibility: Visibility) -> ViewId {
        if let Some(id) = self.ids.get(&visibility) {
            return *id;
        }
        let (id, visibility) = (ViewId(self.next), Arc::new(visibility));
        self.next += 1;
        let users = Users { visibility: Arc::clone(&visibility), accounts: BTreeSet::new() };
        self.users.insert(id, users);
        self.ids.insert(visibility, id);
        id
    }

    /// The accounts of a view.
    pub(super) fn accounts(&self, view: ViewId) -> impl Iterator<Item = &ServiceAccount> {
        self.users.get(&view).into_iter().flat_map(|users| &users.accounts)
    }

    fn visibility(&self, view: ViewId) -> Option<Arc<Visibility>> {
        self.users.get(&view).map(|users| Arc::clone(&users.visibility))
    }

    fn add(&mut self, view: ViewId, account: &ServiceAccount) {
        if let Some(users) = self.users.get_mut(&view) {
            users.accounts.insert(account.clone());
        }
    }

    /// Removes an account. Returns whether it was the last one, and the view is dropped.
    fn remove(&mut self, view: ViewId, account: &ServiceAccount) -> bool {
        let Some(users) = self.users.get_mut(&view) else { return false };
        users.accounts.remove(account);
        let is_empty = users.accounts.is_empty();
        if is_empty && let Some(users) = self.users.remove(&view) {
            self.ids.remove(&users.visibility);
        }
        is_empty
    }
}

/// The outbound resources of all accounts with one visibility.
#[derive(Debug)]
pub(super) struct View {
    pub(super) resources: ResourceSet,
    pub(super) callees: Arc<Callees>,
    /// The endpoints for callers in a locality, if they differ.
    pub(super) localized: BTreeMap<Locality, ResourceMap>,
}

/// The services that an account may call, and what its proxies' own resources depend on besides.
#[derive(Debug, PartialEq)]
pub(crate) struct Callees {
    /// The service ports that it may call, with their destinations.
    pub(crate) callable: BTreeMap<ServicePort, Arc<Destination>>,
    /// The settings of the listener that routes by `Host`.
    pub(crate) by_host: ByHost,
    /// Its egresses, which determine the declared upstreams outside the mesh.
    pub(crate) egresses: Vec<Arc<Egress>>,
    pub(crate) passes_through: bool,
    /// The service ports whose endpoints differ by the caller's locality.
    pub(crate) by_locality: BTreeMap<ServicePort, Arc<LocalitySetting>>,
    /// The external service ports whose cluster differs by machine, because it contains the
    /// machine's own addresses.
    pub(crate) by_machine: Vec<ServicePort>,
}

impl View {
    fn is_same_as(&self, other: &Self) -> bool {
        self.resources.is_same_as(&other.resources) && self.callees == other.callees
    }
}

impl Callees {
    /// As much of `locality` as makes a difference.
    pub(super) fn locality(&self, locality: &Locality) -> Locality {
        let depths = self.by_locality.values().map(|setting| setting.depth());
        locality.up_to(depths.max().unwrap_or_default())
    }
}

impl Shared {
    /// The outbound resources of `account`, which has this view. New ones share with `earlier` what is equal.
    pub(super) fn outbound_of(
        &mut self,
        view: ViewId,
        account: &ServiceAccount,
        earlier: Option<&ResourceSet>,
        by: &Reads,
    ) -> (ResourceSet, Arc<Callees>) {
        by.record(Read::View(view));
        self.view_table.add(view, account);
        if let Some(View { resources, callees, .. }) = self.views.get(&view) {
            return (resources.clone(), Arc::clone(callees));
        }
        let (mut compiled, reads) = self.compile_view(view, account);
        if let Some(earlier) = earlier {
            compiled.resources = compiled.resources.sharing_with(earlier);
        }
        let outbound = (compiled.resources.clone(), Arc::clone(&compiled.callees));
        self.views.insert(view, compiled, reads);
        outbound
    }

    /// Compiles a view. `account` is any account that has it.
    fn compile_view(&mut self, view: ViewId, account: &ServiceAccount) -> (View, ReadSet) {
        let reissues = self.view_table.visibility(view).map_or(0, |one| one.reissues);
        let (mesh, reads) = (Arc::clone(&self.mesh), Reads::default());
        let mesh = mesh.read_by(&reads);
        let callable = callable_by(mesh, account);
        let mut resources = ResourceSet::default();
        let (mut by_locality, mut by_machine) = (BTreeMap::new(), Vec::new());
        let called: BTreeSet<_> =
            callable.values().flat_map(|destination| destination.service_ports()).collect();
        for service_port in called {
            let Some((service, port)) = mesh.port(service_port) else { continue };
            let key = ClusterKey::of_callers(reissues, service, service_port);
            let Some(cluster) = self.cluster(key, &reads) else { continue };
            resources.insert(cluster);
            let external = service.external.as_ref();
            if external.is_some_and(|external| external::is_checked_per_endpoint(external, port)) {
                by_machine.push(service_port.clone());
            }
            // Proxies resolve these themselves, so there are no endpoints to push.
            if !service.endpoints.is_hostname() {
                resources.insert(self.endpoints(service_port, &Locality::default()));
                let locality = mesh.settings(service).locality();
                if let Some(locality) = locality.filter(|locality| locality.depth() > 0) {
                    by_locality.insert(service_port.clone(), Arc::clone(locality));
                }
                let views = self.endpoint_views.entry(service_port.clone()).or_default();
                views.insert(view);
            }
        }
        let service = |port: &ServicePort| mesh.service(&port.service).map(|one| &**one);
        let by_host = ByHost::of(callable.keys().filter_map(service));
        let egress_scope = EgressScope::of(mesh, account);
        let passes_through = egress_scope.passes_through;
        let routes = outbound::by_host_routes(&egress_scope, &callable, by_host);
        if let Some(cluster) = egress_scope.cluster() {
            resources.insert(self.encoder.encode(&cluster));
        }
        resources.insert(self.encoder.encode(&routes));
        let egresses = mesh.egresses(account).to_vec();
        let callees =
            Callees { callable, by_host, egresses, passes_through, by_locality, by_machine };
        let view = View { resources, callees: Arc::new(callees), localized: BTreeMap::new() };
        (view, self.read_table.store(reads))
    }

    /// Compiles the views with changed reads again. Unchanged resources keep their values.
    ///
    /// The reads of a view are those of one account. It may have another visibility by now: its grants and egresses are
    /// still compared, and as long as they are the same, so are those of the accounts that kept the visibility.
    pub(super) fn update_views(&mut self, changed: &mut ChangedReads) {
        for view in self.views.stale(changed) {
            let Some(known) = self.views.remove(&view) else { continue };
            self.forget_endpoints_of(view, &known);
            // An account with a different visibility by now gets its view with its scope.
            let (mesh, none) = (Arc::clone(&self.mesh), Reads::default());
            let account = self.view_table.visibility(view).and_then(|visibility| {
                let mut accounts = self.view_table.accounts(view);
                accounts.find(|one| mesh.read_by(&none).visibility(one) == *visibility)
            });
            if let Some(account) = account.cloned() {
                self.outbound_of(view, &account, Some(&known.resources), &none);
                if self.views.keep(&view, known, View::is_same_as) {
                    continue;
                }
            }
            self.read_table.mark(&Read::View(view), changed);
        }
    }

    /// Forgets that the scope of `account` has this view.
    pub(super) fn leave_view(&mut self, view: ViewId, account: &ServiceAccount) {
        if !self.view_table.remove(view, account) {
            return;
        }
        // Nothing would compare what these have read of the view.
        self.agent_fed_views.remove(&view);
        self.upstream_routes.retain(|(of, _)| *of != view);
        if let Some(dropped) = self.views.remove(&view) {
            self.forget_endpoints_of(view, &dropped);
        }
    }

    fn forget_endpoints_of(&mut self, id: ViewId, view: &View) {
        let destinations = view.callees.callable.values();
        for port in destinations.flat_map(|destination| destination.service_ports()) {
            if let Some(views) = self.endpoint_views.get_mut(port) {
                views.remove(&id);
                if views.is_empty() {
                    self.endpoint_views.remove(port);
                }
            }
        }
    }
}

/// The service ports that `account` may call, with their destinations.
fn callable_by(
    mesh: MeshView<'_>,
    account: &ServiceAccount,
) -> BTreeMap<ServicePort, Arc<Destination>> {
    let destination = |port: &ServicePort| {
        let destination = mesh.destination(port);
        let is_known = |port: &ServicePort| {
            let service = mesh.service(&port.service);
            service.is_none_or(|service| service.is_visible_in(&account.namespace))
        };
        if destination.service_ports().into_iter().all(is_known) {
            destination
        } else {
            Arc::new(destination.restricted_to(is_known))
        }
    };
    let ports = mesh.callable(account).into_iter();
    ports
        .map(|port| {
            let to = destination(&port);
            (port, to)
        })
        .collect()
}
