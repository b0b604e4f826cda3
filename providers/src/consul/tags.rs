//! Instances that join by a tag: which Consul services have one that says `ironmesh-service=NS/NAME`.
//!
//! Meta would be the better place, but the one query on the catalog shows tags alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, ServiceName};
use tokio::sync::watch;

use super::blocking::{Answer, Blocking, Scope, Shared};
use super::error::ConsulError;
use super::memory::Memory;

const TAG: &str = "ironmesh-service=";

type Questions = BTreeMap<ServiceName, BTreeSet<ConsulQuery>>;

/// What is tagged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tagged {
    /// Which questions find the instances that joined a service.
    pub(super) questions: Questions,
    /// Whether it is certain that nobody else joined: who answered may read all, and has not lost his memory.
    pub(super) is_authoritative: bool,
}

/// Follows the catalog's tags.
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

    /// Tells what is tagged, from the first answer on, until nobody listens any more.
    pub(super) async fn follow(mut self, tagged: watch::Sender<Option<Tagged>>) {
        let mut was_doubted = false;
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
            let (answer, questions) = match read {
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
            let known = before.as_ref().map(|before| &before.questions);
            let is_less = known.into_iter().flatten().any(|(name, known)| {
                questions.get(name).is_none_or(|found| !found.is_superset(known))
            });
            let found = self.found(known.unwrap_or(&Questions::new()), questions, &answer);
            if is_less && !was_doubted {
                was_doubted = true;
                self.blocking.doubt().await;
                continue;
            }
            was_doubted = false;
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

    /// What is tagged, by the answer and by what was known: whoever may not know all takes nothing away.
    fn found(&mut self, known: &Questions, mut questions: Questions, answer: &Answer) -> Tagged {
        let count = questions.values().map(BTreeSet::len).sum();
        let is_whole = self.memory.is_whole(answer.is_backward, count);
        let is_authoritative = is_whole && answer.scope == Scope::All;
        if is_authoritative {
            self.memory.knows(count);
        } else {
            for (name, known) in known {
                questions.entry(name.clone()).or_default().extend(known.iter().cloned());
            }
        }
        Tagged { questions, is_authoritative }
    }

    fn read(&self, body: &[u8]) -> Result<Questions, String> {
        let catalog: BTreeMap<String, Option<Vec<String>>> = serde_json::from_slice(body)
            .map_err(|error| format!("the answer cannot be read: {error}"))?;
        let mut tagged = Questions::new();
        for (service, tags) in &catalog {
            for tag in tags.iter().flatten() {
                // What is no name of a service is nobody's.
                let Some(Ok(name)) = tag.strip_prefix(TAG).map(str::parse::<ServiceName>) else {
                    continue;
                };
                tagged.entry(name).or_default().insert(self.question(service, tag));
            }
        }
        Ok(tagged)
    }

    /// The instances of `service` with the tag. (Names have no characters that the filter would have to quote.)
    fn question(&self, service: &str, tag: &str) -> ConsulQuery {
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
