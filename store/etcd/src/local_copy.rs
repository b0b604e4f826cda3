//! The copy of the mirror on this machine's disk.
//!
//! With it, a control plane starts while etcd is down, and detects an etcd that was put back to an older state. The copy has
//! the sealed values of etcd, so it is verified as they are, and reveals as little. It is written at most once a second, by
//! a thread of its own: a slow disk delays no commit. This module never decides which state counts.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle, Thread};
use std::time::Duration;

use ironmesh_etcd::KeyValue;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use crate::mirror::Mirror;
use crate::shared::Shared;

/// The values of etcd by their keys.
const VALUES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("values");

/// The name of the file in the folder of the store.
const FILE: &str = "etcd-copy.redb";

/// The interval of writes.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);

/// What the copy lacks: the new values by their keys of etcd; none for removed ones.
#[derive(Debug, Default)]
pub(crate) struct Unsaved {
    /// Whether these are all values: the copy has no others.
    pub(crate) is_complete: bool,
    pub(crate) values: BTreeMap<String, Option<Arc<[u8]>>>,
}

/// The file of the copy.
#[derive(Debug)]
pub(crate) struct LocalCopy {
    database: Database,
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the copy of the store in `{}` cannot be used", path.display())]
pub struct CopyError {
    path: PathBuf,
    #[source]
    source: Box<redb::Error>,
}

impl LocalCopy {
    /// The path of the file in a folder.
    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join(FILE)
    }

    /// Opens the copy in a folder that exists, or creates an empty one.
    pub(crate) fn open(folder: &Path) -> Result<Self, CopyError> {
        let path = Self::path(folder);
        let database = Database::create(&path);
        database
            .map(|database| Self { database })
            .map_err(|error| CopyError { path, source: Box::new(error.into()) })
    }

    /// All values.
    pub(crate) fn read(&self) -> Result<Vec<KeyValue>, redb::Error> {
        let transaction = self.database.begin_read()?;
        let values = match transaction.open_table(VALUES) {
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            opened => opened?,
        };
        let mut all = Vec::new();
        for entry in values.iter()? {
            let (key, value) = entry?;
            // What the revisions of etcd are, etcd tells.
            let (key, value) = (key.value().to_owned(), value.value().to_vec());
            all.push(KeyValue { key, value, modified: 0 });
        }
        Ok(all)
    }

    /// Writes what the copy lacks.
    pub(crate) fn write(&self, unsaved: &Unsaved) -> Result<(), redb::Error> {
        let transaction = self.database.begin_write()?;
        {
            let mut values = transaction.open_table(VALUES)?;
            if unsaved.is_complete {
                values.retain(|key, _| unsaved.values.contains_key(key))?;
            }
            for (key, value) in &unsaved.values {
                match value {
                    Some(value) => values.insert(key.as_str(), &**value)?,
                    None => values.remove(key.as_str())?,
                };
            }
        }
        Ok(transaction.commit()?)
    }
}

impl Unsaved {
    /// All values of a mirror, except for the head, which changes with each commit.
    pub(crate) fn all(mirror: &Mirror) -> Self {
        let layout = mirror.layout();
        let records = mirror.records().all();
        let values = records.map(|(place, record)| {
            (layout.record(&place.table, &place.key), Some(Arc::clone(&record.sealed)))
        });
        let canary = (layout.canary().to_owned(), Some(mirror.canary().into()));
        Self { is_complete: true, values: values.chain([canary]).collect() }
    }
}

/// The thread that writes the copy.
#[derive(Debug)]
pub(crate) struct CopyWriter {
    thread: JoinHandle<()>,
}

impl CopyWriter {
    /// Starts it. It ends, after a last write, when [`CopyWriter::end`] is called.
    pub(crate) fn start(shared: Arc<Shared>, copy: LocalCopy) -> std::io::Result<Self> {
        let run = move || {
            while !shared.has_ended.load(Ordering::SeqCst) {
                thread::park_timeout(WRITE_INTERVAL);
                save(&shared, &copy);
            }
        };
        let thread = thread::Builder::new().name("store-copy".to_owned()).spawn(run)?;
        Ok(Self { thread })
    }

    /// Waits for the last write. The caller has noted the end of the store.
    pub(crate) fn end(self) {
        Thread::unpark(self.thread.thread());
        // A panic of it has been printed.
        let _ = self.thread.join();
    }
}

/// Writes what the copy lacks. After a failure, the next call writes everything.
fn save(shared: &Shared, copy: &LocalCopy) {
    let unsaved = {
        let mut view = shared.view.lock();
        let Some(mut unsaved) = view.unsaved.as_mut().map(std::mem::take) else { return };
        if unsaved.values.is_empty() && !unsaved.is_complete {
            return;
        }
        let head = view.mirror.layout().head().to_owned();
        let Ok(sealed) = view.mirror.head().seal(&shared.cipher, &head) else { return };
        unsaved.values.insert(head, Some(sealed.into()));
        unsaved
    };
    let outcome = copy.write(&unsaved);
    if outcome.is_err() {
        let mut view = shared.view.lock();
        view.unsaved = Some(Unsaved::all(&view.mirror));
    }
    shared.condition.lock().copy_failure = outcome.err().map(|error| error.to_string());
}
