//! The order in which the parts of a mesh are assembled, which must not matter.

/// An order: rotated by some positions, and then possibly reversed.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::tests) struct PartOrder {
    pub(in crate::tests) rotated: usize,
    pub(in crate::tests) reversed: bool,
}

impl PartOrder {
    pub(super) fn of<T>(self, items: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut items: Vec<T> = items.into_iter().collect();
        let rotated = self.rotated.checked_rem(items.len()).unwrap_or(0);
        items.rotate_left(rotated);
        if self.reversed {
            items.reverse();
        }
        items
    }
}
