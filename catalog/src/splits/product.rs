//! Lists of paths, and how those of several backends become one list.

use super::{MAX_PATHS, SplitPath, TooManyPaths, weights};
use crate::name::ServiceName;
use crate::policy::HttpMatch;

/// Paths in the order in which they are tried. None of them is behind one that takes all that it would.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SplitPaths<'a>(pub(super) Vec<SplitPath<'a>>);

/// For each backend of a split its weight, and one of its paths.
type Choice<'a, 'b> = (Vec<&'a HttpMatch>, Vec<(u32, &'b [(&'a ServiceName, u32)])>);

impl<'a> SplitPaths<'a> {
    /// One path for all calls.
    pub(super) fn to(backends: Vec<(&'a ServiceName, u32)>) -> Self {
        Self(vec![SplitPath { conditions: Vec::new(), backends }])
    }

    /// Puts `others` behind these, each of them with further conditions.
    pub(super) fn extend(
        &mut self,
        conditions: &[&'a HttpMatch],
        others: &Self,
    ) -> Result<(), TooManyPaths> {
        for path in &others.0 {
            let conditions = both(conditions, &path.conditions);
            if !is_taken(&conditions, self.0.iter().map(|path| &path.conditions)) {
                self.0.push(SplitPath { conditions, backends: path.backends.clone() });
            }
            bounded(self.0.len())?;
        }
        Ok(())
    }

    /// The paths behind a split with these weights, given the paths of each of its backends: each path of
    /// the first with each of the second, and so on, so that the first whose conditions hold has the
    /// first path of each backend that is open to the request.
    pub(super) fn product(parts: &[(u32, Self)]) -> Result<Self, TooManyPaths> {
        let mut choices: Vec<Choice<'a, '_>> = vec![Choice::default()];
        for (weight, paths) in parts {
            let mut next: Vec<Choice<'a, '_>> = Vec::new();
            for (conditions, chosen) in &choices {
                for path in &paths.0 {
                    let conditions = both(conditions, &path.conditions);
                    if !is_taken(&conditions, next.iter().map(|(conditions, _)| conditions)) {
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

/// The conditions of both, each once. One that holds always is none.
pub(crate) fn both<'a>(some: &[&'a HttpMatch], others: &[&'a HttpMatch]) -> Vec<&'a HttpMatch> {
    let mut conditions: Vec<&HttpMatch> = Vec::with_capacity(some.len() + others.len());
    for condition in some.iter().chain(others) {
        let is_known = conditions.iter().any(|known| says_the_same(known, condition));
        if !is_known && !matches_all(condition) {
            conditions.push(condition);
        }
    }
    conditions
}

/// Whether no request is left: one before takes all that fulfil its own conditions, which are among
/// these.
pub(crate) fn is_taken<'a, 'b: 'a>(
    conditions: &[&'b HttpMatch],
    mut before: impl Iterator<Item = &'a Vec<&'b HttpMatch>>,
) -> bool {
    before.any(|own| {
        own.iter().all(|own| conditions.iter().any(|condition| says_the_same(own, condition)))
    })
}

fn says_the_same(one: &HttpMatch, other: &HttpMatch) -> bool {
    std::ptr::eq(one, other)
        || (&one.path, &one.methods, &one.headers) == (&other.path, &other.methods, &other.headers)
}

fn matches_all(one: &HttpMatch) -> bool {
    one.path.is_none() && one.methods.is_empty() && one.headers.is_empty()
}
