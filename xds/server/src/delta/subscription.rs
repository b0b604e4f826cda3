//! What a client has subscribed to, of one type.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_xds_wire::{DeltaRequest, ResourceType};

/// The name that stands for all resources of a type.
const WILDCARD: &str = "*";

/// The subscriptions of a stream to one type.
#[derive(Debug, Default)]
pub(crate) struct Subscription {
    /// Whether the client has asked for the type at all.
    pub(crate) has_begun: bool,
    is_wildcard: bool,
    names: BTreeSet<Arc<str>>,
}

/// How a request changed the subscriptions.
#[derive(Debug, Default)]
pub(crate) struct Change {
    /// Whether this was the type's first request.
    pub(crate) is_first: bool,
    /// Names that must be answered, also where the client may have them: "the server must respond
    /// with all resources in `resource_names_subscribe`".
    pub(crate) asked: Vec<Arc<str>>,
    /// Names that the client has dropped, and will have forgotten.
    pub(crate) dropped: Vec<Arc<str>>,
    /// Whether the client began to want all resources.
    pub(crate) wildcard_began: bool,
    /// Whether the client wants no longer all resources.
    pub(crate) wildcard_ended: bool,
}

impl Subscription {
    /// Whether the client wants `name`.
    pub(crate) fn covers(&self, name: &str) -> bool {
        self.is_wildcard || self.names.contains(name)
    }

    /// Whether the client wants `name` by that name.
    pub(crate) fn names(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(crate) fn apply(&mut self, resource_type: ResourceType, request: &DeltaRequest) -> Change {
        let mut change = Change { is_first: !self.has_begun, ..Change::default() };
        self.has_begun = true;
        let wildcard_counts = resource_type.allows_wildcard();
        // "Legacy wildcard": a first request without names asks for all. Envoy does, also when it
        // connects again and lists what it has in `initial_resource_versions`.
        if change.is_first && request.subscribe.is_empty() && wildcard_counts {
            self.is_wildcard = true;
            change.wildcard_began = true;
        }
        // A name in both lists of one request: dropped, then wanted.
        for name in &request.unsubscribe {
            if wildcard_counts && name == WILDCARD {
                change.wildcard_ended = std::mem::take(&mut self.is_wildcard);
            } else if self.names.remove(name.as_str()) {
                let name: Arc<str> = name.as_str().into();
                if self.is_wildcard {
                    // It is still wanted by the wildcard, and the client has forgotten it.
                    change.asked.push(name);
                } else {
                    change.dropped.push(name);
                }
            }
        }
        for name in &request.subscribe {
            if wildcard_counts && name == WILDCARD {
                change.wildcard_began |= !self.is_wildcard;
                self.is_wildcard = true;
            } else {
                let name: Arc<str> = name.as_str().into();
                self.names.insert(Arc::clone(&name));
                change.asked.push(name);
            }
        }
        change
    }
}
