//! Overlays: maps from resource names, stored as their difference from a resource set.
//!
//! For each stream the server remembers a thousand subscribed names, and which versions were sent
//! and ACKed. Nearly always that equals the published set, which other streams store as well. So a
//! settled stream stores nothing of its own, however many services there are. (A state-of-the-world
//! stream still stores which endpoints, routes and secrets it was sent: `sotw/partial.rs`.)

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use imbl::ordmap::DiffItem;
use ironmesh_xds_wire::{Resource, ResourceMap, Version, iter_changed_names};

/// A value for a name that also follows from the resource of that name.
pub(crate) trait FromResource: Clone + PartialEq {
    /// The value that follows from a resource.
    fn from_resource(resource: &Resource) -> Self;
}

/// The presence of a name.
impl FromResource for () {
    fn from_resource(_: &Resource) {}
}

impl FromResource for Version {
    fn from_resource(resource: &Resource) -> Self {
        resource.version()
    }
}

/// A version, or one that cannot be known.
impl FromResource for Option<Version> {
    fn from_resource(resource: &Resource) -> Self {
        Some(resource.version())
    }
}

/// A map from names. What differs is nearly always nothing, or what a push in flight changes, so copies copy it.
#[derive(Debug, Clone)]
pub(crate) struct Overlay<V> {
    base: ResourceMap,
    /// The part of the base that counts.
    part: Part,
    /// The entries that differ from that part; `None` for a name of it that is absent.
    differing: Differing<V>,
    len: usize,
}

type Differing<V> = BTreeMap<Arc<str>, Option<V>>;

/// A part of the base. A client that connects gets the resources in the order of their names, so all that it has is such a
/// part, and no name of it is stored or compared.
#[derive(Debug, Clone)]
enum Part {
    All,
    /// The names before this one.
    Before(Arc<str>),
}

impl Part {
    fn contains(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Before(end) => *name < **end,
        }
    }

    /// The resources of a base that are not in this part.
    fn rest_of<'a>(
        &self,
        base: &'a ResourceMap,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Resource>)> + use<'a> {
        let rest = match self {
            Self::All => None,
            Self::Before(end) => Some(base.iter_from(end)),
        };
        rest.into_iter().flatten()
    }
}

impl<V> Default for Overlay<V> {
    fn default() -> Self {
        Self { base: ResourceMap::new(), part: Part::All, differing: Differing::new(), len: 0 }
    }
}

