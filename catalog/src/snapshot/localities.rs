//! Findings about localities that a service's `locality` names and that have no endpoint.

use std::collections::BTreeSet;

use super::classifier::EndpointClassifier;
use crate::codes::LOCALITY_WITHOUT_ENDPOINTS;
use crate::endpoint::Endpoint;
use crate::finding::Finding;
use crate::locality::Locality;
use crate::policy::UpstreamTrafficSetting;

impl EndpointClassifier<'_> {
    /// A finding about localities in `setting` without an endpoint of the service, or if the locality of no endpoint
    /// is known. Often the provider uses a different name for a locality.
    pub(super) fn unmatched_localities(
        &self,
        setting: &UpstreamTrafficSetting,
        endpoints: &[Endpoint],
    ) -> Option<Finding> {
        let locality = setting.locality.as_ref()?;
        if self.is_drained || self.service.external.is_some() || endpoints.is_empty() {
            return None;
        }
        let place = |endpoint: &Endpoint| {
            let mut records = self.proxy_match(endpoint).proxies().iter();
            let of_proxy = || records.next().map(|record| record.locality.clone());
            let own = Some(endpoint.locality.clone()).filter(|own| !own.is_empty());
            own.or_else(of_proxy).unwrap_or_default()
        };
        let places: BTreeSet<Locality> = endpoints.iter().map(place).collect();
        let name = &self.service.name;
        let spot = Some(setting.spot.clone());
        if places.iter().all(Locality::is_empty) {
            let message = format!(
                "`locality` of service `{name}` has no effect: no locality of its endpoints is known"
            );
            let help = "enroll proxies with `--locality`, set `locality` in the list of endpoints, or read it from Consul (`[consul.locality]` in the settings)";
            return Some(
                Finding::warning(LOCALITY_WITHOUT_ENDPOINTS, spot, message)
                    .object(name)
                    .label("does nothing")
                    .help(help),
            );
        }
        let ordered = locality.failover.iter().flat_map(|one| &one.to);
        let shared = locality.distribute.iter().flat_map(|one| &one.to).map(|(to, _)| to);
        let is_unmatched = |to: &&Locality| !places.iter().any(|place| to.includes(place));
        let unmatched: BTreeSet<_> = ordered.chain(shared).filter(is_unmatched).collect();
        if unmatched.is_empty() {
            return None;
        }
        let quoted = |places: &mut dyn Iterator<Item = &Locality>| {
            places.map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ")
        };
        let message =
            format!("no endpoint of service `{name}` is in {}", quoted(&mut unmatched.into_iter()));
        let known = quoted(&mut places.iter().filter(|place| !place.is_empty()));
        let help = format!("its endpoints are in {known}");
        Some(
            Finding::warning(LOCALITY_WITHOUT_ENDPOINTS, spot, message)
                .object(name)
                .label("no endpoint there")
                .help(help),
        )
    }
}
