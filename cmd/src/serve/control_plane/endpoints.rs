//! What is told of endpoints.

use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_admin::{
    Accepted, EndpointList, EndpointRow, ProxyWithout, Refusal, ServiceEndpoints,
};
use ironmesh_catalog::snapshot::{Absence, Standing, State};
use ironmesh_catalog::{Records, Service, ServiceName, Snapshot};
use ironmesh_config::closest;

use super::RunningControlPlane;

impl RunningControlPlane {
    /// The endpoints of a service, or of all.
    pub(super) fn endpoint_list(
        &self,
        service: Option<&ServiceName>,
    ) -> Result<EndpointList, Refusal> {
        let snapshot = self.snapshot()?;
        let services: Vec<_> = match service {
            None => snapshot.specification.services.values().cloned().collect(),
            Some(name) => vec![known(&snapshot, name)?],
        };
        let past = self.register.all_records();
        let services = services.iter().map(|service| of_service(&snapshot, service, &past));
        Ok(EndpointList { providers: Vec::new(), services: services.collect() })
    }

    /// Believes what the providers of a service tell, though it is doubted.
    pub(super) fn accept(&self, service: &ServiceName) -> Result<Accepted, Refusal> {
        let snapshot = self.snapshot()?;
        let service = &known(&snapshot, service)?.name;
        Err(Refusal::Request(format!("nothing is doubted of service `{service}`")))
    }

    fn snapshot(&self) -> Result<Arc<Snapshot>, Refusal> {
        let none = || Refusal::Failure("there is no policy in force yet; see /readyz".to_owned());
        self.outlook.snapshot.borrow().clone().ok_or_else(none)
    }
}

/// The service of that name.
fn known(snapshot: &Snapshot, name: &ServiceName) -> Result<Arc<Service>, Refusal> {
    snapshot.service(name).cloned().ok_or_else(|| {
        let names: Vec<_> =
            snapshot.specification.services.keys().map(ToString::to_string).collect();
        let near = closest(&name.to_string(), names.iter().map(String::as_str));
        let advice = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        Refusal::Unknown(format!("policy defines no service `{name}`{advice}"))
    })
}

fn of_service(snapshot: &Snapshot, service: &Service, past: &Records) -> ServiceEndpoints {
    let standings = snapshot.standings(&service.name, past);
    let without = |one: &Standing| {
        let id = one.proxy.filter(|_| one.endpoint.is_none())?;
        Some(ProxyWithout { id, mesh_address: one.mesh_address? })
    };
    ServiceEndpoints {
        service: service.name.clone(),
        drained: service.drained,
        sources: Vec::new(),
        without_endpoint: standings.iter().filter_map(without).collect(),
        endpoints: standings.into_iter().filter_map(|one| row(service, one)).collect(),
        conflicts: Vec::new(),
    }
}

/// An endpoint; none for a proxy that has none.
fn row(service: &Service, standing: Standing) -> Option<EndpointRow> {
    let endpoint = standing.endpoint?;
    let application = || {
        let target = match &service.ports[..] {
            [only] => Some(only.target),
            _ => None,
        };
        Some(SocketAddr::new(endpoint.address, endpoint.port.or(target)?))
    };
    let dialled_at = match &standing.state {
        _ if service.ports.is_empty() => None,
        State::Participant => standing.mesh_address,
        State::Plaintext(_) | State::Outside => application(),
        State::Out(_) => None,
    };
    let (word, reason) = words(&standing.state);
    Some(EndpointRow {
        dialled_at,
        address: endpoint.address,
        port: endpoint.port,
        provider: endpoint.provider,
        instance: endpoint.instance.map(|name| name.to_string()),
        health: endpoint.health,
        locality: endpoint.locality,
        weight: endpoint.weight,
        labels: endpoint.labels,
        proxy: standing.proxy,
        standing: word.to_owned(),
        reason,
        since: None,
        flapping: false,
    })
}

/// Whether an endpoint is called, in a word; and why not, in words.
fn words(state: &State) -> (&'static str, Option<String>) {
    match state {
        State::Participant => ("participant", None),
        State::Outside => ("outside", None),
        State::Plaintext(absence) => ("plaintext", Some(absence.to_string())),
        State::Out(absence) => (word(absence), Some(absence.to_string())),
    }
}

fn word(absence: &Absence) -> &'static str {
    match absence {
        Absence::Drained => "drained",
        Absence::NoProxy => "no_proxy",
        Absence::SeveralProxies { .. } => "several_proxies",
        Absence::Unclaimed => "unclaimed",
        Absence::NotTaken { .. } => "not_taken",
        Absence::Suspect { .. } => "suspect",
        Absence::Revoked => "revoked",
        Absence::Expired => "expired",
        Absence::NoEndpoint => "no_endpoint",
    }
}
