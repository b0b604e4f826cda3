//! The draft: the definitions of all documents together, before they are known to be valid.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_catalog::{Finding, MeshSpecification, PolicyRevision, ServiceAccount, Spot, Subject};

use super::part::{Definition, Definitions, ObjectKey, Part, Reference, SpecificationKey};
use crate::codes;
use crate::findings::Findings;
use crate::kinds::{PolicyKind, policy_kinds};

macro_rules! draft {
    ($($key:ident, $objects:ident, $Object:ident $(, $rest:tt)*;)*) => {
        /// The definitions of all documents.
        #[derive(Debug, Default)]
        pub(super) struct Draft<'a> {
            pub(super) findings: Findings,
            $(pub(super) $objects: Objects<'a, ironmesh_catalog::$Object>,)*
            /// The accounts that services run as.
            pub(super) accounts: BTreeSet<&'a ServiceAccount>,
            /// The references of all objects, whether or not the rest of an object is valid.
            pub(super) references: Vec<&'a Reference>,
            /// Names that something unreadable may define. They are never reported as missing.
            pub(super) may_be_defined: BTreeSet<&'a str>,
            /// Whether something unreadable may define any name.
            pub(super) anything_may_be_defined: bool,
        }

        impl<'a> Draft<'a> {
            /// Adds `part` after the parts that are there already.
            pub(super) fn add(&mut self, part: &'a Part) {
                self.findings.extend(part.findings.iter().cloned());
                self.findings.have_more(part.has_more);
                $(self.$objects.add(PolicyKind::$Object, &part.$objects, &mut self.findings);)*
                self.accounts.extend(&part.accounts);
                self.references.extend(&part.references);
                self.may_be_defined.extend(part.may_be_defined.iter().map(String::as_str));
            }

            /// The specification, for a draft without errors. It shares with the one `before` all equal
            /// objects.
            pub(super) fn into_specification(
                self,
                revision: PolicyRevision,
                before: &MeshSpecification,
            ) -> MeshSpecification {
                MeshSpecification {
                    revision,
                    $($objects: self.$objects.onto(&before.$objects),)*
                }
            }
        }
    };
}

policy_kinds!(draft);

impl Draft<'_> {
    /// Whether all documents could be read and have no error, so that a name without a definition is really
    /// missing.
    pub(super) fn is_whole(&self) -> bool {
        !self.anything_may_be_defined && !self.findings.has_errors()
    }

    /// The accounts that a subject of a traffic target may select; `None` if policy alone does not determine
    /// them.
    pub(super) fn accounts_of(&self, subject: &Subject) -> Option<Vec<ServiceAccount>> {
        let (namespace, name) = match subject {
            Subject::Account(account) => return Some(vec![account.clone()]),
            Subject::Binding(namespace, name) => (namespace.clone(), name.clone()),
        };
        let binding = self.identity_bindings.get(&(namespace, name))?;
        let identities = binding.identities.iter().filter_map(|one| Some(one.id.workload()?.1));
        let accounts = binding.account.iter().cloned().chain(identities);
        binding.endpoint_labels.is_none().then(|| accounts.collect())
    }
}

/// The objects of one kind, by their names.
#[derive(Debug)]
pub(super) struct Objects<'a, T>(BTreeMap<&'a ObjectKey, &'a Definition<T>>);

impl<'a, T> Objects<'a, T> {
    /// Adds a definition. The second definition of a name is reported, and not checked further.
    fn add(&mut self, kind: PolicyKind, definitions: &'a Definitions<T>, findings: &mut Findings) {
        for definition in &definitions.0 {
            let Some(first) = self.0.get(&definition.key) else {
                self.0.insert(&definition.key, definition);
                continue;
            };
            // A name recovered near a syntax error may be incomplete.
            if definition.is_damaged {
                continue;
            }
            let (namespace, name) = &definition.key;
            let place = if kind == PolicyKind::Namespace {
                String::new()
            } else {
                format!(" in namespace `{namespace}`")
            };
            let message = format!("{} `{name}` is defined twice{place}", kind.noun());
            let spot = definition.spot.clone();
            findings.push(
                Finding::error(codes::DUPLICATE_NAME, Some(spot), message)
                    .label("defined again")
                    .related(first.spot.clone(), "first defined here"),
            );
        }
    }

    /// The spot of a name that is defined, validly or not.
    pub(super) fn spot(&self, key: &ObjectKey) -> Option<&Spot> {
        self.0.get(key).map(|definition| &definition.spot)
    }

    /// The object of that name, if it could be read.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&'a T> {
        self.0.get(key).and_then(|definition| object(definition)).map(|object| &**object)
    }

    /// All names that are defined, validly or not.
    pub(super) fn keys(&self) -> impl Iterator<Item = &'a ObjectKey> + Clone {
        self.0.keys().copied()
    }

    /// The objects that could be read, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &'a T> {
        self.valid().map(|(_, object)| &**object)
    }

    /// The same objects, shared.
    pub(super) fn shared(&self) -> impl Iterator<Item = &'a Arc<T>> {
        self.valid().map(|(_, object)| object)
    }

    fn valid(&self) -> impl Iterator<Item = (&'a ObjectKey, &'a Arc<T>)> {
        self.0.iter().filter_map(|(key, definition)| Some((*key, object(definition)?)))
    }

    /// The map of the definitions, made from the map `before`. The two maps share equal values, so that their
    /// difference costs as much as it is large. (An equal object at another spot is another value, since
    /// findings name the spot.)
    fn onto<K: SpecificationKey>(self, before: &OrdMap<K, Arc<T>>) -> OrdMap<K, Arc<T>> {
        let mut map = before.clone();
        let mut names = BTreeSet::new();
        for (name, object) in self.valid() {
            let name = K::of(name);
            if !map.get(&name).is_some_and(|known| Arc::ptr_eq(known, object)) {
                map.insert(name.clone(), Arc::clone(object));
            }
            names.insert(name);
        }
        for name in before.keys().filter(|name| !names.contains(*name)) {
            map.remove(name);
        }
        map
    }
}

fn object<T>(definition: &Definition<T>) -> Option<&Arc<T>> {
    definition.object.as_ref().ok()
}

impl<T> Default for Objects<'_, T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}
