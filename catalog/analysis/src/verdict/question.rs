//! Questions about calls, and the errors of questions without an answer.

use std::collections::BTreeSet;

use ironmesh_catalog::name::{ServiceAccount, ServiceName};
use ironmesh_catalog::service::{Port, Service};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::host;
use super::request::Request;

/// A question about a call within the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Question {
    /// The account that calls.
    pub caller: ServiceAccount,
    /// The service that it calls.
    pub service: ServiceName,
    /// The service's port. Default: its only port, or 80.
    pub port: Option<u16>,
    /// The request; without one, the question is about every request.
    pub request: Option<Request>,
}

/// The reason why a question has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// There is no account of that name.
    #[error("policy knows no service account `{account}`")]
    UnknownAccount {
        /// The name.
        account: ServiceAccount,
        /// The names of accounts in policy.
        known: Vec<String>,
    },
    /// There is no service of that name.
    #[error("policy defines no service `{service}`")]
    UnknownService {
        /// The name.
        service: ServiceName,
        /// The names of services in policy.
        known: Vec<String>,
    },
    /// There is no such port, or the service has several.
    #[error("{0}")]
    Port(String),
    /// The request is impossible.
    #[error("{0}")]
    Request(String),
}

impl Question {
    /// The service and the port of the question, if it has an answer.
    pub(super) fn find<'a>(
        &self,
        snapshot: &'a Snapshot,
    ) -> Result<(&'a Service, &'a Port), QuestionError> {
        let service = known_service(snapshot, &self.service)?;
        known_account(snapshot, &self.caller)?;
        let port = port_of(service, self.port)?;
        let Some(request) = &self.request else { return Ok((service, port)) };
        check_request(service, port, request)?;
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

/// Checks that policy has an account of this name.
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

/// Checks that policy can distinguish requests on this port, and that the request is possible.
pub(super) fn check_request(
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

/// The port of this number; without a number, the only port, or 80.
pub(super) fn port_of(service: &Service, number: Option<u16>) -> Result<&Port, QuestionError> {
    let found = match (number, service.ports.as_slice()) {
        (Some(number), _) => service.port(number),
        (None, [only]) => Some(only),
        (None, ports) => ports.iter().find(|port| port.number == 80),
    };
    found.ok_or_else(|| {
        let ports: Vec<_> = service.ports.iter().map(|port| port.number.to_string()).collect();
        let name = &service.name;
        QuestionError::Port(match (number, ports.join(", ")) {
            (_, ports) if ports.is_empty() => {
                format!("`{name}` has no ports, so nothing can call it")
            }
            (Some(port), ports) => format!("`{name}` has no port {port}; it has: {ports}"),
            (None, ports) => format!("`{name}` has several ports; say which: {ports}"),
        })
    })
}

/// The accounts of policy: those of services, and those that traffic targets and egresses name.
fn accounts(snapshot: &Snapshot) -> BTreeSet<ServiceAccount> {
    let services = snapshot.specification.services.values();
    let of_services = services.map(|service| service.account.clone());
    let grants = snapshot.grants.by_target().values();
    let named = grants.flat_map(|grant| grant.sources.iter().chain(&grant.destinations).cloned());
    let egress_verdict = snapshot.specification.egresses.values();
    let egress_verdict = egress_verdict.flat_map(|egress| egress.sources.iter().cloned());
    of_services.chain(named).chain(egress_verdict).collect()
}
