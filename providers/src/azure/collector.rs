//! The task that polls Azure and publishes reports. It never decides when a list is due (`poll`
//! does).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ironmesh_catalog::{AzureQuery, MeshSpecification, ServiceName};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep_until;

use super::arm::Arm;
use super::error::RequestError;
use super::list_state::Lists;
use super::lists::ListOutcome;
use super::options::AzureOptions;
use super::poll::Poll;
use super::report_builder::SharedReport;
use crate::ProviderReport;

/// The number of concurrent list requests.
const AT_ONCE: usize = 6;

pub(super) struct Collector {
    pub(super) options: AzureOptions,
    pub(super) clock: fn() -> Timestamp,
    pub(super) arm: Arc<Arm>,
    pub(super) specification: watch::Receiver<Arc<MeshSpecification>>,
    pub(super) polls: watch::Receiver<bool>,
    pub(super) adopted: watch::Receiver<SharedReport>,
    pub(super) reports: watch::Sender<ProviderReport>,
    pub(super) shared: watch::Sender<SharedReport>,
    /// The lists of the last answers; empty while another control plane polls.
    pub(super) lists: watch::Sender<Arc<Lists>>,
}

impl Collector {
    pub(super) async fn run(mut self) {
        let mut poll = Poll::new(&self.options);
        let mut running: JoinSet<ListOutcome> = JoinSet::new();
        let mut under_way = HashMap::new();
        // After the end of the sender, the last value stays.
        let mut may_change = true;
        let mut is_polling = *self.polls.borrow_and_update();
        loop {
            let free = is_polling && running.len() < AT_ONCE;
            let deadline = poll.deadline().filter(|_| free);
            tokio::select! {
                changed = self.specification.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let specification = Arc::clone(&self.specification.borrow_and_update());
                    poll.follow(queries(&specification, &self.options), (self.clock)());
                    // The adopted report may have services that are new here.
                    if !is_polling {
                        poll.builder.adopt(&self.adopted.borrow());
                    }
                }
                changed = self.polls.changed(), if may_change => {
                    may_change = changed.is_ok();
                    let before = std::mem::replace(&mut is_polling, *self.polls.borrow_and_update());
                    if before && !is_polling {
                        // The results of running requests are no longer needed.
                        running = JoinSet::new();
                        under_way.clear();
                        poll.rest();
                        self.lists.send_replace(Arc::default());
                        poll.builder.adopt(&self.adopted.borrow());
                    } else if is_polling && !before {
                        tracing::info!("polling azure");
                        poll.plan();
                    }
                }
                Ok(()) = self.adopted.changed() => {
                    let adopted = self.adopted.borrow_and_update();
                    if !is_polling {
                        poll.builder.adopt(&adopted);
                    }
                }
                Some(done) = running.join_next_with_id(), if !running.is_empty() => {
                    poll.made(self.arm.made());
                    let (id, outcome) = finished(done);
                    if let Some(list) = under_way.remove(&id) {
                        poll.take(&list, outcome, self.arm.is_slow(), (self.clock)());
                        // (The contents are shared.)
                        self.lists.send_replace(Arc::new(poll.lists().clone()));
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now)),
                    if deadline.is_some() => {}
            }
            while is_polling && running.len() < AT_ONCE {
                let Some((list, may_be_of_graph)) = poll.next() else { break };
                let arm = Arc::clone(&self.arm);
                let with_graph = self.options.resource_graph && may_be_of_graph;
                let request = list.clone();
                let task = running.spawn(async move { request.ask(&arm, with_graph).await });
                under_way.insert(task.id(), list);
            }
            if let Some(shared) = poll.news() {
                self.reports.send_replace(shared.report.clone());
                self.shared.send_replace(shared);
            }
        }
    }
}

/// Returns the outcome of a task. A panic is a failure like others: the list is requested again.
fn finished(done: Result<(Id, ListOutcome), JoinError>) -> (Id, ListOutcome) {
    done.unwrap_or_else(|error| {
        let broken = RequestError::Broken(error.to_string());
        (error.id(), ListOutcome { answer: Err(broken), calls: 0 })
    })
}

/// Returns the queries for endpoints of all services, with the defaults of the settings.
pub(super) fn queries(
    specification: &MeshSpecification,
    options: &AzureOptions,
) -> BTreeMap<ServiceName, Vec<AzureQuery>> {
    let mut queries = join_queries(specification, options);
    // Whether machines join changes no endpoint: a changed opt-in must not drop those that are known.
    for query in queries.values_mut().flatten() {
        query.join = None;
    }
    queries
}

/// Returns the queries of all services with their opt-ins, with the defaults of the settings.
pub(super) fn join_queries(
    specification: &MeshSpecification,
    options: &AzureOptions,
) -> BTreeMap<ServiceName, Vec<AzureQuery>> {
    let asking = specification.services.iter().filter_map(|(name, service)| {
        let queries = &service.endpoints.providers()?.azure;
        (!queries.is_empty()).then(|| (name.clone(), with_defaults(queries, options)))
    });
    asking.collect()
}

/// Returns queries with the defaults of the settings. The default resource group applies only in
/// the default subscription.
pub(super) fn with_defaults(queries: &[AzureQuery], options: &AzureOptions) -> Vec<AzureQuery> {
    let with = |query: &AzureQuery| {
        let subscription = query.subscription.clone().or_else(|| options.subscription.clone());
        let group =
            || options.resource_group.clone().filter(|_| subscription == options.subscription);
        AzureQuery {
            resource_group: query.resource_group.clone().or_else(group),
            subscription,
            ..query.clone()
        }
    };
    queries.iter().map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panicked_query_task_is_a_failure() {
        let mut running: JoinSet<ListOutcome> = JoinSet::new();
        let task = running.spawn(async { panic!("so it is") });
        let (id, outcome) = finished(running.join_next_with_id().await.unwrap());
        assert_eq!(id, task.id());
        let error = outcome.answer.unwrap_err();
        assert!(error.to_string().contains("so it is") && !error.is_general(), "{error}");
    }
}
