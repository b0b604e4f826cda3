//! A provider that follows services, as a test observes it.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::service::{EscapedSlashes, Visibility};
use ironmesh_catalog::{
    ConsulQuery, EndpointSource, MeshSpecification, Providers, Service, ServiceName, Spot,
};
use ironmesh_providers::consul::{Consul, ConsulOptions};
use ironmesh_providers::{EndpointsProvider as _, ProviderReport, ServiceReport};
use ironmesh_tests::eventually;
use jiff::Timestamp;
use tokio::sync::watch;

pub(crate) struct ProviderWatch {
    pub(crate) provider: Consul,
    pub(crate) reports: watch::Receiver<ProviderReport>,
}

impl ProviderWatch {
    /// Follows the instances of the Consul service `web`, for a service of the same name.
    pub(crate) fn web(options: ConsulOptions) -> Self {
        Self::services(options, [("web", Some(query("web")))])
    }

    /// Follows services, each with its query.
    pub(crate) fn services<'a>(
        options: ConsulOptions,
        services: impl IntoIterator<Item = (&'a str, Option<ConsulQuery>)>,
    ) -> Self {
        let provider = Consul::start(options, Timestamp::now).unwrap();
        let reports = provider.reports();
        provider.follow(&specification(services));
        Self { provider, reports }
    }

    /// The current report.
    pub(crate) fn now(&self) -> ProviderReport {
        self.reports.borrow().clone()
    }

    /// The current report of a service.
    pub(crate) fn of(&self, service: &str) -> Option<Arc<ServiceReport>> {
        self.reports.borrow().services.get(&service.parse::<ServiceName>().unwrap()).cloned()
    }

    /// Waits until a service has exactly these endpoints and is not stale.
    pub(crate) async fn wait_for(&self, service: &str, addresses: &[&str]) -> Arc<ServiceReport> {
        let wanted: BTreeSet<_> = addresses.iter().map(|&address| address.to_owned()).collect();
        eventually(&format!("{service} at {addresses:?}"), async || {
            let found = self.of(service);
            let is_there = found.as_ref().is_some_and(|found| {
                let at: BTreeSet<_> =
                    found.endpoints.iter().map(|found| found.address.to_string()).collect();
                at == wanted && found.stale.is_none() && found.is_authoritative
            });
            match found.filter(|_| is_there && self.now().stale.is_none()) {
                Some(found) => Ok(found),
                None => Err(format!("{:#?}", self.now())),
            }
        })
        .await
    }

    /// Waits until the provider is stale, and returns the reason.
    pub(crate) async fn wait_until_stale(&self, because: &str) -> String {
        eventually(&format!("staleness: {because}"), async || match self.now().stale {
            Some(stale) if stale.reason.contains(because) => Ok(stale.reason),
            stale => Err(format!("{stale:?}")),
        })
        .await
    }

    /// Waits until only this service is stale, and returns its report.
    pub(crate) async fn wait_until_service_stale(
        &self,
        service: &str,
        because: &str,
    ) -> Arc<ServiceReport> {
        eventually(&format!("staleness of {service}: {because}"), async || match self.of(service) {
            Some(found) if found.stale.iter().any(|stale| stale.reason.contains(because)) => {
                Ok(found)
            }
            found => Err(format!("{found:?}")),
        })
        .await
    }
}

/// A query for all instances of a Consul service.
pub(crate) fn query(service: &str) -> ConsulQuery {
    ConsulQuery::of(service)
}

/// A policy that defines these services.
pub(crate) fn specification<'a>(
    services: impl IntoIterator<Item = (&'a str, Option<ConsulQuery>)>,
) -> Arc<MeshSpecification> {
    let service = |(name, consul): (&str, Option<ConsulQuery>)| {
        let registered = consul.is_none();
        let providers = Providers { registered, consul, ..Providers::default() };
        let service = Service {
            name: name.parse().unwrap(),
            account: name.parse().unwrap(),
            ports: Vec::new(),
            endpoints: EndpointSource::Providers(providers),
            mode: None,
            visibility: Visibility::default(),
            escaped_slashes: EscapedSlashes::default(),
            max_connection_duration: None,
            upstreams: Vec::new(),
            drained: false,
            health: None,
            external: None,
            subsets: Vec::new(),
            spot: Spot::new(&"policy.toml".into(), "", 0..0),
        };
        (service.name.clone(), Arc::new(service))
    };
    let services = services.into_iter().map(service).collect();
    Arc::new(MeshSpecification { services, ..MeshSpecification::default() })
}
