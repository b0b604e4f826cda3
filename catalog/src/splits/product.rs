//! Lists of split paths, and their combination across backends.

use super::{MAX_PATHS, SplitPath, TooManyPaths, weights};
use crate::name::ServiceName;
use crate::policy::HttpMatch;

/// Paths in order of evaluation. None of them is unreachable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SplitPaths<'a>(pub(super) Vec<SplitPath<'a>>);

/// The weight and one path of each backend of a split.
type Choice<'a, 'b> = (Vec<&'a HttpMatch>, Vec<(u32, &'b [(&'a ServiceName, u32)])>);

impl<'a> SplitPaths<'a> {
    /// One path for all calls.
    pub(super) fn to(backends: Vec<(&'a ServiceName, u32)>) -> Self {
        Self(vec![SplitPath { conditions: Vec::new(), backends }])
    }

    /// Appends `others`, with further conditions.
    pub(super) fn extend(
        &mut self,
        conditions: &[&'a HttpMatch],
        others: &Self,
    ) -> Result<(), TooManyPaths> {
        for path in &others.0 {
            let conditions = both(conditions, &path.conditions);
            if !is_unreachable(&conditions, self.0.iter().map(|path| &path.conditions)) {
                self.0.push(SplitPath { conditions, backends: path.backends.clone() });
            }
            bounded(self.0.len())?;
        }
        Ok(())
    }

    /// The paths of a split, given the weights and the paths of its backends: each path of the first with each
    /// path of the second, and so on. So the first matching combination has the first matching path of each
    /// backend.
    pub(super) fn product(parts: &[(u32, Self)]) -> Result<Self, TooManyPaths> {
        let mut choices: Vec<Choice<'a, '_>> = vec![Choice::default()];
        for (weight, paths) in parts {
            let mut next: Vec<Choice<'a, '_>> = Vec::new();
            for (conditions, chosen) in &choices {
                for path in &paths.0 {
                    let conditions = both(conditions, &path.conditions);
                    if !is_unreachable(&conditions, next.iter().map(|(conditions, _)| conditions)) {
                        let own = (*weight, path.backends.as_slice());
                        next.push((conditions, chosen.iter().copied().chain([own]).collect()));
                    }
                    bounded(next.len())?;
                }
            }
            choices = next;
        }
        let path = |(conditions, chosen): Choice<'a, '_>| SplitPath {
            conditions,
            backends: weights::multiplied(&chosen),
        };
        Ok(Self(choices.into_iter().map(path).collect()))
    }
}

fn bounded(paths: usize) -> Result<(), TooManyPaths> {
    if paths > MAX_PATHS { Err(TooManyPaths { is_in_backend: false }) } else { Ok(()) }
}

/// The conditions of both, each once, without those that always hold.
pub(crate) fn both<'a>(some: &[&'a HttpMatch], others: &[&'a HttpMatch]) -> Vec<&'a HttpMatch> {
    let mut conditions: Vec<&HttpMatch> = Vec::with_capacity(some.len() + others.len());
    for condition in some.iter().chain(others) {
        let is_known = conditions.iter().any(|known| is_same_condition(known, condition));
        if !is_known && !matches_all(condition) {
            conditions.push(condition);
        }
    }
    conditions
}

/// Whether no request can reach a path: an earlier path has a subset of its conditions.
pub(crate) fn is_unreachable<'a, 'b: 'a>(
    conditions: &[&'b HttpMatch],
    mut before: impl Iterator<Item = &'a Vec<&'b HttpMatch>>,
) -> bool {
    before.any(|own| {
        own.iter().all(|own| conditions.iter().any(|condition| is_same_condition(own, condition)))
    })
}

fn is_same_condition(one: &HttpMatch, other: &HttpMatch) -> bool {
    std::ptr::eq(one, other)
        || (&one.path, &one.methods, &one.headers) == (&other.path, &other.methods, &other.headers)
}

fn matches_all(one: &HttpMatch) -> bool {
    one.path.is_none() && one.methods.is_empty() && one.headers.is_empty()
}