impl<V: FromResource> Overlay<V> {
    /// The number of names that it stores itself.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.differing.len()
    }

    /// The map with the values of all resources.
    pub(crate) fn all_of(base: &ResourceMap) -> Self {
        Self { base: base.clone(), len: base.len(), ..Self::default() }
    }

    /// The empty map, to which the names of `base` will be added in their order.
    pub(crate) fn none_of(base: &ResourceMap) -> Self {
        let first = base.keys().next();
        let part = first.map_or(Part::All, |first| Part::Before(Arc::clone(first)));
        Self { base: base.clone(), part, ..Self::default() }
    }

    /// The map with `value_of` for the names of a base.
    pub(crate) fn with_base(base: &ResourceMap, value_of: impl Fn(&str) -> Option<V>) -> Self {
        let mut overlay = Self { base: base.clone(), ..Self::default() };
        for (name, resource) in base {
            let value = value_of(name);
            overlay.len += usize::from(value.is_some());
            if value != Some(V::from_resource(resource)) {
                overlay.differing.insert(Arc::clone(name), value);
            }
        }
        overlay
    }

    /// The number of names.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Whether the map is known, without a look at each name, to contain all of `resources` with
    /// their values.
    pub(crate) fn has_all_of(&self, resources: &ResourceMap) -> bool {
        self.base.ptr_eq(resources) && self.differing.is_empty() && matches!(self.part, Part::All)
    }

    /// The names that `resources` lack, if these are the base: it takes as long as there are differences.
    pub(crate) fn names_outside(
        &self,
        resources: &ResourceMap,
    ) -> Option<impl Iterator<Item = &Arc<str>>> {
        let is_outside = |(name, value): &(&Arc<str>, &Option<V>)| {
            value.is_some() && !self.base.contains_key(name)
        };
        let names = || self.differing.iter().filter(is_outside).map(|(name, _)| name);
        self.base.ptr_eq(resources).then(names)
    }

    /// The resource of a name in the part of the base.
    fn in_base(&self, name: &str) -> Option<(&Arc<str>, &Arc<Resource>)> {
        self.part.contains(name).then(|| self.base.get_key_value(name)).flatten()
    }

    /// The value of a name.
    pub(crate) fn get(&self, name: &str) -> Option<V> {
        match self.differing.get(name) {
            Some(value) => value.clone(),
            None => self.in_base(name).map(|(_, resource)| V::from_resource(resource)),
        }
    }

    /// Whether the map contains a name.
    pub(crate) fn contains_key(&self, name: &str) -> bool {
        match self.differing.get(name) {
            Some(value) => value.is_some(),
            None => self.in_base(name).is_some(),
        }
    }

    /// The stored copy of a name.
    pub(crate) fn name(&self, name: &str) -> Option<Arc<str>> {
        let held = match self.differing.get_key_value(name) {
            Some((name, value)) => value.as_ref().map(|_| name),
            None => self.in_base(name).map(|(name, _)| name),
        };
        held.cloned()
    }

    /// Inserts a name, or replaces its value.
    pub(crate) fn insert(&mut self, name: Arc<str>, value: V) {
        self.len += usize::from(!self.contains_key(&name));
        self.set(name, Some(value));
    }

    /// Inserts names, or replaces their values. The next names of a base of which the map has all before are not looked
    /// up.
    pub(crate) fn insert_all(&mut self, entries: impl IntoIterator<Item = (Arc<str>, V)>) {
        let mut entries = entries.into_iter();
        let mut other = None;
        if !matches!(self.part, Part::All) && !self.has_beyond_part() {
            let base = self.base.clone();
            let mut rest = self.part.rest_of(&base).peekable();
            for (name, value) in entries.by_ref() {
                let is_next =
                    |(next, _): &(&Arc<str>, _)| Arc::ptr_eq(next, &name) || **next == name;
                let Some((_, resource)) = rest.next_if(is_next) else {
                    other = Some((name, value));
                    break;
                };
                self.len += 1;
                if value != V::from_resource(resource) {
                    self.differing.insert(name, Some(value));
                }
            }
            self.part = rest.next().map_or(Part::All, |(next, _)| Part::Before(Arc::clone(next)));
        }
        for (name, value) in other.into_iter().chain(entries) {
            self.insert(name, value);
        }
    }

    /// Whether it stores a name beyond the part of the base.
    fn has_beyond_part(&self) -> bool {
        match &self.part {
            Part::All => false,
            Part::Before(end) => {
                let from = (Bound::Included(&**end), Bound::Unbounded);
                self.differing.range::<str, _>(from).next().is_some()
            }
        }
    }

    /// Compares with all of the base from now on.
    fn extend_part(&mut self) {
        let part = std::mem::replace(&mut self.part, Part::All);
        let base = self.base.clone();
        for (name, resource) in part.rest_of(&base) {
            match self.differing.get(name) {
                None => _ = self.differing.insert(Arc::clone(name), None),
                Some(value) if *value == Some(V::from_resource(resource)) => {
                    self.differing.remove(name);
                }
                Some(_) => {}
            }
        }
    }

    /// Removes a name. Returns its value.
    pub(crate) fn remove(&mut self, name: &str) -> Option<V> {
        self.take(name).map(|(_, value)| value)
    }

    /// Removes a name. Returns the stored name with its value.
    pub(crate) fn take(&mut self, name: &str) -> Option<(Arc<str>, V)> {
        let value = self.get(name)?;
        let held = self.name(name)?;
        self.len -= 1;
        self.set(Arc::clone(&held), None);
        Some((held, value))
    }

    fn set(&mut self, name: Arc<str>, value: Option<V>) {
        let in_base = self.in_base(&name).map(|(_, resource)| V::from_resource(resource));
        self.store(name, value, in_base.as_ref());
    }

    /// Stores the value of a name that has the value `in_base` in the base.
    fn store(&mut self, name: Arc<str>, value: Option<V>, in_base: Option<&V>) {
        if in_base == value.as_ref() {
            self.differing.remove(&name);
        } else {
            self.differing.insert(name, value);
        }
    }

    /// All names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        let differs = |name: &&Arc<str>| self.differing.contains_key(*name);
        let part = self.base.keys().take_while(|name| self.part.contains(name));
        let same = part.filter(move |name| !differs(name));
        same.chain(self.differing.iter().filter_map(|(name, value)| value.as_ref().map(|_| name)))
    }

    /// The names whose value differs from `resources`, or that only one of the two has, in their order.
    pub(crate) fn differing_from(&self, resources: &ResourceMap) -> Vec<Arc<str>> {
        let mut names: Vec<_> =
            self.differences(resources).map(|(name, _)| Arc::clone(name)).collect();
        names.sort_unstable();
        names
    }

    /// The names whose value may differ from the one in `other`, some of them twice. All of them take as long as there
    /// are differences between the two bases, and names that the two store themselves.
    pub(crate) fn names_changed_from<'a>(
        &'a self,
        other: &'a Self,
    ) -> impl Iterator<Item = &'a Arc<str>> {
        let differs_in = |one: &'a Differing<V>, two: &'a Differing<V>| {
            let differs =
                move |(name, value): &(&'a Arc<str>, &Option<V>)| two.get(*name) != Some(*value);
            one.iter().filter(differs).map(|(name, _)| name)
        };
        let stored = differs_in(&self.differing, &other.differing);
        let stored = stored.chain(differs_in(&other.differing, &self.differing));
        // Names that only one of the two parts has.
        let beyond =
            self.part.rest_of(&other.base).take_while(|(name, _)| other.part.contains(name));
        let before =
            other.part.rest_of(&self.base).take_while(|(name, _)| self.part.contains(name));
        let in_one = beyond.chain(before).map(|(name, _)| name);
        stored.chain(in_one).chain(iter_changed_names(&other.base, &self.base))
    }

    /// Stores only the difference from `base` from now on, while that is the smaller part. Call it
    /// when the base changes, and after changes; it costs as much as what has changed.
    pub(crate) fn share(&mut self, base: &ResourceMap) {
        let is_connecting = !matches!(self.part, Part::All);
        if is_connecting && 2 * self.len >= base.len() && self.has_beyond_part() {
            self.extend_part();
        }
        if self.base.ptr_eq(base) {
            return;
        }
        if is_connecting {
            self.rebase(base);
            if self.part.rest_of(base).next().is_none() {
                self.part = Part::All;
            }
            return;
        }
        // The two thresholds differ, so that no single change crosses both.
        let (is_most, is_few) = (2 * self.len >= base.len(), 4 * self.len < base.len());
        if is_few {
            self.rebase(&ResourceMap::new());
        } else if is_most || !self.base.is_empty() {
            self.rebase(base);
        }
    }

    /// The names for which the map differs from `resources`, with the map's values, in no order. All of them take as
    /// long as there are differences between the two, and between the base and `resources`.
    pub(crate) fn differences<'a>(
        &'a self,
        resources: &'a ResourceMap,
    ) -> impl Iterator<Item = (&'a Arc<str>, Option<V>)> {
        let value_in = |name: &str| resources.get(name).map(|resource| V::from_resource(resource));
        let own = self.differing.iter().map(|(name, value)| (name, value.clone()));
        let own = own.filter(move |(name, value)| value_in(name) != *value);
        let of_base = (!self.base.ptr_eq(resources)).then(|| self.base.diff(resources));
        let beyond = self.part.rest_of(resources).map(|(name, _)| (name, None));
        let beyond = beyond.filter(|(name, _)| !self.differing.contains_key(*name));
        let of_base = of_base.into_iter().flatten().filter_map(|item| {
            let (name, before, now) = match item {
                DiffItem::Add(name, now) => (name, None, Some(now)),
                DiffItem::Remove(name, before) => (name, Some(before), None),
                DiffItem::Update { old: (_, before), new: (name, now) } => {
                    (name, Some(before), Some(now))
                }
            };
            let value = |resource: Option<&Resource>| resource.map(V::from_resource);
            let before = value(before.map(|one| &**one));
            let is_other = before != value(now.map(|one| &**one)) && self.part.contains(name);
            (is_other && !self.differing.contains_key(name)).then_some((name, before))
        });
        own.chain(of_base).chain(beyond)
    }

    /// Moves the same map to another base.
    fn rebase(&mut self, base: &ResourceMap) {
        let value = |resource: &Arc<Resource>| Some(V::from_resource(resource));
        let old = std::mem::replace(&mut self.base, base.clone());
        for item in old.diff(base) {
            let (name, before, now) = match item {
                DiffItem::Add(name, now) => (name, None, value(now)),
                DiffItem::Remove(name, before) => (name, value(before), None),
                DiffItem::Update { old: (_, before), new: (name, now) } => {
                    (name, value(before), value(now))
                }
            };
            // What is stored for the name differs from both, or is stored for neither.
            if before == now || !self.part.contains(name) {
                continue;
            }
            let value = self.differing.get(name).cloned().unwrap_or(before);
            self.store(Arc::clone(name), value, now.as_ref());
        }
    }
}

