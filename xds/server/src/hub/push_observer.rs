//! What a user of the engine may observe of each push, for example to trace it. Nothing is decided by it.

use std::fmt;
use std::sync::Arc;

use ironmesh_xds_wire::{Resource, ResourceType, Version};

use super::{ClientKey, Connection, Hub};

/// An observer of pushes. Streams call it: it must not block, and must not call the hub.
pub trait PushObserver: fmt::Debug + Send + Sync {
    /// A push is sent on a stream, whose number is unique in this process.
    fn pushed(&self, client: &ClientKey, stream: u64, push: &ObservedPush<'_>);

    /// The client has ACKed the pushes of a type on a stream, or NACKed one for this reason.
    fn answered(&self, stream: u64, of: ResourceType, nacked: Option<&str>);

    /// A stream has ended, with what is unanswered on it.
    fn ended(&self, stream: u64);
}

/// A push, as an observer sees it.
#[derive(Debug)]
pub struct ObservedPush<'a> {
    /// Its type.
    pub resource_type: ResourceType,
    /// Its version, if it has one: only pushes of the state of the world do.
    pub version: Option<Version>,
    /// Its resources.
    pub resources: &'a [Arc<Resource>],
    /// The count of removed names.
    pub removed: usize,
    /// Its size in bytes.
    pub bytes: usize,
}

impl Hub {
    /// Reports all pushes from now on to an observer. The first one stays.
    pub fn observe_pushes(&self, observer: Arc<dyn PushObserver>) {
        // A second observer is a mistake of the user that loses its own observations only.
        let _ = self.push_observer.set(observer);
    }
}

impl Connection {
    /// Reports a push to the observer, if there is one.
    pub(crate) fn observe_push(&self, push: &ObservedPush<'_>) {
        if let Some(observer) = self.hub.push_observer.get() {
            observer.pushed(&self.client, self.stream, push);
        }
    }

    /// Reports an ACK, or the reason of a NACK.
    pub(crate) fn observe_answer(&self, of: ResourceType, nacked: Option<&str>) {
        if let Some(observer) = self.hub.push_observer.get() {
            observer.answered(self.stream, of, nacked);
        }
    }

    /// Reports the end of the stream.
    pub(super) fn observe_end(&self) {
        if let Some(observer) = self.hub.push_observer.get() {
            observer.ended(self.stream);
        }
    }
}
