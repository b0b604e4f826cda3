//! Decides whether a change was a swap: a pure function of two layouts of the folder.

use crate::folder::layout::Identity;

/// When the folder is to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// At once, since it is complete.
    Now,
    /// When no event has happened for a while.
    Settle,
}

/// Decides, from whether an event was a rename (`renamed`), and from the identity of the folder `before` and
/// `after`.
pub(super) fn decide(
    renamed: bool,
    before: Option<&Identity>,
    after: Option<&Identity>,
) -> Decision {
    let is_swap = match (before, after) {
        // A folder that is gone may be about to be replaced, in a second step.
        (_, None) => false,
        // A folder that mkdir created is still to be filled. One that was renamed or linked into place is
        // complete.
        (None, Some(after)) => renamed || after.is_linked,
        (Some(before), Some(after)) => {
            let is_another = before.id != after.id;
            before.resolved != after.resolved
                || before.links != after.links
                || is_another && renamed
        }
    };
    if is_swap { Decision::Now } else { Decision::Settle }
}