impl Overlay<Option<Version>> {
    /// The versions that are known.
    pub(crate) fn certain(&self) -> Overlay<Version> {
        let of = |(name, value): (&Arc<str>, &Option<Option<Version>>)| {
            let value = value.flatten();
            let is_here = value.is_some() || self.in_base(name).is_some();
            is_here.then(|| (Arc::clone(name), value))
        };
        let uncertain = self.differing.values().filter(|value| **value == Some(None)).count();
        Overlay {
            base: self.base.clone(),
            part: self.part.clone(),
            differing: self.differing.iter().filter_map(of).collect(),
            len: self.len - uncertain,
        }
    }
}

#[cfg(test)]
impl<V: FromResource> FromIterator<(Arc<str>, V)> for Overlay<V> {
    fn from_iter<I: IntoIterator<Item = (Arc<str>, V)>>(items: I) -> Self {
        let mut overlay = Self::default();
        for (name, value) in items {
            overlay.insert(name, value);
        }
        overlay
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::test_resources::cluster;

    /// Resources of a few names, in a few versions.
    fn resources(content: &[(u8, u8)]) -> ResourceMap {
        let named: BTreeMap<_, _> = content.iter().copied().collect();
        let clusters =
            named.iter().map(|(name, version)| cluster(&name.to_string(), (*version).into()));
        clusters.collect()
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u8, u8),
        /// The names from this one on, as many as this, in this version or the base's.
        InsertAll(u8, u8, u8),
        Remove(u8),
        Share(Vec<(u8, u8)>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            3 => (0..12_u8, 0..3_u8).prop_map(|(name, version)| Step::Insert(name, version)),
            3 => (0..12_u8, 1..8_u8, 0..3_u8).prop_map(|(first, count, version)| Step::InsertAll(first, count, version)),
            2 => (0..12_u8).prop_map(Step::Remove),
            1 => vec((0..12_u8, 0..3_u8), 0..12).prop_map(Step::Share),
        ];
        vec(step, 0..40)
    }

