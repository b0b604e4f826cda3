//! Findings about endpoints that a provider reports and policy excludes.

use super::classifier::EndpointClassifier;
use crate::codes::EXCLUDED_ENDPOINT;
use crate::endpoint::Endpoint;
use crate::endpoint::Exclusion;
use crate::finding::Finding;
use crate::object_ref::ObjectRef;

/// So many endpoints of a service are named one by one.
const FEW: usize = 3;

impl EndpointClassifier<'_> {
    /// One finding for each of the first few excluded `endpoints`, and one for the rest.
    pub(super) fn excluded(&self, endpoints: &[Endpoint]) -> Vec<Finding> {
        let excluded: Vec<_> =
            endpoints.iter().filter_map(|one| Some((one, one.exclusion?))).collect();
        let rest = excluded.len().saturating_sub(FEW);
        let few = excluded.into_iter().take(FEW);
        let mut findings: Vec<_> = few.map(|(one, why)| self.exclusion(one, why)).collect();
        if rest > 0 {
            let name = &self.service.name;
            let message = format!("{rest} more endpoints of service `{name}` are excluded");
            let help = format!("`ironmesh endpoints {name}` lists them all");
            findings.push(self.warning(message).object(name).help(help));
        }
        findings
    }

    fn exclusion(&self, endpoint: &Endpoint, why: Exclusion) -> Finding {
        let Endpoint { address, provider, .. } = endpoint;
        let name = &self.service.name;
        let reported = endpoint.port.unwrap_or_default();
        let target = self.service.ports.first().map(|port| port.target).unwrap_or_default();
        let (what, help) = match why {
            Exclusion::LocalAddress => (
                "an address that every machine has (loopback or link-local)".to_owned(),
                "register it with the address at which other machines reach it; where the whole mesh runs \
                 on one machine: `allow_local_addresses = true` in `[endpoints]` of the settings"
                    .to_owned(),
            ),
            Exclusion::MeshPort => (
                format!("port {reported}, which belongs to Ironmesh on every machine"),
                "let the application listen on another port, and register that".to_owned(),
            ),
            Exclusion::Port => (
                format!("port {reported}, and policy allows target port {target}"),
                format!(
                    "register it with port {target}; where port {reported} is meant: set `target_port` \
                     of the service port, or list it: `allowed_target_ports = [{reported}]` (a range for \
                     dynamic ports: `[\"20000-32000\"]`)"
                ),
            ),
        };
        let message = format!(
            "endpoint {address} of service `{name}` gets no traffic: {provider} reports {what}"
        );
        let object = ObjectRef::Endpoint(name.clone(), *address);
        self.warning(message).object(object).help(help)
    }

    fn warning(&self, message: String) -> Finding {
        Finding::warning(EXCLUDED_ENDPOINT, Some(self.service.spot.clone()), message)
            .label("excluded endpoints")
    }
}
