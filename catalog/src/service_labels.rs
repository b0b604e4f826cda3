//! The labels of one service's endpoints and proxies, with who set each.
//!
//! Identity bindings select by these. This module decides which labels count for a set of trusted
//! providers; it never decides who may call.

use std::collections::{BTreeMap, BTreeSet};

use crate::endpoint::{Endpoint, Provider, ProviderKind};
use crate::labels::Labels;
use crate::proxy::ProxyId;
use crate::proxy_index::ProxyIndex;

/// The labels of one service's endpoints and proxies.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServiceLabels {
    endpoints: Vec<EndpointLabels>,
    proxies: Vec<ProxyLabels>,
}

/// The labels of one endpoint, as each provider that found it reports them. The first has precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EndpointLabels {
    reports: Vec<ReportedLabels>,
}

/// Labels that one provider reports for an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportedLabels {
    pub(crate) provider: Provider,
    /// Whether a tag added the endpoint: then no binding can trust its labels.
    pub(crate) selected_by_tag: bool,
    pub(crate) labels: Labels,
}

/// The labels of a join record, and the endpoints of that proxy, by index.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProxyLabels {
    labels: Labels,
    endpoints: Vec<usize>,
}

impl ServiceLabels {
    /// The labels of `endpoints`, which are all of one service, and of its `proxies`.
    pub(crate) fn new(endpoints: &[Endpoint], proxies: &ProxyIndex) -> Self {
        // A registered endpoint repeats the labels of its join record.
        let has_labels_of_its_own =
            |one: &&Endpoint| one.provider != Provider::Registered && one.exclusion.is_none();
        let endpoints: Vec<_> = endpoints.iter().filter(has_labels_of_its_own).collect();
        let mut of_proxy: BTreeMap<ProxyId, Vec<usize>> = BTreeMap::new();
        for (n, endpoint) in endpoints.iter().enumerate() {
            for record in proxies.candidates(endpoint) {
                of_proxy.entry(record.id).or_default().push(n);
            }
        }
        let proxies = proxies.all().map(|record| ProxyLabels {
            labels: record.labels.clone(),
            endpoints: of_proxy.remove(&record.id).unwrap_or_default(),
        });
        let proxies = proxies.collect();
        Self { endpoints: endpoints.into_iter().map(EndpointLabels::of).collect(), proxies }
    }

    /// The labels of each place where the service may run, as far as operators or `trusted` providers set
    /// them. A proxy whose record has no labels has those of a trusted endpoint behind it.
    pub(crate) fn trusted_by(&self, trusted: &BTreeSet<Provider>) -> Vec<&Labels> {
        let of_endpoints: Vec<_> =
            self.endpoints.iter().map(|endpoint| endpoint.trusted_by(trusted)).collect();
        let adds_a_place = |proxy: &&ProxyLabels| {
            let mut of_proxy = proxy.endpoints.iter().filter_map(|n| *of_endpoints.get(*n)?);
            !of_proxy.any(|labels| proxy.labels.is_empty() || proxy.labels == *labels)
        };
        let of_proxies = self.proxies.iter().filter(adds_a_place).map(|proxy| &proxy.labels);
        of_endpoints.iter().copied().flatten().chain(of_proxies).collect()
    }

    /// The reports that a binding with these `trusted` providers ignores.
    pub(crate) fn ignored_by(
        &self,
        trusted: &BTreeSet<Provider>,
    ) -> impl Iterator<Item = &ReportedLabels> {
        let reports = self.endpoints.iter().flat_map(|endpoint| &endpoint.reports);
        reports.filter(|report| !report.is_trusted_by(trusted))
    }
}

impl EndpointLabels {
    fn of(endpoint: &Endpoint) -> Self {
        let own = ReportedLabels {
            provider: endpoint.provider,
            selected_by_tag: endpoint.selected_by_tag,
            labels: endpoint.labels.clone(),
        };
        let others = endpoint.other_labels.iter().map(|(provider, labels)| ReportedLabels {
            provider: *provider,
            selected_by_tag: false,
            labels: labels.clone(),
        });
        Self { reports: [own].into_iter().chain(others).collect() }
    }

    fn trusted_by(&self, trusted: &BTreeSet<Provider>) -> Option<&Labels> {
        let report = self.reports.iter().find(|report| report.is_trusted_by(trusted));
        report.map(|report| &report.labels)
    }
}

impl ReportedLabels {
    fn is_trusted_by(&self, trusted: &BTreeSet<Provider>) -> bool {
        match self.provider.kind() {
            ProviderKind::Policy => true,
            // Join records state these labels themselves.
            ProviderKind::JoinRecords => false,
            ProviderKind::External => !self.selected_by_tag && trusted.contains(&self.provider),
        }
    }
}
