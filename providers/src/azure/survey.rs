//! A single pass over Azure without effects: the calls, their answers and the resulting endpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_catalog::{AzureQuery, ServiceName};
use jiff::Timestamp;

use super::arm::Arm;
use super::collector::with_defaults;
use super::error::AzureError;
use super::options::AzureOptions;
use super::poll::Poll;
use crate::ProviderReport;

/// The result of a survey.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// The calls, in the order of their answers.
    pub calls: Vec<Call>,
    /// The resulting report, as of [`crate::EndpointsProvider`].
    pub report: ProviderReport,
}

/// One call to Azure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// The URL of the request. It holds no secret.
    pub url: String,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// A summary of the answer, or the reason why there is none.
    pub answer: String,
    /// The missing right, if that is why the call failed.
    pub missing: Option<MissingRight>,
    /// The duration of the call.
    pub took: Duration,
}

/// A right that the credential lacks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRight {
    /// The action, as roles name it: `Microsoft.Compute/virtualMachineScaleSets/read`.
    pub action: String,
    /// The scope of the right, as a resource id.
    pub scope: String,
}

/// Requests all lists that these services need, once.
///
/// # Errors
///
/// As [`super::Azure::start`]. A failed call is no error: the survey lists it.
pub async fn survey(
    options: AzureOptions,
    services: BTreeMap<ServiceName, Vec<AzureQuery>>,
    clock: fn() -> Timestamp,
) -> Result<Survey, AzureError> {
    let arm = Arm::new(&options, clock, true)?;
    let mut poll = Poll::new(&options);
    let queries =
        services.iter().map(|(name, queries)| (name.clone(), with_defaults(queries, &options)));
    poll.follow(queries.collect(), clock());
    let (mut seen, mut calls) = (BTreeSet::new(), Vec::new());
    while let Some((list, may_be_of_graph)) = poll.next() {
        // A survey does not repeat failed or periodic requests.
        if !seen.insert(list.clone()) {
            continue;
        }
        let outcome = list.ask(&arm, options.resource_graph && may_be_of_graph).await;
        let mut made = arm.http.noted();
        if outcome.answer.is_ok() {
            // A fallback succeeded in place of the failed call: no right is missing.
            for call in &mut made {
                call.missing = None;
            }
        }
        calls.extend(made);
        poll.take(&list, outcome, false, clock());
    }
    let report = poll.news().unwrap_or_default().report;
    Ok(Survey { calls, report })
}
