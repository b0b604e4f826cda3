//! One question of policy: follows the instances of one Consul service.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, Endpoint};
use tokio::sync::mpsc;

use super::answer::{self, Reading};
use super::blocking::{Answer, Blocking, Scope, Shared};
use super::error::{ConsulError, RequestError};
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
#[expect(clippy::rc_buffer, reason = "as in `ServiceReport`")]
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) endpoints: Arc<Vec<Endpoint>>,
    pub(super) problems: Arc<Vec<Problem>>,
    pub(super) index: u64,
    pub(super) is_authoritative: bool,
}

/// A question that is followed. It tells of what is new to whoever collects answers.
#[derive(Debug)]
pub(super) struct Instances {
    question: Arc<ConsulQuery>,
    blocking: Blocking,
    shared: Arc<Shared>,
    memory: Memory,
    last: Last,
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
        let (memory, last) = (Memory::default(), Last::default());
        Ok(Self { question, blocking, shared: Arc::clone(shared), memory, last, told: None })
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
                        tracing::warn!(service = %self.question.service, reason, "consul query failed");
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
        let read = self.last.read(&answer.body, &reading, &before);
        let Contents { endpoints, problems } = read.map_err(|error| error.to_string())?;
        let may_know_all = match answer.scope {
            Scope::All => true,
            Scope::Some => !endpoints.is_empty(),
            Scope::Filtered => false,
        };
        let is_authoritative =
            self.memory.is_whole(answer.is_backward, endpoints.len()) && may_know_all;
        if is_authoritative {
            self.memory.knows(endpoints.len());
        }
        Ok(Found { endpoints, problems, index: answer.index, is_authoritative })
    }

    /// Whether it is as if the token could not read the instances any more.
    fn is_doubtful(&self, found: &Found) -> bool {
        let before = self.told.as_ref().map_or(0, |told| told.endpoints.len());
        found.endpoints.is_empty() || found.endpoints.len() * 2 <= before
    }
}

impl Found {
    fn says_the_same(&self, other: &Self) -> bool {
        (&self.endpoints, &self.problems, self.is_authoritative)
            == (&other.endpoints, &other.problems, other.is_authoritative)
    }
}

/// What an answer says.
#[expect(clippy::rc_buffer, reason = "as in `ServiceReport`")]
#[derive(Debug, Clone)]
struct Contents {
    endpoints: Arc<Vec<Endpoint>>,
    problems: Arc<Vec<Problem>>,
}

/// The answer that was read last. Most say what the one before said: where nothing happens, they come because
/// the wait is over. An index that is the same would not tell that, for a token's rights change without it.
#[derive(Debug, Default)]
struct Last {
    hasher: RandomState,
    /// The hash of the answer, and what it says.
    read: Option<(u64, Contents)>,
}

impl Last {
    /// Reads an answer, unless it is the same as the last. Endpoints that are those from before are shared
    /// with these.
    #[expect(clippy::rc_buffer, reason = "as in `ServiceReport`")]
    fn read(
        &mut self,
        body: &[u8],
        reading: &Reading<'_>,
        before: &Arc<Vec<Endpoint>>,
    ) -> Result<Contents, RequestError> {
        let hash = self.hasher.hash_one(body);
        if let Some((_, contents)) = self.read.as_ref().filter(|(known, _)| *known == hash) {
            return Ok(contents.clone());
        }
        let (endpoints, problems) = answer::endpoints(body, reading)?;
        let is_known = endpoints == **before;
        let endpoints = if is_known { Arc::clone(before) } else { Arc::new(endpoints) };
        let contents = Contents { endpoints, problems: Arc::new(problems) };
        self.read = Some((hash, contents.clone()));
        Ok(contents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::consul::LocalityKeys;

    #[test]
    fn identical_answer_is_not_parsed_again() {
        let locality = LocalityKeys::default();
        let reading = Reading { tagged_address: None, locality: &locality, before: &[] };
        let body = |port: u16| {
            format!(
                r#"[{{"Node":{{"Node":"n","Address":"10.0.0.1"}},"Checks":[],
                    "Service":{{"ID":"web","Service":"web","Port":{port}}}}}]"#
            )
        };
        let mut last = Last::default();
        let before = Arc::default();
        let mut read = |body: String| last.read(body.as_bytes(), &reading, &before);
        let first = read(body(8080)).unwrap();
        assert_eq!(first.endpoints[0].port, Some(8080));
        assert!(Arc::ptr_eq(&first.endpoints, &read(body(8080)).unwrap().endpoints));
        assert!(read("none".to_owned()).is_err());
        let other = read(body(8081)).unwrap();
        assert_eq!(other.endpoints[0].port, Some(8081));
        assert_eq!(read(body(8080)).unwrap().endpoints[0].port, Some(8080));
    }
}
