//! The report of `ironmesh provider azure test`, as text and as JSON (docs/reference/json.md). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ironmesh_api::ReportedHealth;
use ironmesh_catalog::{AzureQuery, Endpoint, ServiceName};
use ironmesh_providers::Problem;
use ironmesh_providers::azure::{Call, Survey};
use serde::Serialize;

/// The result of one survey of Azure.
#[derive(Debug, Serialize)]
pub(super) struct AzureTestReport {
    /// Whether Azure answered every query.
    #[serde(rename = "good")]
    pub(super) is_good: bool,
    /// Why no query could be sent; `None` if Azure was reachable.
    stale: Option<String>,
    calls: Vec<CallResult>,
    services: Vec<ServiceResult>,
    /// The missing rights, each once.
    missing_rights: BTreeSet<MissingRight>,
}

/// One call of the Azure API.
#[derive(Debug, Serialize)]
struct CallResult {
    method: &'static str,
    url: String,
    status: Option<u16>,
    answer: String,
    milliseconds: u128,
}

/// The result for one service.
#[derive(Debug, Serialize)]
struct ServiceResult {
    service: ServiceName,
    /// The queries, in words.
    queries: Vec<String>,
    /// Why there is no answer; `None` if there is one.
    error: Option<String>,
    endpoints: Vec<Endpoint>,
    problems: Vec<UnusableInstance>,
}

/// An instance that cannot be used.
#[derive(Debug, Serialize)]
struct UnusableInstance {
    instance: String,
    reason: String,
}

/// An action that the control plane's role in Azure lacks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct MissingRight {
    action: String,
    scope: String,
}

impl AzureTestReport {
    pub(super) fn new(queries: &BTreeMap<ServiceName, Vec<AzureQuery>>, found: &Survey) -> Self {
        let report = &found.report;
        let service = |(name, queries): (&ServiceName, &Vec<AzureQuery>)| {
            let service_report = report.services.get(name);
            let stale_service = service_report.and_then(|one| one.stale.as_ref());
            let stale = stale_service.or_else(|| report.troubles.get(name));
            let unanswered = || service_report.is_none().then(|| "no answer".to_owned());
            let problem = |Problem { instance, reason }: &Problem| UnusableInstance {
                instance: instance.clone(),
                reason: reason.clone(),
            };
            let problems = service_report.iter().flat_map(|one| one.problems.iter());
            ServiceResult {
                service: name.clone(),
                queries: queries.iter().map(ToString::to_string).collect(),
                error: stale.map(|stale| stale.reason.clone()).or_else(unanswered),
                endpoints: service_report.map(|one| one.endpoints.to_vec()).unwrap_or_default(),
                problems: problems.map(problem).collect(),
            }
        };
        let services: Vec<_> = queries.iter().map(service).collect();
        let missing = found.calls.iter().filter_map(|call| call.missing.as_ref());
        let stale = report.stale.as_ref().map(|stale| stale.reason.clone());
        Self {
            is_good: stale.is_none() && services.iter().all(|one| one.error.is_none()),
            stale,
            calls: found.calls.iter().map(CallResult::new).collect(),
            services,
            missing_rights: missing
                .map(|right| MissingRight {
                    action: right.action.clone(),
                    scope: right.scope.clone(),
                })
                .collect(),
        }
    }

    /// The report for people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // (Writing to a string does not fail.)
        for call in &self.calls {
            let status = call.status.map_or_else(|| "---".to_owned(), |status| status.to_string());
            let CallResult { method, url, answer, milliseconds, .. } = call;
            let _ = writeln!(text, "{status} {method} {url}\n      {answer} ({milliseconds} ms)");
        }
        for service in &self.services {
            let _ = writeln!(text, "\n{}, {}", service.service, service.queries.join("; and "));
            if let Some(error) = &service.error {
                let _ = writeln!(text, "  no answer: {error}");
            } else if service.endpoints.is_empty() {
                let _ = writeln!(text, "  no endpoints");
            }
            for endpoint in &service.endpoints {
                let _ = writeln!(text, "  {}", endpoint_text(endpoint));
            }
            for UnusableInstance { instance, reason } in &service.problems {
                let _ = writeln!(text, "  `{instance}` cannot be used: {reason}");
            }
        }
        if let Some(stale) = &self.stale {
            let _ = writeln!(text, "\nAzure cannot be queried: {stale}");
        }
        if !self.missing_rights.is_empty() {
            let _ = writeln!(
                text,
                "\nmissing rights: assign a role with these actions to the control plane's identity in Azure"
            );
        }
        for MissingRight { action, scope } in &self.missing_rights {
            let _ = writeln!(text, "  {action} at {scope}");
        }
        let endpoints: usize = self.services.iter().map(|one| one.endpoints.len()).sum();
        let calls = self.calls.len();
        let _ = writeln!(text, "\ncalls {calls}, endpoints {endpoints}");
        // Text of other parties must not control the terminal.
        text.replace(|c: char| c.is_control() && c != '\n', " ")
    }
}

impl CallResult {
    fn new(call: &Call) -> Self {
        Self {
            method: call.method,
            url: call.url.clone(),
            status: call.status,
            answer: call.answer.clone(),
            milliseconds: call.took.as_millis(),
        }
    }
}

/// An endpoint as one line.
fn endpoint_text(endpoint: &Endpoint) -> String {
    let Endpoint { address, port, machine, labels, health, locality, instance, .. } = endpoint;
    let port = port.map(|port| format!(" port {port}")).unwrap_or_default();
    let health = ReportedHealth::of(*health, endpoint.probed);
    let mut text = format!("{address}{port}, {health}");
    let locality = locality.to_string();
    if !locality.is_empty() {
        let _ = write!(text, ", {locality}");
    }
    if !labels.is_empty() {
        let _ = write!(text, ", {labels}");
    }
    if let Some(machine) = machine {
        let _ = write!(text, ", vmId {machine}");
    }
    if let Some(instance) = instance {
        let _ = write!(text, ", {instance}");
    }
    text
}
