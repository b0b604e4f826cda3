//! A provider that follows services, as a test observes it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::service::{EscapedSlashes, Visibility};
use ironmesh_catalog::{
    AddressFamily, AzureMachines, AzureQuery, EndpointSource, MeshSpecification, Providers,
    Service, ServiceName, Spot,
};
use ironmesh_providers::azure::{Azure, AzureCloud, AzureOptions};
use ironmesh_providers::{EndpointsProvider as _, ProviderReport, ServiceReport};
use ironmesh_tests::azure::{FakeAzure, GROUP, Machine, SUBSCRIPTION, ScaleSet};
use ironmesh_tests::eventually;
use jiff::Timestamp;
use tokio::sync::watch;

pub(crate) struct ProviderWatch {
    pub(crate) provider: Azure,
    pub(crate) reports: watch::Receiver<ProviderReport>,
    _turn: watch::Sender<bool>,
}

/// Options for the machine's identity at the fake's metadata service, with short waits.
pub(crate) fn options(azure: &FakeAzure) -> AzureOptions {
    AzureOptions {
        subscription: Some(SUBSCRIPTION.into()),
        resource_group: Some(GROUP.to_lowercase().into()),
        cloud: AzureCloud::Custom { resource_manager: azure.manager(), login: azure.login() },
        interval: Duration::from_millis(50),
        reads_per_hour: u32::MAX,
        retry: Duration::from_millis(10),
        metadata: Some(azure.metadata()),
        ..AzureOptions::default()
    }
}

/// A uniform scale set `web` of two machines, 10.0.0.1 and 10.0.0.2.
pub(crate) async fn shop() -> FakeAzure {
    let azure = FakeAzure::start().await;
    azure.change(|vms| {
        vms.scale_sets.insert("web".to_owned(), ScaleSet::default());
        vms.machines.push(Machine::of("web", "0", "10.0.0.1"));
        vms.machines.push(Machine::of("web", "1", "10.0.0.2"));
    });
    azure
}

impl ProviderWatch {
    /// Follows the scale set `web`, for a service of the same name.
    pub(crate) fn web(options: AzureOptions) -> Self {
        Self::services(options, [("web", vec![scale_set("web")])])
    }

    /// Follows services, each with its queries.
    pub(crate) fn services<'a>(
        options: AzureOptions,
        services: impl IntoIterator<Item = (&'a str, Vec<AzureQuery>)>,
    ) -> Self {
        Self::with_clock(options, services, Timestamp::now)
    }

    pub(crate) fn with_clock<'a>(
        options: AzureOptions,
        services: impl IntoIterator<Item = (&'a str, Vec<AzureQuery>)>,
        clock: fn() -> Timestamp,
    ) -> Self {
        let leadership = watch::Sender::new(true);
        let provider = Azure::start(options, clock, leadership.subscribe()).unwrap();
        let reports = provider.reports();
        provider.follow(&specification(services));
        Self { provider, reports, _turn: leadership }
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
        self.wait_until(&format!("{service} at {addresses:?}"), service, |found| {
            at(found) == addresses.iter().map(|&one| one.to_owned()).collect::<BTreeSet<_>>()
                && found.stale.is_none()
                && found.is_authoritative
        })
        .await
    }

    /// Waits until a service satisfies a condition.
    pub(crate) async fn wait_until(
        &self,
        what: &str,
        service: &str,
        holds: impl Fn(&ServiceReport) -> bool,
    ) -> Arc<ServiceReport> {
        eventually(what, async || match self.of(service).filter(|found| holds(found)) {
            Some(found) => Ok(found),
            None => Err(format!("{:#?}", self.now())),
        })
        .await
    }

    /// Waits until the provider is stale, and returns the reason.
    pub(crate) async fn wait_until_stale(&self, because: &str) -> String {
        eventually(&format!("staleness: {because}"), async || match self.now().stale {
            Some(stale) if stale.reason.contains(because) => Ok(stale.reason),
            _ => Err(format!("{:#?}", self.now())),
        })
        .await
    }

    /// Waits until only this service is stale, and returns its report.
    pub(crate) async fn wait_until_service_stale(
        &self,
        service: &str,
        because: &str,
    ) -> Arc<ServiceReport> {
        self.wait_until(&format!("staleness of {service}: {because}"), service, |found| {
            found.stale.iter().any(|stale| stale.reason.contains(because))
        })
        .await
    }

    /// Waits until a service has this problem, and returns its report.
    pub(crate) async fn wait_for_problem(
        &self,
        service: &str,
        instance: &str,
        words: &str,
    ) -> Arc<ServiceReport> {
        self.wait_until(&format!("{instance}: {words}"), service, |found| {
            let mut problems = found.problems.iter();
            problems.any(|one| one.instance == instance && one.reason.contains(words))
        })
        .await
    }
}

/// The addresses of the endpoints.
pub(crate) fn at(found: &ServiceReport) -> BTreeSet<String> {
    found.endpoints.iter().map(|found| found.address.to_string()).collect()
}

/// A query for the machines of a scale set.
pub(crate) fn scale_set(name: &str) -> AzureQuery {
    AzureQuery {
        machines: AzureMachines::ScaleSet(Some(name.into())),
        subscription: None,
        resource_group: None,
        tags: BTreeMap::new(),
        port: Some(8080),
        address_family: AddressFamily::Ipv4,
        join: None,
    }
}

/// A query for machines outside scale sets, or for scale sets, with a tag.
pub(crate) fn tagged(machines: AzureMachines, name: &str, value: &str) -> AzureQuery {
    AzureQuery { machines, tags: [(name.into(), value.into())].into(), ..scale_set("") }
}

/// A policy that defines these services.
pub(crate) fn specification<'a>(
    services: impl IntoIterator<Item = (&'a str, Vec<AzureQuery>)>,
) -> Arc<MeshSpecification> {
    let service = |(name, azure): (&str, Vec<AzureQuery>)| {
        let service = Service {
            name: name.parse().unwrap(),
            account: name.parse().unwrap(),
            ports: Vec::new(),
            endpoints: EndpointSource::Providers(Providers { azure, ..Providers::default() }),
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
