//! Whether what happened was a swap. A pure function of two looks at the folder.

use crate::folder::layout::Identity;

/// When the folder is to be read again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    /// At once: it is complete.
    Now,
    /// When nothing has happened for a while.
    Settle,
}

/// Decides, from whether anything was `renamed`, which folder there was `before` and which there is
/// `after`.
pub(super) fn decide(
    renamed: bool,
    before: Option<&Identity>,
    after: Option<&Identity>,
) -> Decision {
    let is_swap = match (before, after) {
        // A folder that is gone may be about to be replaced, in a second step.
        (_, None) => false,
        // A folder that was made with mkdir is yet to be filled. One that was renamed or linked into
        // its place is complete.
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
