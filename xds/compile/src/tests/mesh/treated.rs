//! Random HTTP routes and retries.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    CallSettings, HttpRoute, Level, MeshSpecification, Mirror, Name, Percent, Reach, Retries,
    Retry, RetryDestination, SplitMatch,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{
    ACCOUNTS, GROUPS, MATCHES, NAMESPACES, PartOrder, SERVICES, Shape, account, name, spot,
};

/// An object that treats calls.
#[derive(Debug, Clone)]
pub(super) enum TreatedShape {
    /// Of an account, or of all: a timeout, and a mirror.
    Route(ReachShape, Option<(usize, usize)>, u64, Option<usize>),
    /// Of an account, to a service: the number of retries.
    Retry((usize, usize), usize, u32),
}

/// The calls that a route treats.
#[derive(Debug, Clone)]
pub(super) enum ReachShape {
    Mesh,
    Namespace(usize),
    Service(usize),
    Requests(usize, Vec<(usize, Option<Vec<usize>>)>),
}

pub(super) fn treated() -> impl Strategy<Value = TreatedShape> {
    let matches = vec((0..=GROUPS, option::of(vec(0..=MATCHES, 0..3))), 0..3);
    let reach = prop_oneof![
        1 => Just(ReachShape::Mesh),
        1 => (0..NAMESPACES).prop_map(ReachShape::Namespace),
        2 => (0..=SERVICES).prop_map(ReachShape::Service),
        4 => (0..SERVICES, matches).prop_map(|(service, matches)| ReachShape::Requests(service, matches)),
    ];
    let caller = || (0..NAMESPACES, 0..ACCOUNTS);
    let route = (reach, option::of(caller()), 0..3_u64, option::of(0..=SERVICES));
    prop_oneof![
        3 => route.prop_map(|(reach, source, seconds, mirror)| {
            TreatedShape::Route(reach, source, seconds, mirror)
        }),
        1 => (caller(), 0..SERVICES, 0..3_u32)
            .prop_map(|(source, service, count)| TreatedShape::Retry(source, service, count)),
    ]
}

impl Shape {
    /// This mesh with a mirror of one service's calls.
    pub(in crate::tests) fn with_mirror(mut self, service: usize, to: usize) -> Self {
        self.treated.push(TreatedShape::Route(ReachShape::Service(service), None, 0, Some(to)));
        self
    }

    /// Adds the objects to a specification, in `order`.
    pub(super) fn put_treated(&self, order: PartOrder, specification: &mut MeshSpecification) {
        for (n, shape) in order.of(self.treated.iter().enumerate()) {
            match shape {
                TreatedShape::Route(reach, source, seconds, mirror) => {
                    let mut route = self.route(n, reach, *source, *seconds);
                    route.settings.mirror = mirror.map(|service| Mirror {
                        service: self.service_name(service),
                        percent: Percent(1),
                        spot: spot(),
                    });
                    let key = (route.namespace.clone(), route.name.clone());
                    specification.http_routes.insert(key, Arc::new(route));
                }
                TreatedShape::Retry((namespace, n_account), service, count) => {
                    let destination =
                        RetryDestination { service: self.service_name(*service), spot: spot() };
                    let retry = Retry {
                        namespace: name("n", *namespace),
                        name: name("t", n),
                        source: account(*namespace, *n_account),
                        destinations: vec![destination],
                        retries: Retries { count: *count, ..Retries::default() },
                        spot: spot(),
                    };
                    let key = (retry.namespace.clone(), retry.name.clone());
                    specification.retries.insert(key, Arc::new(retry));
                }
            }
        }
    }

    fn route(
        &self,
        n: usize,
        reach: &ReachShape,
        source: Option<(usize, usize)>,
        seconds: u64,
    ) -> HttpRoute {
        let (namespace, reach): (Name, _) = match reach {
            ReachShape::Mesh => (name("n", 0), Reach::All(Level::Mesh)),
            ReachShape::Namespace(namespace) => {
                let namespace = name("n", *namespace);
                (namespace.clone(), Reach::All(Level::Namespace(namespace)))
            }
            ReachShape::Service(service) => {
                let service = self.service_name(*service);
                (service.namespace.clone(), Reach::All(Level::Service(service)))
            }
            ReachShape::Requests(service, matches) => {
                let service = self.service_name(*service);
                let matches = matches.iter().map(|(group, matches)| SplitMatch {
                    group: name("g", *group),
                    matches: matches
                        .as_ref()
                        .map(|all| all.iter().map(|n| name("m", *n)).collect()),
                    spot: spot(),
                });
                (service.namespace.clone(), Reach::Requests(service, matches.collect()))
            }
        };
        HttpRoute {
            namespace,
            name: name("t", n),
            reach,
            sources: source.map(|(namespace, n)| vec![account(namespace, n)]),
            settings: CallSettings {
                timeout: Some(Duration::from_secs(seconds)),
                ..CallSettings::default()
            },
            spot: spot(),
        }
    }
}
