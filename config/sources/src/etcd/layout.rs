//! The layout of a policy in etcd: keys, manifest and chunks. Pure.

use std::path::{Component, Path};

use ironmesh_catalog::PolicyRecord;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_128;

use ironmesh_config_language::Document;

/// The bytes of a chunk: well below the 1.5 MiB that etcd allows in one request.
pub(super) const CHUNK: usize = 512 * 1024;

/// The most chunks of a policy: one transaction, of at most 128 operations, takes the lease off all of them.
pub(super) const MOST_CHUNKS: usize = 100;

/// The version of the layout.
const FORMAT: u32 = 1;

/// The keys of one policy.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    prefix: String,
}

/// The facts about a push that are known before its chunks are read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    format: u32,
    /// The name of the push in keys.
    pub(super) push: String,
    /// The record of its policy.
    #[serde(flatten)]
    pub(super) record: PolicyRecord,
    /// The number of its chunks.
    pub(super) chunks: usize,
    /// The total bytes of the chunks.
    pub(super) bytes: usize,
    /// The XXH3-128 of these bytes, in hexadecimal. It detects accidents, not attacks by those who may write.
    hash: String,
}

impl Layout {
    pub(super) fn new(prefix: &str) -> Self {
        Self { prefix: prefix.to_owned() }
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The key that names the current push.
    pub(super) fn current(&self) -> String {
        format!("{}/current", self.prefix)
    }

    /// The prefix of the keys of all manifests.
    pub(super) fn pushes(&self) -> String {
        format!("{}/pushes/", self.prefix)
    }

    pub(super) fn manifest(&self, push: &str) -> String {
        format!("{}/pushes/{push}", self.prefix)
    }

    /// The prefix of the keys of a push's chunks.
    pub(super) fn chunks(&self, push: &str) -> String {
        format!("{}/revisions/{push}/", self.prefix)
    }

    pub(super) fn chunk(&self, push: &str, number: usize) -> String {
        format!("{}/revisions/{push}/{number:05}", self.prefix)
    }
}

/// The documents as the bytes that are cut into chunks.
pub(super) fn encode(documents: &[Document]) -> Result<Vec<u8>, serde_json::Error> {
    let pairs: Vec<(&str, &str)> = documents.iter().map(|d| (&*d.path, &*d.text)).collect();
    serde_json::to_vec(&pairs)
}

impl Manifest {
    /// The manifest of the push `push` with these bytes.
    pub(super) fn new(push: String, record: PolicyRecord, bytes: &[u8]) -> Self {
        Self {
            format: FORMAT,
            push,
            record,
            chunks: bytes.len().div_ceil(CHUNK),
            bytes: bytes.len(),
            hash: hash(bytes),
        }
    }

    pub(super) fn encode(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec(self)
    }

    /// Reads the value of a manifest's key, or returns its damage.
    pub(super) fn decode(value: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Any {
            format: u32,
        }
        let format: Any = serde_json::from_slice(value)
            .map_err(|error| format!("was not written by a push ({error})"))?;
        if format.format != FORMAT {
            let found = format.format;
            return Err(format!(
                "has format {found}, and this version knows {FORMAT}: run a newer one"
            ));
        }
        let manifest: Self = serde_json::from_slice(value)
            .map_err(|error| format!("was not written by a push ({error})"))?;
        if manifest.chunks > MOST_CHUNKS || manifest.chunks != manifest.bytes.div_ceil(CHUNK) {
            return Err(format!("names {} chunks, which cannot be", manifest.chunks));
        }
        let PolicyRecord { revision, commit, by, message, .. } = &manifest.record;
        let words = [commit, by, message].into_iter().flatten().map(String::as_str);
        if words.chain([&*revision.0, &manifest.push]).any(|text| !is_line(text)) {
            return Err("has words that are no line of text".to_owned());
        }
        Ok(manifest)
    }

    /// The documents of all chunks, or the damage of these.
    pub(super) fn documents(&self, bytes: &[u8]) -> Result<Vec<Document>, String> {
        if bytes.len() != self.bytes || hash(bytes) != self.hash {
            return Err("do not have the content that was pushed".to_owned());
        }
        let pairs: Vec<(String, String)> = serde_json::from_slice(bytes)
            .map_err(|error| format!("hold no documents ({error})"))?;
        if let Some((path, _)) = pairs.iter().find(|(path, _)| !is_below_a_folder(path)) {
            return Err(format!("hold a document of a path that is none: `{path}`"));
        }
        Ok(pairs.into_iter().map(|(path, text)| Document::new(path, text)).collect())
    }
}

/// Whether a document of this path is below the folder to which it is written.
fn is_below_a_folder(path: &str) -> bool {
    !path.is_empty()
        && !path.contains('\0')
        && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}

/// Whether a text is safe to show as it is: it moves no cursor, and does not fill the screen.
fn is_line(text: &str) -> bool {
    text.len() <= MOST_WORDS && !text.contains(char::is_control)
}

/// The most bytes of a reason or of an author's name.
const MOST_WORDS: usize = 1000;

fn hash(bytes: &[u8]) -> String {
    format!("{:032x}", xxh3_128(bytes))
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::PolicyRevision;
    use jiff::Timestamp;

    use super::*;

    fn record() -> PolicyRecord {
        PolicyRecord {
            revision: PolicyRevision("abc".into()),
            at: Timestamp::UNIX_EPOCH,
            commit: None,
            by: Some("me".to_owned()),
            message: None,
        }
    }

    #[test]
    fn encoded_documents_round_trip() {
        for documents in
            [vec![], vec![Document::new("a/b.toml", "x".repeat(CHUNK)), Document::new("c", "ü")]]
        {
            let bytes = encode(&documents).unwrap();
            let manifest = Manifest::new("1".to_owned(), record(), &bytes);
            assert_eq!(manifest.chunks, bytes.chunks(CHUNK).len());
            let decoded = Manifest::decode(&manifest.encode().unwrap()).unwrap();
            assert_eq!(decoded, manifest);
            assert_eq!(decoded.documents(&bytes).unwrap(), documents);
        }
    }

    #[test]
    fn manifest_not_written_by_a_push_is_rejected() {
        let bytes = encode(&[Document::new("a.toml", "# a")]).unwrap();
        let manifest = Manifest::new("1".to_owned(), record(), &bytes);
        let text = String::from_utf8(manifest.encode().unwrap()).unwrap();
        let reported = |value: &str| Manifest::decode(value.as_bytes()).unwrap_err();
        for garbage in ["", "hello", "{}", "{\"format\":1}"] {
            assert!(reported(garbage).starts_with("was not written by a push"), "{garbage}");
        }
        assert!(reported(&text.replace("\"format\":1", "\"format\":2")).contains("has format 2"));
        assert!(reported(&text.replace("\"chunks\":1", "\"chunks\":101")).contains("101 chunks"));
        for by in ["\\u001b[2J", "x\\ny", &"x".repeat(1001)] {
            let reported = reported(&text.replace("\"by\":\"me\"", &format!("\"by\":\"{by}\"")));
            assert_eq!(reported, "has words that are no line of text");
        }
        let reported = manifest.documents(b"[]").unwrap_err();
        assert!(reported.starts_with("do not have the content"), "{reported}");
        for path in ["", "/etc/passwd", "../a.toml", "a/../../b", "./a", "a\0"] {
            let bytes = encode(&[Document::new(path, "")]).unwrap();
            let manifest = Manifest::new("1".to_owned(), record(), &bytes);
            assert!(
                manifest.documents(&bytes).unwrap_err().contains("a path that is none"),
                "{path}"
            );
        }
    }
}
