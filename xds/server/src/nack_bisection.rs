//! NACK bisection: finds the bad resource in a NACKed push.
//!
//! The error of a NACK does not name the resource. So the server pushes the halves of the push one
//! after the other, then the halves of a half that is NACKed again, and so on. It finds one bad
//! resource among n with about 2 log n pushes, and the client ACKs all others (rule 5).

use std::collections::VecDeque;
use std::sync::Arc;

/// The names still to be pushed, in groups.
#[derive(Debug, Default)]
pub(crate) struct NackBisection(VecDeque<Vec<Arc<str>>>);

impl NackBisection {
    /// Adds a NACKed group. Its halves come before all others.
    pub(crate) fn split(&mut self, mut names: Vec<Arc<str>>) {
        let second = names.split_off(names.len().div_ceil(2));
        for half in [second, names] {
            if !half.is_empty() {
                self.0.push_front(half);
            }
        }
    }

    /// The first group with names that are `free` to be sent, and those names.
    pub(crate) fn next_of(&self, free: impl Fn(&str) -> bool) -> Option<Vec<Arc<str>>> {
        let of = |group: &Vec<Arc<str>>| -> Vec<_> {
            group.iter().filter(|name| free(name)).cloned().collect()
        };
        self.0.iter().map(of).find(|names| !names.is_empty())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All names that are still to be pushed.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().flatten()
    }

    /// Keeps the names that are still pending.
    pub(crate) fn retain(&mut self, mut is_pending: impl FnMut(&Arc<str>) -> bool) {
        for group in &mut self.0 {
            group.retain(&mut is_pending);
        }
        self.0.retain(|group| !group.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the pushes that find the bad ones among `count`, and returns which were found.
    fn search(count: usize, is_bad: impl Fn(usize) -> bool) -> (usize, Vec<usize>) {
        let (mut bisection, mut pushes, mut found) = (NackBisection::default(), 0, Vec::new());
        let all: Vec<Arc<str>> = (0..count).map(|number| number.to_string().into()).collect();
        let number = |name: &Arc<str>| name.parse::<usize>().unwrap();
        bisection.split(all);
        while let Some(group) = bisection.next_of(|_| true) {
            bisection.retain(|name| !group.contains(name));
            pushes += 1;
            match &group[..] {
                [one] if is_bad(number(one)) => found.push(number(one)),
                several if several.iter().any(|one| is_bad(number(one))) => bisection.split(group),
                _ => {}
            }
        }
        (pushes, found)
    }

    #[test]
    fn bisection_finds_bad_resources_in_few_pushes() {
        assert_eq!(search(2, |number| number == 1), (2, vec![1]));
        for bad in [0, 333, 999] {
            let (pushes, found) = search(1000, |number| number == bad);
            assert_eq!(found, [bad]);
            assert!(pushes <= 20, "{pushes} pushes");
        }
        let (pushes, found) = search(1000, |number| number % 500 == 7);
        assert_eq!(found, [7, 507]);
        assert!(pushes <= 40, "{pushes} pushes");
        assert_eq!(search(5, |_| true).1, [0, 1, 2, 3, 4]);
    }
}
