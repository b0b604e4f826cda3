//! The next snapshot: a shape with some parts of another.

use std::collections::BTreeMap;

use super::Shape;

impl Shape {
    /// This shape with some parts of another, of lists all elements or `only` one: the next
    /// snapshot.
    pub(in crate::tests) fn with_parts_of(
        &self,
        other: &Self,
        (parts, only): (u32, Option<usize>),
    ) -> Self {
        let takes = |part: u32| parts & (1 << part) != 0;
        let mut next = self.clone();
        if takes(0) {
            next.groups = merge_map(&self.groups, &other.groups, only);
        }
        if takes(1) {
            next.routes = merge_map(&self.routes, &other.routes, only);
        }
        if takes(2) {
            merge_list(&mut next.targets, &other.targets, only);
        }
        if takes(3) {
            merge_list(&mut next.splits, &other.splits, only);
        }
        if takes(4) {
            merge_each(&mut next.services[2..], &other.services[2..], only, Clone::clone_from);
        }
        if takes(5) {
            for (proxy, other) in next.proxies.iter_mut().zip(&other.proxies) {
                (proxy.participates, proxy.is_suspect) = (other.participates, other.is_suspect);
                proxy.is_vacant = other.is_vacant;
            }
        }
        if takes(6) {
            next.proxies.truncate(2);
            next.proxies.extend(other.proxies.iter().skip(2).cloned());
        }
        if takes(7) {
            merge_each(&mut next.services, &other.services, only, |service, other| {
                (service.mode, service.is_listed) = (other.mode, other.is_listed);
            });
        }
        if takes(8) {
            merge_each(&mut next.services, &other.services, only, |service, other| {
                (service.is_private, service.has_part) = (other.is_private, other.has_part);
                service.escaped_slashes = other.escaped_slashes;
                (service.ports, service.outside) = (other.ports.clone(), other.outside);
            });
        }
        if takes(20) {
            merge_each(&mut next.services, &other.services, only, |service, other| {
                service.upstreams.clone_from(&other.upstreams);
            });
        }
        if takes(9) {
            merge_each(&mut next.namespaces, &other.namespaces, only, Clone::clone_from);
        }
        if takes(10) {
            next.mode = other.mode;
            next.has_other_bindings = other.has_other_bindings;
        }
        if takes(11) {
            merge_each(&mut next.services, &other.services, only, |service, other| {
                service.found.clone_from(&other.found);
            });
        }
        if takes(12) {
            merge_each(&mut next.services, &other.services, only, |service, other| {
                service.is_drained = other.is_drained;
            });
        }
        if takes(13) {
            merge_list(&mut next.treated, &other.treated, only);
        }
        if takes(14) {
            merge_list(&mut next.settings, &other.settings, only);
        }
        if takes(15) {
            merge_list(&mut next.ingress, &other.ingress, only);
        }
        if takes(16) {
            next.telemetry.clone_from(&other.telemetry);
        }
        if takes(17) {
            let (ours, other) = (&mut next.outward, &other.outward);
            merge_list(&mut ours.egresses, &other.egresses, only);
            merge_each(&mut ours.namespaces, &other.namespaces, only, Clone::clone_from);
            ours.mesh = other.mesh;
        }
        if takes(18) {
            merge_list(&mut next.revoked, &other.revoked, only);
        }
        if takes(19) {
            merge_list(&mut next.reissued, &other.reissued, only);
        }
        next
    }
}

/// Applies `take` to the elements at the same index in both lists: to all, or to the one at index
/// `only`.
fn merge_each<T>(list: &mut [T], other: &[T], only: Option<usize>, take: impl Fn(&mut T, &T)) {
    let both = list.len().min(other.len());
    let is_taken = |n: usize| only.is_none_or(|only| only.checked_rem(both) == Some(n));
    for (n, (one, other)) in list.iter_mut().zip(other).enumerate() {
        if is_taken(n) {
            take(one, other);
        }
    }
}

/// Turns a list into the other: as a whole, or the element at index `only` and one at the end.
fn merge_list<T: Clone>(list: &mut Vec<T>, other: &[T], only: Option<usize>) {
    merge_each(list, other, only, Clone::clone_from);
    match only {
        None => {
            list.truncate(other.len());
            list.extend(other.iter().skip(list.len()).cloned().collect::<Vec<_>>());
        }
        Some(n) if n % 2 == 0 => list.extend(other.get(list.len()).cloned()),
        Some(_) => list.truncate(other.len().max(list.len().saturating_sub(1))),
    }
}

/// The same for maps, by key.
fn merge_map<K: Ord + Clone, T: Clone>(
    map: &BTreeMap<K, T>,
    other: &BTreeMap<K, T>,
    only: Option<usize>,
) -> BTreeMap<K, T> {
    let Some(only) = only else { return other.clone() };
    let mut map = map.clone();
    if let Some(key) = map.keys().chain(other.keys()).nth(only).cloned() {
        match other.get(&key) {
            Some(other) => map.insert(key, other.clone()),
            None => map.remove(&key),
        };
    }
    map
}
