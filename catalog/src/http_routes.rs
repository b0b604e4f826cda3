//! HTTP routes and retries, combined: the settings of each request to a service.
//!
//! For each setting, the most specific object wins: the first route whose match selects the request, then a
//! retry of the caller, then routes of the service, of its namespace, of the mesh. This module owns that
//! choice. It never decides destinations.

mod crossing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use crossing::{Crossing, cross};

use crate::cited::Cited;
use crate::name::{Name, ServiceAccount, ServiceName};
use crate::policy::{
    CallSettings, Fault, HeaderChanges, HttpMatch, HttpRoute, HttpRouteGroup, Level, Mirror, Reach,
    Redirect, Retries, Retry, Rewrite, SplitMatch,
};
use crate::specification::MeshSpecification;
use crate::upstream_settings::EffectiveSetting;

/// All HTTP routes and retries of a mesh, by level.
///
/// It does not rely on validation: missing matches select nothing, and of two objects with one setting of one
/// level the first by name wins.
#[derive(Debug, Default)]
pub struct HttpRoutes {
    /// The conditional routes of each service, by name.
    of_requests: BTreeMap<ServiceName, Vec<Conditional>>,
    /// The retries of calls to each service, by caller.
    retries: BTreeMap<ServiceName, BTreeMap<ServiceAccount, Vec<Arc<Retry>>>>,
    of_services: BTreeMap<ServiceName, Vec<Arc<HttpRoute>>>,
    of_namespaces: BTreeMap<Name, Vec<Arc<HttpRoute>>>,
    of_mesh: Vec<Arc<HttpRoute>>,
    /// The accounts that a route or a retry names as callers.
    named_callers: BTreeSet<ServiceAccount>,
}

/// A route with its matches, any of which selects a request.
#[derive(Debug, PartialEq)]
struct Conditional {
    route: Arc<HttpRoute>,
    matches: Vec<HttpMatch>,
}

/// The settings of the requests that a condition selects.
#[derive(Debug, Clone)]
pub struct Treatment<'a> {
    /// The condition that selects the requests, if no earlier treatment does. The last treatment has none.
    pub condition: Option<&'a HttpMatch>,
    /// The objects that apply, most specific first.
    layers: Vec<Layer<'a>>,
}

/// An object that applies to a request.
#[derive(Debug, Clone, Copy)]
enum Layer<'a> {
    Route(&'a HttpRoute),
    Retry(&'a Retry),
}

impl HttpRoutes {
    /// The routes and retries of a specification.
    pub fn of_specification(specification: &MeshSpecification) -> Self {
        let MeshSpecification { http_routes, retries, http_route_groups, .. } = specification;
        Self::new(http_routes.values(), retries.values(), |namespace, group| {
            let group = http_route_groups.get(&(namespace.clone(), group.clone()));
            group.map(|group| &**group)
        })
    }

    /// These routes and retries, in order of names, with the route groups that they name.
    pub fn new<'a>(
        routes: impl IntoIterator<Item = &'a Arc<HttpRoute>>,
        retries: impl IntoIterator<Item = &'a Arc<Retry>>,
        group: impl Fn(&Name, &Name) -> Option<&'a HttpRouteGroup>,
    ) -> Self {
        let mut all = Self::default();
        for route in routes {
            let kept = Arc::clone(route);
            all.named_callers.extend(route.sources.iter().flatten().cloned());
            match &route.reach {
                Reach::All(Level::Mesh) => all.of_mesh.push(kept),
                Reach::All(Level::Namespace(namespace)) => {
                    all.of_namespaces.entry(namespace.clone()).or_default().push(kept);
                }
                Reach::All(Level::Service(service)) => {
                    all.of_services.entry(service.clone()).or_default().push(kept);
                }
                Reach::Requests(service, named) => {
                    let matches = |named: &SplitMatch| {
                        let group = group(&route.namespace, &named.group);
                        let names = named.matches.as_deref();
                        let matches = group.map(|group| group.named_matches(names).cloned());
                        matches.into_iter().flatten().collect::<Vec<_>>()
                    };
                    let matches = named.iter().flat_map(matches).collect();
                    all.of_requests
                        .entry(service.clone())
                        .or_default()
                        .push(Conditional { route: kept, matches });
                }
            }
        }
        for retry in retries {
            all.named_callers.insert(retry.source.clone());
            for destination in &retry.destinations {
                let by_caller = all.retries.entry(destination.service.clone()).or_default();
                by_caller.entry(retry.source.clone()).or_default().push(Arc::clone(retry));
            }
        }
        all
    }

    /// The services with conditional routes.
    pub fn services_with_requests(&self) -> impl Iterator<Item = &ServiceName> {
        self.of_requests.keys()
    }

    /// Whether a route or a retry names `account` as a caller. The calls of all accounts that none names have the same treatments.
    pub fn names_caller(&self, account: &ServiceAccount) -> bool {
        self.named_callers.contains(account)
    }

    /// Whether `other` treats the calls of every account to `service` alike.
    pub fn are_same_for(&self, other: &Self, service: &ServiceName) -> bool {
        let namespace = &service.namespace;
        self.of_requests.get(service) == other.of_requests.get(service)
            && self.retries.get(service) == other.retries.get(service)
            && self.of_services.get(service) == other.of_services.get(service)
            && self.of_namespaces.get(namespace) == other.of_namespaces.get(namespace)
            && self.of_mesh == other.of_mesh
    }

    /// The treatments of calls of `account` to `service`: the first whose condition selects a request applies.
    /// The last one has no condition.
    pub fn treatments(
        &self,
        account: &ServiceAccount,
        service: &ServiceName,
    ) -> Vec<Treatment<'_>> {
        self.treatments_of(service, Some(account))
    }

    /// The treatments as if one account had all objects: no account has more of them.
    pub fn treatments_of_all(&self, service: &ServiceName) -> Vec<Treatment<'_>> {
        self.treatments_of(service, None)
    }

    fn treatments_of(
        &self,
        service: &ServiceName,
        account: Option<&ServiceAccount>,
    ) -> Vec<Treatment<'_>> {
        let is_of = |route: &&Arc<HttpRoute>| account.is_none_or(|account| route.is_of(account));
        let by_caller = self.retries.get(service);
        let retries = account.and_then(|account| by_caller?.get(account)).into_iter().flatten();
        let of_service = self.of_services.get(service).into_iter().flatten();
        let of_namespace = self.of_namespaces.get(&service.namespace).into_iter().flatten();
        let routes = of_service.chain(of_namespace).chain(&self.of_mesh).filter(is_of);
        let base: Vec<_> = retries
            .map(|retry| Layer::Retry(retry))
            .chain(routes.map(|route| Layer::Route(route)))
            .collect();
        let mut treatments = Vec::new();
        for Conditional { route, matches } in self.of_requests.get(service).into_iter().flatten() {
            if !is_of(&route) {
                continue;
            }
            let layers: Vec<_> = [Layer::Route(route)].into_iter().chain(base.clone()).collect();
            treatments.extend(
                matches.iter().map(|condition| Treatment {
                    condition: Some(condition),
                    layers: layers.clone(),
                }),
            );
        }
        treatments.push(Treatment { condition: None, layers: base });
        treatments
    }
}

