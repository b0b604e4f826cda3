//! The outline of a document: which object of policy begins where. Findings at a spot name the object around it.

use ironmesh_catalog::{Name, ObjectRef, PolicyObject, ServiceName};

use crate::kinds::PolicyKind;
use crate::table::Value;

/// The objects of a document with a readable name, each with the byte at which it begins.
#[derive(Debug, Default)]
pub(super) struct Outline(Vec<(usize, Option<ObjectRef>)>);

impl Outline {
    /// Adds an object of a kind. One without a readable name ends the object before it.
    pub(super) fn add(&mut self, item: Value<'_>, kind: PolicyKind) {
        // (A spot would count the lines before it.)
        self.0.push((item.written().span().start, object(item, kind)));
    }

    /// The object around a byte: the last one that begins at or before it.
    pub(super) fn object_at(&self, byte: usize) -> Option<&ObjectRef> {
        let begun = self.0.iter().filter(|(start, _)| *start <= byte);
        // (The objects are in the order of kinds, not of the document.)
        begun.max_by_key(|(start, _)| *start).and_then(|(_, object)| object.as_ref())
    }
}

fn object(item: Value<'_>, kind: PolicyKind) -> Option<ObjectRef> {
    let name: Name = item.string_below("name")?.parse().ok()?;
    let kind_key = kind.key().into();
    if kind == PolicyKind::Namespace {
        let name = name.to_string();
        return Some(ObjectRef::Policy(PolicyObject { kind: kind_key, name }));
    }
    let namespace = match item.string_below("namespace") {
        Some(namespace) => namespace.parse().ok()?,
        None => Name::default_namespace(),
    };
    let name = ServiceName::new(namespace, name);
    Some(match kind {
        PolicyKind::Service => ObjectRef::Service(name),
        _ => ObjectRef::Policy(PolicyObject { kind: kind_key, name: name.to_string() }),
    })
}
