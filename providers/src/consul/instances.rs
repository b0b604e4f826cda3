//! One question of policy: follows the instances of one Consul service.

use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, Endpoint};
use tokio::sync::mpsc;

use super::answer::{self, Reading};
use super::blocking::{Answer, Blocking, Scope, Shared};
use super::error::ConsulError;
use super::memory::Memory;
use crate::Problem;

/// What is new about a question.
#[derive(Debug)]
pub(super) enum News {
    /// What the instances are now.
    Found(Found),
    /// Why there is no newer answer.
    Trouble(String),
}

/// The answer to a question.
#[expect(clippy::rc_buffer, reason = "as sightings have them")]
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) endpoints: Arc<Vec<Endpoint>>,
    pub(super) problems: Arc<Vec<Problem>>,
    pub(super) index: u64,
    pub(super) is_confirmed: bool,
}

/// A question that is followed. It tells of what is new to whoever collects answers.
#[derive(Debug)]
pub(super) struct Instances {
    question: Arc<ConsulQuery>,
    blocking: Blocking,
    shared: Arc<Shared>,
    memory: Memory,
    /// What was told last.
    told: Option<Found>,
}

impl Instances {
    pub(super) fn new(
        shared: &Arc<Shared>,
        question: Arc<ConsulQuery>,
    ) -> Result<Self, ConsulError> {
        let named = [
            ("dc", &question.datacenter),
            ("ns", &question.namespace),
            ("partition", &question.partition),
            ("filter", &question.filter),
        ];
        let parameters =
            named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?.to_string())));
        let path = ["health", "service", &question.service];
        let blocking = Blocking::new(shared, &path, parameters.collect())?;
        let memory = Memory::default();
        Ok(Self { question, blocking, shared: Arc::clone(shared), memory, told: None })
    }

    /// Until nobody listens any more.
    pub(super) async fn follow(mut self, news: mpsc::Sender<(Arc<ConsulQuery>, News)>) {
        let mut is_in_trouble = false;
        // An answer that is hard to believe is believed when it comes again.
        let mut was_doubted = false;
        loop {
            let read = match self.blocking.next().await {
                Ok(answer) => {
                    let read = self.read(&answer);
                    if read.is_err() {
                        self.blocking.was_unreadable();
                    }
                    read.map(|found| (answer, found))
                }
                Err(error) => Err(error.to_string()),
            };
            let next = match read {
                Ok((answer, found)) => {
                    let is_told = self.told.as_ref().is_some_and(|told| told.says_the_same(&found));
                    if is_told {
                        self.blocking.was_old(&answer);
                    } else if !was_doubted && self.is_doubtful(&found) {
                        was_doubted = true;
                        self.blocking.doubt().await;
                        continue;
                    } else {
                        self.blocking.was_new();
                    }
                    was_doubted = false;
                    if is_told && !is_in_trouble {
                        continue;
                    }
                    is_in_trouble = false;
                    if !is_told {
                        self.told = Some(found);
                    }
                    self.told.clone().map(News::Found)
                }
                Err(reason) => {
                    if !is_in_trouble {
                        tracing::warn!(service = %self.question.service, "Consul gives no answer: {reason}");
                    }
                    is_in_trouble = true;
                    Some(News::Trouble(reason))
                }
            };
            let Some(next) = next else { continue };
            if news.send((Arc::clone(&self.question), next)).await.is_err() {
                return;
            }
        }
    }

    fn read(&mut self, answer: &Answer) -> Result<Found, String> {
        let before = self.told.as_ref().map(|told| Arc::clone(&told.endpoints)).unwrap_or_default();
        let reading = Reading {
            tagged_address: self.question.tagged_address.as_deref(),
            locality: &self.shared.options.locality,
            before: &before,
        };
        let (endpoints, problems) =
            answer::endpoints(&answer.body, &reading).map_err(|error| error.to_string())?;
        let endpoints = if endpoints == *before { before } else { Arc::new(endpoints) };
        let may_know_all = match answer.scope {
            Scope::All => true,
            Scope::Some => !endpoints.is_empty(),
            Scope::Filtered => false,
        };
        let is_confirmed =
            self.memory.is_whole(answer.is_backward, endpoints.len()) && may_know_all;
        if is_confirmed {
            self.memory.knows(endpoints.len());
        }
        Ok(Found { endpoints, problems: Arc::new(problems), index: answer.index, is_confirmed })
    }

    /// Whether it is as if the token could not read the instances any more.
    fn is_doubtful(&self, found: &Found) -> bool {
        let before = self.told.as_ref().map_or(0, |told| told.endpoints.len());
        found.endpoints.is_empty() || found.endpoints.len() * 2 <= before
    }
}

impl Found {
    fn says_the_same(&self, other: &Self) -> bool {
        (&self.endpoints, &self.problems, self.is_confirmed)
            == (&other.endpoints, &other.problems, other.is_confirmed)
    }
}
