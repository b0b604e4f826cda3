//! Registration by tags: finds the Consul services with a tag `ironmesh-service=NS/NAME`.
//!
//! Meta would suit better, but the one query on the catalog shows only tags.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, ServiceName};
use tokio::sync::watch;

use super::blocking::{Blocking, BlockingQueryResponse, Scope, Shared};
use super::error::ConsulError;
use super::memory::Memory;

const TAG: &str = "ironmesh-service=";

type TaggedQueries = BTreeMap<ServiceName, BTreeSet<ConsulQuery>>;

/// The tagged Consul services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tagged {
    /// The queries that find the registered instances, by service.
    pub(super) queries: TaggedQueries,
    /// Whether no other instance can have registered: the token may read everything, and the agent
    /// has its memory.
    pub(super) is_authoritative: bool,
}

/// Follows the tags in the catalog.
#[derive(Debug)]
pub(super) struct Tags {
    blocking: Blocking,
    shared: Arc<Shared>,
    memory: Memory,
}

impl Tags {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self, ConsulError> {
        let options = &shared.options;
        let named = [
            ("dc", &options.datacenter),
            ("ns", &options.namespace),
            ("partition", &options.partition),
        ];
        let parameters =
            named.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?.to_string())));
        let blocking = Blocking::new(shared, &["catalog", "services"], parameters.collect())?;
        Ok(Self { blocking, shared: Arc::clone(shared), memory: Memory::default() })
    }

    /// Publishes the tagged services, from the first answer on, until the receiver is gone.
    pub(super) async fn follow(mut self, tagged: watch::Sender<Option<Tagged>>) {
        let mut is_recheck = false;
        let mut is_in_trouble = false;
        loop {
            let read = match self.blocking.next().await {
                Ok(answer) => match self.read(&answer.body) {
                    Ok(read) => Ok((answer, read)),
                    Err(reason) => {
                        self.blocking.was_unreadable();
                        Err(reason)
                    }
                },
                Err(error) => Err(error.to_string()),
            };
            let (answer, queries) = match read {
                Ok(read) => read,
                Err(reason) => {
                    if !std::mem::replace(&mut is_in_trouble, true) {
                        tracing::warn!(reason, "cannot read the consul catalog");
                    }
                    continue;
                }
            };
            is_in_trouble = false;
            let before = tagged.borrow().clone();
            let known = before.as_ref().map(|before| &before.queries);
            let is_less = known.into_iter().flatten().any(|(name, known)| {
                queries.get(name).is_none_or(|found| !found.is_superset(known))
            });
            let found = self.found(known.unwrap_or(&TaggedQueries::new()), queries, &answer);
            if is_less && !is_recheck {
                is_recheck = true;
                self.blocking.recheck().await;
                continue;
            }
            is_recheck = false;
            if before.as_ref() == Some(&found) {
                self.blocking.was_old(&answer);
                continue;
            }
            self.blocking.was_new();
            if tagged.send(Some(found)).is_err() {
                return;
            }
        }
    }

    /// Combines an answer with the previous state: an answer that may be incomplete removes
    /// nothing.
    fn found(
        &mut self,
        known: &TaggedQueries,
        mut queries: TaggedQueries,
        answer: &BlockingQueryResponse,
    ) -> Tagged {
        let count = queries.values().map(BTreeSet::len).sum();
        let is_whole = self.memory.is_whole(answer.is_backward, count);
        let is_authoritative = is_whole && answer.scope == Scope::All;
        if is_authoritative {
            self.memory.knows(count);
        } else {
            for (name, known) in known {
                queries.entry(name.clone()).or_default().extend(known.iter().cloned());
            }
        }
        Tagged { queries, is_authoritative }
    }

    fn read(&self, body: &[u8]) -> Result<TaggedQueries, String> {
        let catalog: BTreeMap<String, Option<Vec<String>>> = serde_json::from_slice(body)
            .map_err(|error| format!("the answer cannot be read: {error}"))?;
        let mut tagged = TaggedQueries::new();
        for (service, tags) in &catalog {
            for tag in tags.iter().flatten() {
                // A tag with an invalid service name registers nothing.
                let Some(Ok(name)) = tag.strip_prefix(TAG).map(str::parse::<ServiceName>) else {
                    continue;
                };
                tagged.entry(name).or_default().insert(self.query(service, tag));
            }
        }
        Ok(tagged)
    }

    /// Returns the query for the instances of `service` with the tag. (Names have no characters
    /// that the filter would have to quote.)
    fn query(&self, service: &str, tag: &str) -> ConsulQuery {
        let options = &self.shared.options;
        ConsulQuery {
            service: service.into(),
            datacenter: options.datacenter.clone(),
            namespace: options.namespace.clone(),
            partition: options.partition.clone(),
            filter: Some(format!("\"{tag}\" in Service.Tags").into()),
            tagged_address: None,
        }
    }
}
