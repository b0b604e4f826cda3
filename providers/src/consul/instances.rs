//! One query of policy: it follows the instances of one Consul service, and never those of another.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, Endpoint};
use tokio::sync::mpsc;

use super::answer::{self, Reading};
use super::blocking::{Blocking, BlockingQueryResponse, Scope, Shared};
use super::error::{ConsulError, RequestError};
use super::memory::Memory;
use crate::Problem;

/// A result of a query.
#[derive(Debug)]
pub(super) enum QueryUpdate {
    /// The current instances.
    Found(Found),
    /// The reason why there is no newer answer.
    Trouble(String),
}

/// The instances that an answer has.
#[expect(clippy::rc_buffer, reason = "as in `ServiceReport`")]
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Found {
    pub(super) endpoints: Arc<Vec<Endpoint>>,
    pub(super) problems: Arc<Vec<Problem>>,
    pub(super) index: u64,
    pub(super) is_authoritative: bool,
}

/// A running query. It sends each new result to the collector.
#[derive(Debug)]
pub(super) struct Instances {
    query: Arc<ConsulQuery>,
    blocking: Blocking,
    shared: Arc<Shared>,
    memory: Memory,
    last: Last,
    /// The latest result that was sent.
    reported: Option<Found>,
}

impl Instances {
    pub(super) fn new(shared: &Arc<Shared>, query: Arc<ConsulQuery>) -> Result<Self, ConsulError> {
        let named = [
            ("dc", &query.datacenter),
            ("ns", &query.namespace),
            ("partition", &query.partition),
            ("filter", &query.filter),
        ];
        let parameters =
            named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?.to_string())));
        let path = ["health", "service", &query.service];
        let blocking = Blocking::new(shared, &path, parameters.collect())?;
        let (memory, last) = (Memory::default(), Last::default());
        Ok(Self { query, blocking, shared: Arc::clone(shared), memory, last, reported: None })
    }

    /// Runs until the receiver is gone.
    pub(super) async fn follow(mut self, news: mpsc::Sender<(Arc<ConsulQuery>, QueryUpdate)>) {
        let mut is_in_trouble = false;
        // A suspicious answer counts when it comes again.
        let mut is_recheck = false;
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
                    let is_reported = self
                        .reported
                        .as_ref()
                        .is_some_and(|reported| reported.is_same_answer(&found));
                    if is_reported {
                        self.blocking.was_old(&answer);
                    } else if !is_recheck && self.is_suspicious(&found) {
                        is_recheck = true;
                        self.blocking.recheck().await;
                        continue;
                    } else {
                        self.blocking.was_new();
                    }
                    is_recheck = false;
                    if is_reported && !is_in_trouble {
                        continue;
                    }
                    is_in_trouble = false;
                    if !is_reported {
                        self.reported = Some(found);
                    }
                    self.reported.clone().map(QueryUpdate::Found)
                }
                Err(reason) => {
                    if !is_in_trouble {
                        tracing::warn!(service = %self.query.service, reason, "consul query failed");
                    }
                    is_in_trouble = true;
                    Some(QueryUpdate::Trouble(reason))
                }
            };
            let Some(next) = next else { continue };
            if news.send((Arc::clone(&self.query), next)).await.is_err() {
                return;
            }
        }
    }

    fn read(&mut self, answer: &BlockingQueryResponse) -> Result<Found, String> {
        let before =
            self.reported.as_ref().map(|last| Arc::clone(&last.endpoints)).unwrap_or_default();
        let reading = Reading {
            tagged_address: self.query.tagged_address.as_deref(),
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

    /// Whether the answer looks as if the token had lost rights.
    fn is_suspicious(&self, found: &Found) -> bool {
        let before = self.reported.as_ref().map_or(0, |reported| reported.endpoints.len());
        found.endpoints.is_empty() || found.endpoints.len() * 2 <= before
    }
}

impl Found {
    fn is_same_answer(&self, other: &Self) -> bool {
        (&self.endpoints, &self.problems, self.is_authoritative)
            == (&other.endpoints, &other.problems, other.is_authoritative)
    }
}

/// The content of an answer.
#[expect(clippy::rc_buffer, reason = "as in `ServiceReport`")]
#[derive(Debug, Clone)]
struct Contents {
    endpoints: Arc<Vec<Endpoint>>,
    problems: Arc<Vec<Problem>>,
}

/// The answer that was read last. Most answers repeat the previous one: without changes, they come
/// because the wait is over. An equal index does not prove that, because the rights of a token
/// change without it.
#[derive(Debug, Default)]
struct Last {
    hasher: RandomState,
    /// The hash of the answer, and its content.
    read: Option<(u64, Contents)>,
}

impl Last {
    /// Reads an answer, unless it equals the last one. Equal endpoints share the memory of the
    /// previous ones.
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
