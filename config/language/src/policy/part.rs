//! A part: the content of one document, independent of the others. It keeps names apart from the objects that
//! they name, so that one broken object does not make its callers look broken too.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{Finding, MeshSpecification, Name, ServiceAccount, ServiceName, Spot};

use super::damage::Damage;
use super::outline::Outline;
use crate::kinds::policy_kinds;
use crate::table::{FindingReported, Table, Value};

/// Namespace and name.
pub(super) type ObjectKey = (Name, Name);

macro_rules! part {
    ($(
        $key:ident, $objects:ident, $Object:ident, $what:literal, $place:literal $(, [$same:path])?;
    )*) => {
        /// The content of one document.
        #[derive(Debug, Default)]
        pub(super) struct Part {
            pub(super) findings: Vec<Finding>,
            /// Whether there are more findings than these.
            pub(super) has_more: bool,
            /// The objects of the document, each with the byte at which it begins.
            pub(super) outline: Outline,
            $(pub(super) $objects: Definitions<ironmesh_catalog::$Object>,)*
            /// The accounts that services run as.
            pub(super) accounts: BTreeSet<ServiceAccount>,
            /// The references of objects, whether or not the rest of an object is valid.
            pub(super) references: Vec<Reference>,
            /// Names that something unreadable may define. They are never reported as missing.
            pub(super) may_be_defined: BTreeSet<String>,
        }

        impl Part {
            /// Drops the findings in recovered text, and marks the definitions there.
            pub(super) fn damaged(&mut self, damage: &Damage) {
                self.findings
                    .retain(|finding| !finding.spot.as_ref().is_some_and(|spot| damage.covers(spot)));
                $(self.$objects.damaged(damage);)*
            }

            /// Whether the change from `before` to this part is invisible to other objects: both have no
            /// finding, and differ only in endpoints and spots.
            pub(super) fn differs_in_endpoints_only(&self, before: &Self) -> bool {
                self.findings.is_empty()
                    && before.findings.is_empty()
                    $(&& self.$objects.are_same(&before.$objects, same!($($same)?)))*
            }

            /// Puts its definitions into `specification`, in place of those with the same names.
            pub(super) fn put_into(&self, specification: &mut MeshSpecification) {
                $(
                    for (key, object) in self.$objects.valid() {
                        specification.$objects.insert(SpecificationKey::of(key), Arc::clone(object));
                    }
                )*
            }
        }
    };
}

/// The comparison of two objects.
macro_rules! same {
    () => {
        PartialEq::eq
    };
    ($same:path) => {
        $same
    };
}

policy_kinds!(part);

/// The key under which a specification has an object.
pub(super) trait SpecificationKey: Ord + Clone {
    /// The key of the object with that namespace and name.
    fn of(key: &ObjectKey) -> Self;
}

impl SpecificationKey for ObjectKey {
    fn of(key: &ObjectKey) -> Self {
        key.clone()
    }
}

impl SpecificationKey for ServiceName {
    fn of((namespace, name): &ObjectKey) -> Self {
        Self::new(namespace.clone(), name.clone())
    }
}

/// The key of a namespace.
impl SpecificationKey for Name {
    fn of((_, name): &ObjectKey) -> Self {
        name.clone()
    }
}

/// The definitions of one kind, in the order of the document. Several may have one name.
#[derive(Debug)]
pub(super) struct Definitions<T>(pub(super) Vec<Definition<T>>);

/// A name that is defined.
#[derive(Debug)]
pub(super) struct Definition<T> {
    pub(super) key: ObjectKey,
    pub(super) spot: Spot,
    /// The object, if it could be read.
    pub(super) object: Result<Arc<T>, FindingReported>,
    /// Whether it was recovered near a syntax error.
    pub(super) is_damaged: bool,
}

impl<T> Definitions<T> {
    /// Adds an object, or only its name if the rest could not be read.
    pub(super) fn push(&mut self, id: &Id, object: Result<T, FindingReported>) {
        self.0.push(Definition {
            key: (id.namespace.clone(), id.name.clone()),
            spot: id.spot.clone(),
            object: object.map(Arc::new),
            is_damaged: false,
        });
    }

    fn valid(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<T>)> {
        self.0.iter().filter_map(|one| Some((&one.key, one.object.as_ref().ok()?)))
    }

    /// Whether both have only valid objects, with the same names in the same order, that are equal by `same`.
    fn are_same(&self, others: &Self, same: impl Fn(&T, &T) -> bool) -> bool {
        let same_definition = |(one, other): (&Definition<T>, &Definition<T>)| {
            let objects = one.object.as_ref().ok().zip(other.object.as_ref().ok());
            one.key == other.key && objects.is_some_and(|(one, other)| same(one, other))
        };
        self.0.len() == others.0.len() && self.0.iter().zip(&others.0).all(same_definition)
    }

    fn damaged(&mut self, damage: &Damage) {
        for definition in &mut self.0 {
            definition.is_damaged = damage.covers(&definition.spot);
        }
    }
}

impl<T> Default for Definitions<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// A reference to an object that must exist.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) referenced: ReferenceTarget,
    pub(super) spot: Spot,
}

/// The object that a reference names.
#[derive(Debug)]
pub(super) enum ReferenceTarget {
    /// A service.
    Service(ServiceName),
    /// A backend, which may be defined later, and the other services of the same split.
    Backend(ServiceName, Arc<[Name]>),
    /// An account that some service runs as.
    Account(ServiceAccount),
    /// An HTTP route group.
    Group(ObjectKey),
    /// A match of an HTTP route group.
    Match(ObjectKey, Name),
    /// A TCP route.
    TcpRoute(ObjectKey),
    /// An identity binding.
    Binding(ObjectKey),
}

/// The name of an object, with its spot.
#[derive(Debug, Clone)]
pub(super) struct Id {
    pub(super) namespace: Name,
    pub(super) name: Name,
    pub(super) spot: Spot,
}

impl Id {
    /// Reads the keys `name` and `namespace`, which all kinds have.
    pub(super) fn read(table: &mut Table<'_>, part: &mut Part) -> Result<Self, FindingReported> {
        let written = table.get("name").and_then(Value::string_if_any);
        let name = table.required("name", |value| Ok((value.name()?, value.spot())));
        let namespace = table.optional("namespace", Value::name);
        if let (Ok((name, spot)), Ok(namespace)) = (name, namespace) {
            let namespace = namespace.unwrap_or_else(Name::default_namespace);
            Ok(Self { namespace, name, spot })
        } else {
            part.may_be_defined.extend(written.map(str::to_owned));
            Err(FindingReported)
        }
    }
}
