//! Questions about calls, and why some have no answer.

use std::collections::BTreeSet;

use ironmesh_catalog::name::{ServiceAccount, ServiceName};
use ironmesh_catalog::service::{Port, Service};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::host;
use super::request::Request;

/// A call that is asked about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Question {
    /// Who calls.
    pub caller: ServiceAccount,
    /// What it calls.
    pub service: ServiceName,
    /// The service's port; its only one where left out, or 80.
    pub port: Option<u16>,
    /// The request; all there may be where left out.
    pub request: Option<Request>,
}

/// A question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// No account of that name.
    #[error("policy knows no service account `{account}`")]
    UnknownAccount {
        /// The name.
        account: ServiceAccount,
        /// The names that it knows.
        known: Vec<String>,
    },
    /// No service of that name.
    #[error("policy defines no service `{service}`")]
    UnknownService {
        /// The name.
        service: ServiceName,
        /// The names that it defines.
        known: Vec<String>,
    },
    /// No such port, or several to choose from.
    #[error("{0}")]
    Port(String),
    /// A request that cannot be made.
    #[error("{0}")]
    Request(String),
}

impl Question {
    /// The service and the port that are asked about, if the question has an answer.
    pub(super) fn find<'a>(
        &self,
        snapshot: &'a Snapshot,
    ) -> Result<(&'a Service, &'a Port), QuestionError> {
        let service = known_service(snapshot, &self.service)?;
        known_account(snapshot, &self.caller)?;
        let port = port_of(service, self.port)?;
        let Some(request) = &self.request else { return Ok((service, port)) };
        can_be_asked(service, port, request)?;
        match host::problem(snapshot, &self.caller, service, port, request) {
            Some(problem) => Err(QuestionError::Request(problem)),
            None => Ok((service, port)),
        }
    }
}

/// The service of this name.
pub(super) fn known_service<'a>(
    snapshot: &'a Snapshot,
    name: &ServiceName,
) -> Result<&'a Service, QuestionError> {
    let services = &snapshot.specification.services;
    services.get(name).map(|service| &**service).ok_or_else(|| {
        let known = services.keys().map(ToString::to_string).collect();
        QuestionError::UnknownService { service: name.clone(), known }
    })
}

/// That policy knows an account of this name.
pub(super) fn known_account(
    snapshot: &Snapshot,
    account: &ServiceAccount,
) -> Result<(), QuestionError> {
    let accounts = accounts(snapshot);
    if accounts.contains(account) {
        return Ok(());
    }
    let known = accounts.iter().map(ToString::to_string).collect();
    Err(QuestionError::UnknownAccount { account: account.clone(), known })
}

/// That a request can be told from another on this port, and that somebody can make it.
pub(super) fn can_be_asked(
    service: &Service,
    port: &Port,
    request: &Request,
) -> Result<(), QuestionError> {
    let problem = if port.protocol.is_http() {
        request.problem()
    } else {
        Some(format!(
            "port {} of `{}` is not HTTP, so policy cannot distinguish requests: leave out the method, the path and headers",
            port.number, service.name
        ))
    };
    problem.map_or(Ok(()), |problem| Err(QuestionError::Request(problem)))
}

/// The port of this number; where none is given, the only one, or 80.
pub(super) fn port_of(service: &Service, asked: Option<u16>) -> Result<&Port, QuestionError> {
    let found = match (asked, service.ports.as_slice()) {
        (Some(number), _) => service.port(number),
        (None, [only]) => Some(only),
        (None, ports) => ports.iter().find(|port| port.number == 80),
    };
    found.ok_or_else(|| {
        let ports: Vec<_> = service.ports.iter().map(|port| port.number.to_string()).collect();
        let name = &service.name;
        QuestionError::Port(match (asked, ports.join(", ")) {
            (_, ports) if ports.is_empty() => {
                format!("`{name}` has no ports, so nothing can call it")
            }
            (Some(port), ports) => format!("`{name}` has no port {port}; it has: {ports}"),
            (None, ports) => format!("`{name}` has several ports; say which: {ports}"),
        })
    })
}

/// The accounts that policy knows: as which services run, and which targets and egresses come to name.
fn accounts(snapshot: &Snapshot) -> BTreeSet<ServiceAccount> {
    let services = snapshot.specification.services.values();
    let of_services = services.map(|service| service.account.clone());
    let grants = snapshot.grants.by_target().values();
    let named = grants.flat_map(|grant| grant.sources.iter().chain(&grant.destinations).cloned());
    let outward = snapshot.specification.egresses.values();
    let outward = outward.flat_map(|egress| egress.sources.iter().cloned());
    of_services.chain(named).chain(outward).collect()
}
