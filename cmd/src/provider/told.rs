//! What a look at Azure has found, told for people and for machines. Pure. (docs/reference/json.md)

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ironmesh_admin::ReportedHealth;
use ironmesh_catalog::{AzureQuery, Endpoint, ServiceName};
use ironmesh_providers::Problem;
use ironmesh_providers::azure::{Call, Survey};
use serde::Serialize;

/// What a look has found.
#[derive(Debug, Serialize)]
pub(super) struct Told {
    /// Whether all was answered.
    #[serde(rename = "good")]
    pub(super) is_good: bool,
    /// Why nobody can be asked; none where somebody could.
    stale: Option<String>,
    calls: Vec<ToldCall>,
    services: Vec<ToldService>,
    /// The rights that are missing, each once.
    missing_rights: BTreeSet<MissingRight>,
}

#[derive(Debug, Serialize)]
struct ToldCall {
    method: &'static str,
    url: String,
    status: Option<u16>,
    answer: String,
    milliseconds: u128,
}

#[derive(Debug, Serialize)]
struct ToldService {
    service: ServiceName,
    /// What is asked, in words.
    asks: Vec<String>,
    /// Why there is no answer; none where there is.
    trouble: Option<String>,
    endpoints: Vec<Endpoint>,
    problems: Vec<ToldProblem>,
}

#[derive(Debug, Serialize)]
struct ToldProblem {
    instance: String,
    reason: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct MissingRight {
    action: String,
    scope: String,
}

impl Told {
    pub(super) fn new(asked: &BTreeMap<ServiceName, Vec<AzureQuery>>, found: &Survey) -> Self {
        let sightings = &found.sightings;
        let service = |(name, queries): (&ServiceName, &Vec<AzureQuery>)| {
            let sighting = sightings.services.get(name);
            let of_sighting = sighting.and_then(|one| one.stale.as_ref());
            let stale = of_sighting.or_else(|| sightings.troubles.get(name));
            let unanswered = || sighting.is_none().then(|| "there was no answer".to_owned());
            let problem = |Problem { instance, reason }: &Problem| ToldProblem {
                instance: instance.clone(),
                reason: reason.clone(),
            };
            let problems = sighting.iter().flat_map(|one| one.problems.iter());
            ToldService {
                service: name.clone(),
                asks: queries.iter().map(ToString::to_string).collect(),
                trouble: stale.map(|stale| stale.reason.clone()).or_else(unanswered),
                endpoints: sighting.map(|one| one.endpoints.to_vec()).unwrap_or_default(),
                problems: problems.map(problem).collect(),
            }
        };
        let services: Vec<_> = asked.iter().map(service).collect();
        let missing = found.calls.iter().filter_map(|call| call.missing.as_ref());
        let stale = sightings.stale.as_ref().map(|stale| stale.reason.clone());
        Self {
            is_good: stale.is_none() && services.iter().all(|one| one.trouble.is_none()),
            stale,
            calls: found.calls.iter().map(ToldCall::new).collect(),
            services,
            missing_rights: missing
                .map(|right| MissingRight {
                    action: right.action.clone(),
                    scope: right.scope.clone(),
                })
                .collect(),
        }
    }

    /// For people.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        // (Writing to a string does not fail.)
        for call in &self.calls {
            let status = call.status.map_or_else(|| "---".to_owned(), |status| status.to_string());
            let ToldCall { method, url, answer, milliseconds, .. } = call;
            let _ = writeln!(text, "{status} {method} {url}\n      {answer} ({milliseconds} ms)");
        }
        for service in &self.services {
            let _ = writeln!(text, "\n{}, {}", service.service, service.asks.join("; and "));
            if let Some(trouble) = &service.trouble {
                let _ = writeln!(text, "  no answer: {trouble}");
            } else if service.endpoints.is_empty() {
                let _ = writeln!(text, "  no endpoints");
            }
            for endpoint in &service.endpoints {
                let _ = writeln!(text, "  {}", in_words(endpoint));
            }
            for ToldProblem { instance, reason } in &service.problems {
                let _ = writeln!(text, "  `{instance}` cannot be used: {reason}");
            }
        }
        if let Some(stale) = &self.stale {
            let _ = writeln!(text, "\nAzure cannot be asked: {stale}");
        }
        if !self.missing_rights.is_empty() {
            let _ = writeln!(
                text,
                "\nmissing: give a role with these actions to whom Azure knows us as"
            );
        }
        for MissingRight { action, scope } in &self.missing_rights {
            let _ = writeln!(text, "  {action} at {scope}");
        }
        let endpoints: usize = self.services.iter().map(|one| one.endpoints.len()).sum();
        let calls = self.calls.len();
        let _ = writeln!(text, "\ncalls {calls}, endpoints {endpoints}");
        // What others say moves nobody's cursor.
        text.replace(|c: char| c.is_control() && c != '\n', " ")
    }
}

impl ToldCall {
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

/// An endpoint in a line.
fn in_words(endpoint: &Endpoint) -> String {
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
