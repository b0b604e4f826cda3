//! The retained policies, the newest of which is the last good one, and the rollback pin.
//!
//! The policies share their documents: each text is stored once, under its hash. So an edit costs only the
//! edited document, regardless of the number of retained policies.

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::digest::{SHA256, digest};
use ironmesh_catalog::{PolicyPin, PolicyRecord, PolicyRevision, StoreError};
use serde::{Deserialize, Serialize};

use crate::database::{Failure, POLICY, Store};
use crate::entries::Entries;

/// The most retained policies.
pub(crate) const MOST_POLICIES: usize = 20;

/// The most bytes of retained documents; the newest policy is retained at any size.
const MOST_BYTES: usize = 64 * 1024 * 1024;

/// The prefix of the policies' numbers, which count up.
const POLICIES: &str = "policy/";
/// The prefix of the hashes of texts.
const TEXTS: &str = "text/";
/// The pin.
const PIN: &str = "pin";

/// The prefix of the last good policy's document paths in an older format, which retained one policy: read if
/// there is no policy in the current format, and removed by the first write.
const FORMER_DOCUMENTS: &str = "document/";
/// The same documents as one value, in the format before that.
const FORMER_VALUE: &str = "last_good";

/// A policy as it is stored.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    record: PolicyRecord,
    /// The documents: path, hash of the text, bytes of the text.
    documents: Vec<(String, String, usize)>,
}

impl Store {
    /// Stores the documents of a validated policy, by their paths, as the newest. An earlier policy of the
    /// same revision is removed, and so are the oldest beyond the limits. Returns the number of values that
    /// it wrote or removed.
    pub fn put_policy<'a>(
        &self,
        record: &PolicyRecord,
        documents: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<usize, StoreError> {
        self.put_policy_within(record, documents, MOST_BYTES)
            .map_err(|e| StoreError::new("keep the policy", e))
    }

