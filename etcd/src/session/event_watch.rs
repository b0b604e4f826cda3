//! The watch of all keys with a prefix, with their values.

use std::collections::VecDeque;
use std::fmt;

use etcd_client::{EventType, WatchResponse, WatchStream};

use super::causes;
use crate::key_event::{KeyEvent, WatchNews};

/// A watch of all keys with a prefix.
pub struct EventWatch {
    stream: WatchStream,
    /// Events that were received and not returned yet: an answer may have several revisions.
    received: VecDeque<KeyEvent>,
}

impl EventWatch {
    pub(super) fn new(stream: WatchStream) -> Self {
        Self { stream, received: VecDeque::new() }
    }

    /// Waits for the changes of the next revision of etcd, or for news of the watch itself. Cancel-safe.
    pub async fn next(&mut self) -> WatchNews {
        loop {
            if let Some(events) = self.take_revision() {
                return WatchNews::Events(events);
            }
            match self.stream.message().await {
                Ok(Some(message)) if message.compact_revision() > 0 => {
                    return WatchNews::Compacted;
                }
                Ok(Some(message)) if message.canceled() => {
                    return WatchNews::Ended(message.cancel_reason().to_owned());
                }
                Ok(Some(message)) if message.created() => {}
                Ok(Some(message)) if message.events().is_empty() => {
                    let revision =
                        message.header().map_or(0, etcd_client::ResponseHeader::revision);
                    return WatchNews::Progress(revision);
                }
                Ok(Some(message)) => self.received.extend(events(&message)),
                Ok(None) => return WatchNews::Ended("etcd has ended the watch".to_owned()),
                Err(error) => return WatchNews::Ended(causes(&error)),
            }
        }
    }

    /// The events of the first revision among those that were received. etcd sends those of one revision in one answer,
    /// unless a watch allows fragments.
    fn take_revision(&mut self) -> Option<Vec<KeyEvent>> {
        let revision = self.received.front()?.modified;
        let count = self.received.iter().take_while(|event| event.modified == revision).count();
        Some(self.received.drain(..count).collect())
    }
}

fn events(message: &WatchResponse) -> impl Iterator<Item = KeyEvent> {
    message.events().iter().filter_map(|event| {
        let pair = event.kv()?;
        let value = (event.event_type() == EventType::Put).then(|| pair.value().to_vec());
        let key = String::from_utf8_lossy(pair.key()).into_owned();
        Some(KeyEvent { key, modified: pair.mod_revision(), value })
    })
}

impl fmt::Debug for EventWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWatch").finish_non_exhaustive()
    }
}
