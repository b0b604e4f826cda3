//! The task that asks for lists, and tells what services are to know.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ironmesh_catalog::{AzureQuery, MeshSpecification, ServiceName};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::sleep_until;

use super::arm::Arm;
use super::board::Told;
use super::error::RequestError;
use super::lists::Asked;
use super::options::AzureOptions;
use super::poll::Poll;
use crate::ProviderReport;

/// So many lists are asked for at once.
const AT_ONCE: usize = 6;

pub(super) struct Collector {
    pub(super) options: AzureOptions,
    pub(super) clock: fn() -> Timestamp,
    pub(super) arm: Arc<Arm>,
    pub(super) specification: watch::Receiver<Arc<MeshSpecification>>,
    pub(super) turn: watch::Receiver<bool>,
    pub(super) taken: watch::Receiver<Told>,
    pub(super) sightings: watch::Sender<ProviderReport>,
    pub(super) told: watch::Sender<Told>,
}

impl Collector {
    pub(super) async fn run(mut self) {
        let mut poll = Poll::new(&self.options);
        let mut running: JoinSet<Asked> = JoinSet::new();
        let mut under_way = HashMap::new();
        // Whoever gives turns may go; then it stays as it was.
        let mut may_change = true;
        let mut is_ours = *self.turn.borrow_and_update();
        loop {
            let free = is_ours && running.len() < AT_ONCE;
            let deadline = poll.deadline().filter(|_| free);
            tokio::select! {
                changed = self.specification.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let specification = Arc::clone(&self.specification.borrow_and_update());
                    poll.follow(asked(&specification, &self.options), (self.clock)());
                    // What services that are new here are to know may be there already.
                    if !is_ours {
                        poll.board.take(&self.taken.borrow());
                    }
                }
                changed = self.turn.changed(), if may_change => {
                    may_change = changed.is_ok();
                    let before = std::mem::replace(&mut is_ours, *self.turn.borrow_and_update());
                    if before && !is_ours {
                        // What is under way is nobody's any more.
                        running = JoinSet::new();
                        under_way.clear();
                        poll.rest();
                        poll.board.take(&self.taken.borrow());
                    } else if is_ours && !before {
                        tracing::info!("polling azure");
                        poll.plan();
                    }
                }
                Ok(()) = self.taken.changed() => {
                    let taken = self.taken.borrow_and_update();
                    if !is_ours {
                        poll.board.take(&taken);
                    }
                }
                Some(done) = running.join_next_with_id(), if !running.is_empty() => {
                    poll.made(self.arm.made());
                    let (id, asked) = finished(done);
                    if let Some(list) = under_way.remove(&id) {
                        poll.take(&list, asked, self.arm.is_slow(), (self.clock)());
                    }
                }
                () = sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now)),
                    if deadline.is_some() => {}
            }
            while is_ours && running.len() < AT_ONCE {
                let Some((list, may_be_of_graph)) = poll.next() else { break };
                let arm = Arc::clone(&self.arm);
                let with_graph = self.options.resource_graph && may_be_of_graph;
                let asked = list.clone();
                let task = running.spawn(async move { asked.ask(&arm, with_graph).await });
                under_way.insert(task.id(), list);
            }
            if let Some(told) = poll.news() {
                self.sightings.send_replace(told.sightings.clone());
                self.told.send_replace(told);
            }
        }
    }
}

/// What came of a task. One that broke off is a failure like others: its list is asked for again.
fn finished(done: Result<(Id, Asked), JoinError>) -> (Id, Asked) {
    done.unwrap_or_else(|error| {
        let broken = RequestError::Broken(error.to_string());
        (error.id(), Asked { answer: Err(broken), calls: 0 })
    })
}

/// What services ask, with what the settings say where policy says nothing.
pub(super) fn asked(
    specification: &MeshSpecification,
    options: &AzureOptions,
) -> BTreeMap<ServiceName, Vec<AzureQuery>> {
    let asking = specification.services.iter().filter_map(|(name, service)| {
        let asked = &service.endpoints.providers()?.azure;
        (!asked.is_empty()).then(|| (name.clone(), with_defaults(asked, options)))
    });
    asking.collect()
}

/// Questions with what the settings say where they say nothing. A group of the settings is one of their
/// subscription.
pub(super) fn with_defaults(asked: &[AzureQuery], options: &AzureOptions) -> Vec<AzureQuery> {
    let with = |question: &AzureQuery| {
        let subscription = question.subscription.clone().or_else(|| options.subscription.clone());
        let group =
            || options.resource_group.clone().filter(|_| subscription == options.subscription);
        AzureQuery {
            resource_group: question.resource_group.clone().or_else(group),
            subscription,
            ..question.clone()
        }
    };
    asked.iter().map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panicked_query_task_is_a_failure() {
        let mut running: JoinSet<Asked> = JoinSet::new();
        let task = running.spawn(async { panic!("so it is") });
        let (id, asked) = finished(running.join_next_with_id().await.unwrap());
        assert_eq!(id, task.id());
        let error = asked.answer.unwrap_err();
        assert!(error.to_string().contains("so it is") && !error.is_general(), "{error}");
    }
}
