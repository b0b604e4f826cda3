//! The digest of a set of records, to which one record is added, or from which it is removed, at a cost that does not
//! depend on the others.
//!
//! It is the sum of keyed hashes, one for each record ([`crate::RecordCipher::element`]). Without the key,
//! no other set with the same sum can be found (Clarke et al., "Incremental Multiset Hash Functions", 2003, MSet-Add-Hash).

use std::fmt;

use serde::{Deserialize, Serialize};

/// The number of 64-bit parts of a digest.
const PARTS: usize = 4;

/// The digest of a set of records.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetDigest([u64; PARTS]);

/// The part of one record in a digest.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SetElement([u64; PARTS]);

impl SetElement {
    /// The element of a keyed hash of 32 bytes.
    pub(crate) fn from_tag(tag: &[u8]) -> Self {
        let mut parts = [0; PARTS];
        for (part, bytes) in parts.iter_mut().zip(tag.chunks_exact(8)) {
            let mut number = [0; 8];
            number.copy_from_slice(bytes);
            *part = u64::from_be_bytes(number);
        }
        Self(parts)
    }
}

impl SetDigest {
    /// Adds a record, which is not in the set.
    pub fn add(&mut self, element: SetElement) {
        for (part, other) in self.0.iter_mut().zip(element.0) {
            *part = part.wrapping_add(other);
        }
    }

    /// Removes a record of the set.
    pub fn remove(&mut self, element: SetElement) {
        for (part, other) in self.0.iter_mut().zip(element.0) {
            *part = part.wrapping_sub(other);
        }
    }
}

impl fmt::Debug for SetDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetDigest(")?;
        self.0.iter().try_for_each(|part| write!(f, "{part:016x}"))?;
        f.write_str(")")
    }
}

impl fmt::Debug for SetElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SetElement")
    }
}
