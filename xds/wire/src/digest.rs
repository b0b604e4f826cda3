//! Digests of collections, to compare a client's report with a set at the cost of one hash for each
//! name.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The seed of all digests, other in each process. They are never sent or stored.
static SEED: LazyLock<u64> = LazyLock::new(|| RandomState::new().hash_one(0));

/// A digest of a collection in any order: the sum of the hashes of its members.
///
/// Collections with the same number of members and with equal digests are the same, but for one
/// chance in 2^128. That includes a collection in which a member repeats. The hash is not a
/// cryptographic one. A client that could find a collision would only pretend to have what is in
/// its own set; and it cannot know the seed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Digest(u128);

impl Digest {
    /// The digest of one name.
    pub(crate) fn of_name(name: &str) -> Self {
        Self(xxh3_128_with_seed(name.as_bytes(), *SEED))
    }

    /// The digest of one name with its version, which follows it in `entry` from `name_len` on.
    pub(crate) fn of_version(entry: &str, name_len: usize) -> Self {
        // Entries with another border between name and version have another seed.
        let border = u64::try_from(name_len).unwrap_or(u64::MAX);
        Self(xxh3_128_with_seed(entry.as_bytes(), SEED.wrapping_add(1).wrapping_add(border)))
    }

    /// Adds the members of another collection.
    pub(crate) fn add(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// Removes the members of another collection, which this one contains.
    pub(crate) fn remove(&mut self, other: Self) {
        self.0 = self.0.wrapping_sub(other.0);
    }
}

impl FromIterator<Self> for Digest {
    fn from_iter<I: IntoIterator<Item = Self>>(digests: I) -> Self {
        let mut sum = Self::default();
        for digest in digests {
            sum.add(digest);
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Digest {
        names.iter().map(|name| Digest::of_name(name)).collect()
    }

    #[test]
    fn digest_ignores_order_but_not_repetition() {
        assert_eq!(names(&["a", "b", "c"]), names(&["c", "a", "b"]));
        for other in [&["a", "b"][..], &["a", "a", "b"], &["a", "b", "d"], &["ab", "c", ""], &[]] {
            assert_ne!(names(&["a", "b", "c"]), names(other), "{other:?}");
        }
    }

    #[test]
    fn removed_member_leaves_no_trace() {
        let mut digest = names(&["a", "b"]);
        digest.remove(Digest::of_name("a"));
        assert_eq!(digest, names(&["b"]));
        digest.remove(Digest::of_name("b"));
        assert_eq!(digest, Digest::default());
    }

    #[test]
    fn border_between_name_and_version_counts() {
        let version =
            |name: &str, version: &str| Digest::of_version(&format!("{name}{version}"), name.len());
        assert_eq!(version("a", "bc"), version("a", "bc"));
        assert_ne!(version("a", "bc"), version("ab", "c"));
    }
}
