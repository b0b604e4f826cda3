//! A look at Azure that changes nothing: which calls are made, what is answered, and what endpoints come of it.

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

/// What a look has found.
#[derive(Debug, Clone, Default)]
pub struct Survey {
    /// The calls, in the order in which they were answered.
    pub calls: Vec<Call>,
    /// What is known after it, as [`crate::EndpointsProvider`] tells it.
    pub sightings: ProviderReport,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `GET` or `POST`.
    pub method: &'static str,
    /// What was asked. Nothing in it is a secret.
    pub url: String,
    /// With which status it was answered, if at all.
    pub status: Option<u16>,
    /// The answer in short, or why there is none.
    pub answer: String,
    /// The right that is missing, where that is why it was refused.
    pub missing: Option<MissingRight>,
    /// How long it took.
    pub took: Duration,
}

/// A right that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingRight {
    /// The action, as roles name it: `Microsoft.Compute/virtualMachineScaleSets/read`.
    pub action: String,
    /// Where it is missing, as a resource id.
    pub scope: String,
}

/// Asks all that these services ask, once.
///
/// # Errors
///
/// As [`super::Azure::start`]. That something is refused is none: it is in the calls.
pub async fn survey(
    options: AzureOptions,
    services: BTreeMap<ServiceName, Vec<AzureQuery>>,
    clock: fn() -> Timestamp,
) -> Result<Survey, AzureError> {
    let arm = Arm::new(&options, clock, true)?;
    let mut poll = Poll::new(&options);
    let asked = services.iter().map(|(name, asked)| (name.clone(), with_defaults(asked, &options)));
    poll.follow(asked.collect(), clock());
    let (mut seen, mut calls) = (BTreeSet::new(), Vec::new());
    while let Some((list, may_be_of_graph)) = poll.next() {
        // What has failed, or is asked for again, is for who follows.
        if !seen.insert(list.clone()) {
            continue;
        }
        let asked = list.ask(&arm, options.resource_graph && may_be_of_graph).await;
        let mut made = arm.http.noted();
        if asked.answer.is_ok() {
            // What was refused was answered in another way: nothing is missing.
            for call in &mut made {
                call.missing = None;
            }
        }
        calls.extend(made);
        poll.take(&list, asked, false, clock());
    }
    let sightings = poll.news().unwrap_or_default().sightings;
    Ok(Survey { calls, sightings })
}
