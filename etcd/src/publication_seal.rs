//! The seal of publications: a client of etcd that is no candidate can neither make one nor put an older one back.

use std::fmt;
use std::sync::Arc;

/// Seals publications. The owner of the stored values implements it, with its keys.
pub trait PublicationSeal: fmt::Debug + Send + Sync {
    /// The sealed value of `key` with this version; none if it cannot be sealed.
    fn seal(&self, key: &str, version: u64, plain: &[u8]) -> Option<Vec<u8>>;

    /// The version and the content of a value that was sealed for `key`; none if it was not.
    fn open(&self, key: &str, sealed: &[u8]) -> Option<(u64, Vec<u8>)>;
}

/// The publications of one key as a candidate sees them.
#[derive(Debug, Default)]
pub(crate) struct SealedPublications {
    pub(crate) seal: Option<Arc<dyn PublicationSeal>>,
    /// The version of the newest one that was written or read.
    newest: u64,
}

impl SealedPublications {
    /// The value of a publication to write, and its version: above those of all earlier leaders. Each of those was at most
    /// the revision of etcd after its write, and `revision` was read since then.
    pub(crate) fn seal(&self, key: &str, plain: &[u8], revision: i64) -> Option<(u64, Vec<u8>)> {
        let version = revision.unsigned_abs().max(self.newest + 1);
        let value = match &self.seal {
            None => Some(plain.to_vec()),
            Some(seal) => seal.seal(key, version, plain),
        };
        Some((version, value?))
    }

    /// Notes that a publication was written. One that failed has no version: etcd may have no revision for it.
    pub(crate) fn note_written(&mut self, version: u64) {
        self.newest = version;
    }

    /// The content of a value that was read; none if it is not authentic, or older than one before.
    pub(crate) fn open(&mut self, key: &str, value: Vec<u8>) -> Option<Vec<u8>> {
        let Some(seal) = &self.seal else { return Some(value) };
        let (version, plain) = seal.open(key, &value)?;
        if version < self.newest {
            return None;
        }
        self.newest = version;
        Some(plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes the key and the version before the content.
    #[derive(Debug)]
    struct PlainSeal;

    impl PublicationSeal for PlainSeal {
        fn seal(&self, key: &str, version: u64, plain: &[u8]) -> Option<Vec<u8>> {
            Some([key.as_bytes(), &[0], &version.to_be_bytes(), plain].concat())
        }

        fn open(&self, key: &str, sealed: &[u8]) -> Option<(u64, Vec<u8>)> {
            let rest = sealed.strip_prefix(key.as_bytes())?.strip_prefix(&[0])?;
            let (version, plain) = rest.split_first_chunk::<8>()?;
            Some((u64::from_be_bytes(*version), plain.to_vec()))
        }
    }

    fn publications() -> SealedPublications {
        SealedPublications { seal: Some(Arc::new(PlainSeal)), newest: 0 }
    }

    #[test]
    fn forged_moved_or_older_publication_is_not_read() {
        let mut follower = publications();
        let seal = |key: &str, version| PlainSeal.seal(key, version, b"a").unwrap();
        assert_eq!(follower.open("told", b"a".to_vec()), None, "not sealed");
        assert_eq!(follower.open("told", seal("other", 9)), None, "moved");
        assert_eq!(follower.open("told", seal("told", 7)).as_deref(), Some(&b"a"[..]));
        assert_eq!(follower.open("told", seal("told", 6)), None, "older");
        assert!(follower.open("told", seal("told", 8)).is_some());
        let mut unsealed = SealedPublications::default();
        assert_eq!(unsealed.open("told", b"a".to_vec()).as_deref(), Some(&b"a"[..]));
    }

    #[test]
    fn versions_grow_from_leader_to_leader() {
        // The first leader writes at the revisions 41 and 42, and did not campaign between them.
        let mut first = publications();
        let mut follower = publications();
        for _ in 0..2 {
            let (version, value) = first.seal("told", b"a", 40).unwrap();
            first.note_written(version);
            assert!(follower.open("told", value).is_some());
        }
        // A new one has read nothing. Its own key is revision 43.
        let (_, value) = publications().seal("told", b"b", 43).unwrap();
        assert_eq!(follower.open("told", value).as_deref(), Some(&b"b"[..]));
    }
}