    pub(crate) fn put_policy_within<'a>(
        &self,
        record: &PolicyRecord,
        documents: impl IntoIterator<Item = (&'a str, &'a str)>,
        most_bytes: usize,
    ) -> Result<usize, Failure> {
        let mut texts = BTreeMap::new();
        let mut entry = Kept { record: record.clone(), documents: Vec::new() };
        for (path, text) in documents {
            let hash = hash(text);
            entry.documents.push((path.to_owned(), hash.clone(), text.len()));
            texts.insert(hash, text);
        }
        entry.documents.sort();
        self.change(POLICY, |table| {
            let keys = table.keys()?;
            let mut kept = all(table, &keys)?;
            let newest = kept.last().map(|(number, _)| *number);
            if kept.last().is_some_and(|(_, last)| {
                last.record == entry.record && last.documents == entry.documents
            }) {
                return Ok(0);
            }
            kept.retain(|(_, other)| other.record.revision != record.revision);
            let number = newest.map_or(0, |newest| newest + 1);
            let value = serde_json::to_vec(&entry)?;
            kept.push((number, entry));
            keep_the_newest(&mut kept, most_bytes);

            let mut wanted: BTreeSet<String> =
                kept.iter().map(|(number, _)| policy_key(*number)).collect();
            let hashes = kept.iter().flat_map(|(_, kept)| &kept.documents);
            wanted.extend(hashes.map(|(_, hash, _)| format!("{TEXTS}{hash}")));
            let is_policy = |key: &str| {
                [POLICIES, TEXTS, FORMER_DOCUMENTS].iter().any(|prefix| key.starts_with(prefix))
                    || key == FORMER_VALUE
            };
            let gone: Vec<_> =
                keys.iter().filter(|key| is_policy(key) && !wanted.contains(*key)).collect();
            let mut written = gone.len() + 1;
            for key in &gone {
                table.remove(key)?;
            }
            for (hash, text) in &texts {
                let key = format!("{TEXTS}{hash}");
                if table.get(&key)?.is_none() {
                    table.insert(&key, text.as_bytes())?;
                    written += 1;
                }
            }
            table.insert(&policy_key(number), &value)?;
            Ok(written)
        })
    }

    /// The retained policies, the newest first.
    pub fn policies(&self) -> Result<Vec<PolicyRecord>, StoreError> {
        let kept = self.kept().map_err(|e| StoreError::new("read which policies are kept", e))?;
        Ok(kept.into_iter().rev().map(|kept| kept.record).collect())
    }

    /// The documents of a retained policy, by their paths.
    pub fn policy(
        &self,
        revision: &PolicyRevision,
    ) -> Result<Option<Vec<(String, String)>>, StoreError> {
        let read = || -> Result<_, Failure> {
            let kept = self.kept()?.into_iter().find(|kept| kept.record.revision == *revision);
            kept.map(|kept| self.documents(kept)).transpose()
        };
        read().map_err(|e| StoreError::new(format!("read the policy {revision}"), e))
    }

    /// The documents of the last validated policy, for a start whose source has an invalid one (invariants 1
    /// and 11).
    pub fn last_good_policy(&self) -> Result<Option<Vec<(String, String)>>, StoreError> {
        let read = || -> Result<_, Failure> {
            match self.kept()?.pop() {
                Some(newest) => self.documents(newest).map(Some),
                None => self.former(),
            }
        };
        read().map_err(|e| StoreError::new("read the last good policy", e))
    }

    /// Stores the policy to which an operator rolled back; `None` removes the pin.
    pub fn put_policy_pin(&self, pin: Option<&PolicyPin>) -> Result<(), StoreError> {
        let put = || match pin {
            Some(pin) => self.put_json(POLICY, PIN, pin),
            None => self.remove_all(POLICY, &[PIN.to_owned()]),
        };
        put().map_err(|e| StoreError::new("keep which policy was rolled back to", e))
    }

    /// The policy to which an operator rolled back, while the pin exists.
    pub fn policy_pin(&self) -> Result<Option<PolicyPin>, StoreError> {
        self.get_json(POLICY, PIN)
            .map_err(|e| StoreError::new("read which policy was rolled back to", e))
    }

    /// All retained policies, the oldest first.
    fn kept(&self) -> Result<Vec<Kept>, Failure> {
        let mut kept = Vec::new();
        for (_, json) in self.all_within(POLICY, POLICIES)? {
            kept.push(serde_json::from_slice(&json)?);
        }
        Ok(kept)
    }

    fn documents(&self, kept: Kept) -> Result<Vec<(String, String)>, Failure> {
        let read = |(path, hash, _): (String, String, usize)| {
            let text = self.get_value(POLICY, &format!("{TEXTS}{hash}"))?;
            let text = text.ok_or_else(|| format!("the text of `{path}` is not there"))?;
            Ok((path, String::from_utf8(text)?))
        };
        kept.documents.into_iter().map(read).collect()
    }

    fn former(&self) -> Result<Option<Vec<(String, String)>>, Failure> {
        let mut documents = None;
        for (key, text) in self.all_within(POLICY, FORMER_DOCUMENTS)? {
            let documents = documents.get_or_insert_with(Vec::new);
            // The empty path marked the existence of a policy, even without documents.
            match key.strip_prefix(FORMER_DOCUMENTS) {
                None | Some("") => {}
                Some(path) => documents.push((path.to_owned(), String::from_utf8(text)?)),
            }
        }
        match documents {
            None => self.get_json(POLICY, FORMER_VALUE),
            documents => Ok(documents),
        }
    }
}

/// All policies in `table`, whose keys these are, with their numbers, the oldest first.
fn all(table: &Entries<'_, '_>, keys: &[String]) -> Result<Vec<(u64, Kept)>, Failure> {
    let mut kept = Vec::new();
    for key in keys {
        let Some(number) = key.strip_prefix(POLICIES) else { continue };
        let Some(value) = table.get(key)? else { continue };
        kept.push((number.parse()?, serde_json::from_slice(&value)?));
    }
    Ok(kept)
}

/// Removes the oldest policies beyond the limits of number and size.
fn keep_the_newest(kept: &mut Vec<(u64, Kept)>, most_bytes: usize) {
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    let fitting = kept.iter().rev().take(MOST_POLICIES).take_while(|(_, kept)| {
        let new = kept.documents.iter().filter(|(_, hash, _)| seen.insert(hash.clone()));
        bytes += new.map(|(_, _, bytes)| bytes).sum::<usize>();
        bytes <= most_bytes
    });
    let count = fitting.count().max(1);
    kept.drain(..kept.len().saturating_sub(count));
}

/// The digits of a number, so many that the order of keys is that of numbers.
fn policy_key(number: u64) -> String {
    format!("{POLICIES}{number:020}")
}

fn hash(text: &str) -> String {
    use std::fmt::Write as _;
    let mut hex = String::new();
    for byte in digest(&SHA256, text.as_bytes()).as_ref() {
        // Writing to a string does not fail.
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}