impl Treatment<'_> {
    /// The time limit of a request; none means no limit.
    pub fn timeout(&self) -> Option<Duration> {
        let mut timeouts = self.routes().filter_map(|route| route.settings.timeout);
        timeouts.next().filter(|timeout| !timeout.is_zero())
    }

    /// The retries.
    pub fn retries(&self) -> Retries {
        let retries = self.layers.iter().find_map(|layer| match layer {
            Layer::Route(route) => route.settings.retries.as_ref(),
            Layer::Retry(retry) => Some(&retry.retries),
        });
        retries.cloned().unwrap_or_default()
    }

    /// The fault injection.
    pub fn fault(&self) -> Option<&Fault> {
        self.most_specific(|settings| settings.fault.as_ref())
    }

    /// The changes of request headers.
    pub fn request_headers(&self) -> Option<&HeaderChanges> {
        self.most_specific(|settings| settings.request_headers.as_ref())
    }

    /// The changes of response headers.
    pub fn response_headers(&self) -> Option<&HeaderChanges> {
        self.most_specific(|settings| settings.response_headers.as_ref())
    }

    /// The rewrite in the caller's sidecar.
    pub fn rewrite(&self) -> Option<&Rewrite> {
        self.most_specific(|settings| settings.rewrite.as_ref())
    }

    /// The redirect. With it, only faults and changes of response headers also apply.
    pub fn redirect(&self) -> Option<&Redirect> {
        self.most_specific(|settings| settings.redirect.as_ref())
    }

    /// The mirror of some requests.
    pub fn mirror(&self) -> Option<&Mirror> {
        self.most_specific(|settings| settings.mirror.as_ref())
    }

    /// Whether callers may override time limit and retries by headers.
    pub fn allows_override_headers(&self) -> bool {
        self.most_specific(|settings| settings.allow_override_headers.as_ref())
            .copied()
            .unwrap_or_default()
    }

    /// All effective settings in words, with the objects that set them, most specific first.
    pub fn settings(&self) -> Vec<EffectiveSetting> {
        let mut settings: Vec<EffectiveSetting> = Vec::new();
        for layer in &self.layers {
            for (key, value) in layer.descriptions() {
                if !settings.iter().any(|known| known.key == key) {
                    settings.push(EffectiveSetting {
                        key: key.to_owned(),
                        value,
                        by: layer.cited(),
                    });
                }
            }
        }
        settings
    }

    /// A setting of the most specific route that has it.
    fn most_specific<T>(&self, get: impl Fn(&CallSettings) -> Option<&T>) -> Option<&T> {
        self.routes().find_map(|route| get(&route.settings))
    }

    fn routes(&self) -> impl Iterator<Item = &HttpRoute> {
        self.layers.iter().filter_map(|layer| match layer {
            Layer::Route(route) => Some(*route),
            Layer::Retry(_) => None,
        })
    }
}

impl Layer<'_> {
    fn descriptions(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Route(route) => route.settings.descriptions(),
            Self::Retry(retry) => vec![("retries", retry.retries.to_string())],
        }
    }

    fn cited(self) -> Cited {
        match self {
            Self::Route(route) => Cited::http_route(route),
            Self::Retry(retry) => Cited::retry(retry),
        }
    }
}
