//! The high-water mark: a file beside the database with the highest revision that the store had.
//!
//! An older copy of the whole database is authentic in itself. Only something outside of it can tell that it is old.
//! If mark and database are restored together, nothing tells.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::authentic::{KeyDerivation, derive};
use crate::key::{self, KeyEncryptionKey};
use crate::private_file;

/// What the high-water mark tells about the state since its last removal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HighWaterFault {
    /// The database was replaced by an older copy.
    OlderCopy {
        /// The revision of the copy.
        found: u64,
        /// The highest revision before.
        mark: u64,
    },
    /// The mark was changed, belongs to a different key-encryption key, or cannot be read. So it is unknown whether
    /// the database is an older copy.
    Unusable,
}

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Mark {
    revision: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    fault: Option<HighWaterFault>,
}

/// The high-water mark of an open store.
pub(crate) struct HighWater {
    path: PathBuf,
    key: hmac::Key,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    mark: Mark,
    /// Whether the mark was read. Until then nothing is written: a store that is rejected stays unchanged.
    is_read: bool,
    /// Whether the file has this mark.
    is_written: bool,
    /// Why the last write failed.
    failure: Option<String>,
}

impl HighWater {
    /// The mark in `folder`, not yet read.
    pub(crate) fn new(folder: &Path, kek: &KeyEncryptionKey) -> Result<Self, KeyDerivation> {
        let key = derive(kek, b"high-water mark")?;
        Ok(Self { path: folder.join(HIGH_WATER), key, state: Mutex::default() })
    }

    /// Reads the mark. Returns its revision if it is above `revision`, that of the store; none if there is no mark.
    /// Only [`HighWater::note_older_copy`] makes that a fault.
    pub(crate) fn read(&self, revision: u64) -> Option<u64> {
        let mut state = self.state.lock();
        state.is_read = true;
        state.mark = match fs_err::read_to_string(&self.path) {
            Ok(text) => match self.parse(&text) {
                Some(mark) => {
                    state.is_written = true;
                    mark
                }
                None => Mark { revision, fault: Some(HighWaterFault::Unusable) },
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Mark { revision, fault: None },
            Err(_) => Mark { revision, fault: Some(HighWaterFault::Unusable) },
        };
        (state.mark.revision > revision).then_some(state.mark.revision)
    }

    /// Notes that the store has the revision `found`, which is below the mark. An earlier fault stays.
    pub(crate) fn note_older_copy(&self, found: u64) {
        let mut state = self.state.lock();
        let mark = state.mark.revision;
        if state.mark.fault.is_none() {
            state.mark.fault = Some(HighWaterFault::OlderCopy { found, mark });
            state.is_written = false;
        }
    }

    /// Writes the mark durably, unless it has at least the revision that `committed` returns.
    pub(crate) fn raise(&self, committed: impl FnOnce() -> u64) -> io::Result<()> {
        let mut state = self.state.lock();
        if !state.is_read {
            return Ok(());
        }
        // Read under the lock, so that one write serves all that wait here.
        let revision = committed();
        if state.is_written && revision <= state.mark.revision {
            return Ok(());
        }
        state.mark.revision = state.mark.revision.max(revision);
        let written = self.write(&state.mark);
        state.is_written = written.is_ok();
        state.failure = written.as_ref().err().map(ToString::to_string);
        written
    }

    pub(crate) fn fault(&self) -> Option<HighWaterFault> {
        self.state.lock().mark.fault.clone()
    }

    /// Why the last write failed.
    pub(crate) fn failure(&self) -> Option<String> {
        self.state.lock().failure.clone()
    }

    fn parse(&self, text: &str) -> Option<Mark> {
        let (tag, json) = text.trim_end().split_once('\n')?;
        hmac::verify(&self.key, json.as_bytes(), &key::bytes_from_hex(tag)?).ok()?;
        serde_json::from_str(json).ok()
    }

    /// Replaces the file: whole or not at all.
    fn write(&self, mark: &Mark) -> io::Result<()> {
        let json = serde_json::to_string(mark)?;
        let tag = hmac::sign(&self.key, json.as_bytes());
        let text = [key::to_hex(tag.as_ref()).as_str(), &json, "\n"].concat();
        // Only the process with the lock of the database writes it, so one name suffices.
        let draft = private_file::draft_of(&self.path, "mark");
        let written = private_file::create_or_replace_file(&draft)
            .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
            .and_then(|()| match self.path.parent() {
                Some(folder) => private_file::give_to_owner_of(folder, &draft),
                None => Ok(()),
            })
            .and_then(|()| private_file::replace(&draft, &self.path));
        if written.is_err() {
            // The first failure is reported; there may not even be a draft.
            let _ = fs_err::remove_file(&draft);
        }
        written
    }
}

/// The name of the mark in the state folder.
pub(crate) const HIGH_WATER: &str = "high-water";
