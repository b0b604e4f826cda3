//! Whether there is anybody in the places that a service's `locality` names.

use std::collections::BTreeSet;

use super::classifier::EndpointClassifier;
use crate::codes::NOWHERE;
use crate::endpoint::Endpoint;
use crate::finding::Finding;
use crate::locality::Locality;
use crate::policy::UpstreamTrafficSetting;

impl EndpointClassifier<'_> {
    /// Places that `setting` sends calls to, where none of the service's endpoints is; or that of none of
    /// them is known where it is. Mostly a place is called otherwise by a provider.
    pub(super) fn nowhere(
        &self,
        setting: &UpstreamTrafficSetting,
        endpoints: &[Endpoint],
    ) -> Option<Finding> {
        let locality = setting.locality.as_ref()?;
        if self.is_drained || self.service.external.is_some() || endpoints.is_empty() {
            return None;
        }
        let place = |endpoint: &Endpoint| {
            let mut records = self.front(endpoint).proxies().iter();
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
            return Some(Finding::warning(NOWHERE, spot, message).label("does nothing").help(help));
        }
        let ordered = locality.failover.iter().flat_map(|one| &one.to);
        let shared = locality.distribute.iter().flat_map(|one| &one.to).map(|(to, _)| to);
        let is_nowhere = |to: &&Locality| !places.iter().any(|place| to.includes(place));
        let nowhere: BTreeSet<_> = ordered.chain(shared).filter(is_nowhere).collect();
        if nowhere.is_empty() {
            return None;
        }
        let quoted = |places: &mut dyn Iterator<Item = &Locality>| {
            places.map(|place| format!("`{place}`")).collect::<Vec<_>>().join(", ")
        };
        let message =
            format!("no endpoint of service `{name}` is in {}", quoted(&mut nowhere.into_iter()));
        let known = quoted(&mut places.iter().filter(|place| !place.is_empty()));
        let help = format!("its endpoints are in {known}");
        Some(Finding::warning(NOWHERE, spot, message).label("no endpoint there").help(help))
    }
}
