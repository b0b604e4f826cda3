//! Message parts: one piece of data for HTTP/2 from bytes in many places.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// Shared bytes, one after the other.
///
/// HTTP/2 keeps a slot for each waiting piece of data for the life of the connection, and writes
/// each as a frame and a TLS record. A thousand resources as a thousand pieces took 245 KB per
/// connection and a thousand system calls.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    parts: VecDeque<Bytes>,
    remaining: usize,
}

impl From<Vec<Bytes>> for Parts {
    fn from(parts: Vec<Bytes>) -> Self {
        let remaining = parts.iter().map(Bytes::len).sum();
        Self { parts: parts.into(), remaining }
    }
}

impl Buf for Parts {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.parts.iter().find(|part| !part.is_empty()).map_or(&[], |part| part)
    }

    fn chunks_vectored<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let parts = self.parts.iter().filter(|part| !part.is_empty());
        let filled = slices.iter_mut().zip(parts);
        filled.map(|(slice, part)| *slice = IoSlice::new(part)).count()
    }

    /// Skips `count` bytes, or all that remain if there are fewer: the trait would allow a panic.
    fn advance(&mut self, count: usize) {
        let mut left = count.min(self.remaining);
        self.remaining -= left;
        while let Some(part) = self.parts.front_mut() {
            if left < part.len() {
                part.advance(left);
                return;
            }
            left -= part.len();
            self.parts.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Any sequence of reads returns the bytes of the parts.
        #[test]
        fn parts_read_as_their_concatenated_bytes(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
            steps in prop::collection::vec(1..12_usize, 80),
        ) {
            let whole = parts.concat();
            let mut read = Vec::new();
            let mut rest = Parts::from(parts.into_iter().map(Bytes::from).collect::<Vec<_>>());
            for step in steps {
                prop_assert_eq!(rest.remaining(), whole.len() - read.len());
                let mut slices = [IoSlice::new(&[]); 3];
                let count = rest.chunks_vectored(&mut slices);
                let seen: Vec<u8> = slices.iter().take(count).flat_map(|slice| slice.to_vec()).collect();
                prop_assert!(whole[read.len()..].starts_with(&seen));
                prop_assert_eq!(count == 0, !rest.has_remaining());
                prop_assert!(seen.starts_with(rest.chunk()));
                let step = step.min(rest.remaining());
                read.extend_from_slice(&rest.copy_to_bytes(step));
            }
            prop_assert_eq!(read, whole);
        }
    }
}