    proptest! {
        /// With any sequence of bases, it equals the plain map.
        #[test]
        fn overlay_equals_a_plain_map(first in vec((0..12_u8, 0..3_u8), 0..12), steps in steps()) {
            let version = |name: u8, version: u8| {
                resources(&[(name, version)]).values().next().unwrap().version()
            };
            let mut map = BTreeMap::<Arc<str>, Version>::new();
            let mut base = resources(&first);
            let mut overlay = Overlay::<Version>::none_of(&base);
            for step in steps {
                let (map_before, before) = (map.clone(), overlay.clone());
                match step {
                    Step::Insert(name, number) => {
                        map.insert(name.to_string().into(), version(name, number));
                        overlay.insert(name.to_string().into(), version(name, number));
                    }
                    Step::InsertAll(first, count, number) => {
                        let all: BTreeMap<Arc<str>, Version> = (first..(first + count).min(12)).map(|name| {
                            let of_base = base.get(&name.to_string()).filter(|_| number == 0);
                            let value = of_base.map_or_else(|| version(name, number), |one| one.version());
                            (name.to_string().into(), value)
                        }).collect();
                        map.extend(all.clone());
                        overlay.insert_all(all);
                    }
                    Step::Remove(name) => {
                        let name = name.to_string();
                        prop_assert_eq!(overlay.remove(&name), map.remove(&*name));
                    }
                    Step::Share(content) => {
                        base = resources(&content);
                        overlay.share(&base);
                        let mut differing: Vec<_> = map.keys().chain(base.keys()).cloned().collect();
                        differing.retain(|n| map.get(n).copied() != base.get(n).map(|r| r.version()));
                        differing.sort();
                        differing.dedup();
                        prop_assert_eq!(overlay.differing_from(&base), differing);
                    }
                }
                prop_assert!(!overlay.has_all_of(&base) || overlay.differing_from(&base).is_empty());
                let changed: BTreeSet<_> = overlay.names_changed_from(&before).collect();
                let differs = |name: &&Arc<str>| map.get(*name) != map_before.get(*name);
                let differing = map.keys().chain(map_before.keys()).filter(differs);
                prop_assert!(differing.collect::<BTreeSet<_>>().is_subset(&changed));
                prop_assert_eq!(overlay.len(), map.len());
                let mut names: Vec<_> = overlay.names().cloned().collect();
                names.sort();
                prop_assert!(names.iter().eq(map.keys()), "{:?}", names);
                for name in 0..12_u8 {
                    let name = name.to_string();
                    prop_assert_eq!(overlay.get(&name), map.get(&*name).copied());
                    prop_assert_eq!(overlay.contains_key(&name), map.contains_key(&*name));
                }
            }
        }
    }

