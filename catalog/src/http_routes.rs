//! HTTP routes and retries, put together: how each request to a service is treated, when several objects
//! have something to say of it.
//!
//! Each setting is decided by itself, by the nearest object that says it: the first route of some requests
//! that is about this one, then a retry of the caller, then routes of the service, of its namespace, of the
//! mesh.

mod crossing;

use std::collections::BTreeMap;
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

/// All HTTP routes and retries of a mesh, by what they are about.
///
/// Nothing here relies on validation: matches that are not there match nothing, and of two objects that say
/// the same of the same the first by name decides.
#[derive(Debug, Default)]
pub struct HttpRoutes {
    /// The routes about some requests to a service, by name.
    of_requests: BTreeMap<ServiceName, Vec<Conditional>>,
    retries: BTreeMap<(ServiceAccount, ServiceName), Vec<Arc<Retry>>>,
    of_services: BTreeMap<ServiceName, Vec<Arc<HttpRoute>>>,
    of_namespaces: BTreeMap<Name, Vec<Arc<HttpRoute>>>,
    of_mesh: Vec<Arc<HttpRoute>>,
}

/// A route about some requests, with the matches of which any must hold.
#[derive(Debug)]
struct Conditional {
    route: Arc<HttpRoute>,
    matches: Vec<HttpMatch>,
}

/// How requests are treated that a condition is about.
#[derive(Debug, Clone)]
pub struct Treatment<'a> {
    /// What must hold of a request, if no treatment before this one is for it. Of the last one nothing.
    pub condition: Option<&'a HttpMatch>,
    /// Who has something to say, the nearest first.
    layers: Vec<Layer<'a>>,
}

/// An object that has something to say of a request.
#[derive(Debug, Clone, Copy)]
enum Layer<'a> {
    Route(&'a HttpRoute),
    Retry(&'a Retry),
}

impl HttpRoutes {
    /// Those of a specification.
    pub fn of_specification(specification: &MeshSpecification) -> Self {
        let MeshSpecification { http_routes, retries, http_route_groups, .. } = specification;
        Self::new(http_routes.values(), retries.values(), |namespace, group| {
            let group = http_route_groups.get(&(namespace.clone(), group.clone()));
            group.map(|group| &**group)
        })
    }

    /// Those that are given, in order of names, with the route groups that they name.
    pub fn new<'a>(
        routes: impl IntoIterator<Item = &'a Arc<HttpRoute>>,
        retries: impl IntoIterator<Item = &'a Arc<Retry>>,
        group: impl Fn(&Name, &Name) -> Option<&'a HttpRouteGroup>,
    ) -> Self {
        let mut all = Self::default();
        for route in routes {
            let kept = Arc::clone(route);
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
                        let all = group.into_iter().flat_map(|group| &group.matches);
                        let is_named = |one: &&HttpMatch| {
                            named.matches.as_ref().is_none_or(|names| names.contains(&one.name))
                        };
                        all.filter(is_named).cloned().collect::<Vec<_>>()
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
            for destination in &retry.destinations {
                let key = (retry.source.clone(), destination.service.clone());
                all.retries.entry(key).or_default().push(Arc::clone(retry));
            }
        }
        all
    }

    /// The services of which some route is about some requests.
    pub fn services_with_requests(&self) -> impl Iterator<Item = &ServiceName> {
        self.of_requests.keys()
    }

    /// How calls of `account` to `service` are treated: each request by the first whose condition holds. The
    /// last one has none.
    pub fn treatments(
        &self,
        account: &ServiceAccount,
        service: &ServiceName,
    ) -> Vec<Treatment<'_>> {
        self.treatments_of(service, Some(account))
    }

    /// The same as if one account were all that are named anywhere: no account has more of them.
    pub fn treatments_of_all(&self, service: &ServiceName) -> Vec<Treatment<'_>> {
        self.treatments_of(service, None)
    }

    fn treatments_of(
        &self,
        service: &ServiceName,
        account: Option<&ServiceAccount>,
    ) -> Vec<Treatment<'_>> {
        let is_of = |route: &&Arc<HttpRoute>| account.is_none_or(|account| route.is_of(account));
        let key = account.map(|account| (account.clone(), service.clone()));
        let retries = key.and_then(|key| self.retries.get(&key)).into_iter().flatten();
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
    /// How long a request may take as a whole; none = as long as it likes.
    pub fn timeout(&self) -> Option<Duration> {
        let mut said = self.routes().filter_map(|route| route.settings.timeout);
        said.next().filter(|timeout| !timeout.is_zero())
    }

    /// What is tried again.
    pub fn retries(&self) -> Retries {
        let said = self.layers.iter().find_map(|layer| match layer {
            Layer::Route(route) => route.settings.retries.as_ref(),
            Layer::Retry(retry) => Some(&retry.retries),
        });
        said.cloned().unwrap_or_default()
    }

    /// What becomes of some requests on purpose.
    pub fn fault(&self) -> Option<&Fault> {
        self.said(|settings| settings.fault.as_ref())
    }

    /// What becomes of the headers of requests.
    pub fn request_headers(&self) -> Option<&HeaderChanges> {
        self.said(|settings| settings.request_headers.as_ref())
    }

    /// What becomes of the headers of answers.
    pub fn response_headers(&self) -> Option<&HeaderChanges> {
        self.said(|settings| settings.response_headers.as_ref())
    }

    /// What requests ask for when they leave the caller's sidecar.
    pub fn rewrite(&self) -> Option<&Rewrite> {
        self.said(|settings| settings.rewrite.as_ref())
    }

    /// Where requests are to be made instead. What else is said of them has no effect then, but for faults
    /// and the headers of answers.
    pub fn redirect(&self) -> Option<&Redirect> {
        self.said(|settings| settings.redirect.as_ref())
    }

    /// Who gets a copy of some requests.
    pub fn mirror(&self) -> Option<&Mirror> {
        self.said(|settings| settings.mirror.as_ref())
    }

    /// Whether who calls may say how long a request may take and what is tried again.
    pub fn allows_override_headers(&self) -> bool {
        self.said(|settings| settings.allow_override_headers.as_ref()).copied().unwrap_or_default()
    }

    /// All that is said, in words, and who decides it: what the nearest says comes first.
    pub fn settings(&self) -> Vec<EffectiveSetting> {
        let mut settings: Vec<EffectiveSetting> = Vec::new();
        for layer in &self.layers {
            for (key, value) in layer.in_words() {
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

    /// What the nearest route says that says it.
    fn said<T>(&self, say: impl Fn(&CallSettings) -> Option<&T>) -> Option<&T> {
        self.routes().find_map(|route| say(&route.settings))
    }

    fn routes(&self) -> impl Iterator<Item = &HttpRoute> {
        self.layers.iter().filter_map(|layer| match layer {
            Layer::Route(route) => Some(*route),
            Layer::Retry(_) => None,
        })
    }
}

impl Layer<'_> {
    fn in_words(self) -> Vec<(&'static str, String)> {
        match self {
            Self::Route(route) => route.settings.in_words(),
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