    #[test]
    fn certain_overlay_excludes_unknown_versions() {
        let base = resources(&[(1, 0), (2, 0), (3, 0), (4, 0)]);
        let version = |name: &str| base.get(name).map(|resource| resource.version());
        // As in the base, different, unknown and absent; and two that the base lacks.
        let mut known = Overlay::with_base(&base, |name| match name {
            "1" | "2" => Some(version("1")),
            "3" => Some(None),
            _ => None,
        });
        known.insert("5".into(), version("1"));
        known.insert("6".into(), None);
        assert_eq!(known.len(), 5);
        let certain = known.certain();
        let names: Vec<_> = certain.names().map(|name| &**name).collect();
        assert_eq!(names, ["1", "2", "5"]);
        assert_eq!(certain.len(), 3);
        assert!(names.iter().all(|name| certain.get(name) == version("1")));
        assert_eq!(certain.differing_from(&base).len(), 4, "2 and 5, and what is not here");
    }

    #[test]
    fn overlay_stores_only_differences_from_its_base() {
        let base = resources(&[(1, 0), (2, 0), (3, 0), (4, 0)]);
        let mut overlay = Overlay::<Version>::default();
        for resource in base.values() {
            overlay.insert(Arc::clone(resource.name()), resource.version());
        }
        assert_eq!(overlay.differing.len(), 4);
        overlay.share(&base);
        assert_eq!(overlay.differing.len(), 0);
        // One of four changes and is ACKed.
        let next = resources(&[(1, 0), (2, 1), (3, 0), (4, 0)]);
        overlay.share(&next);
        assert_eq!(overlay.differing.keys().map(|name| &**name).collect::<Vec<_>>(), ["2"]);
        overlay.insert("2".into(), next.get("2").unwrap().version());
        assert_eq!(overlay.differing.len(), 0);
        // A map with few names of a large base stores them itself.
        for name in ["1", "2", "3"] {
            overlay.remove(name);
        }
        overlay.share(&resources(&[(1, 0), (2, 0), (3, 0), (4, 0), (5, 0)]));
        assert_eq!(overlay.differing.keys().map(|name| &**name).collect::<Vec<_>>(), ["4"]);
    }
}
