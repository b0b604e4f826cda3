//! etcd as the tests need it: keys with revisions, transactions that compare the head, and their events.

use std::collections::{BTreeMap, VecDeque};

use ironmesh_etcd::{KeyEvent, KeyValue};
use ironmesh_store::{
    ExpectedVersion, KeyEncryptionKey, MeshId, RecordChange, RecordCipher, TableName,
};
use jiff::Timestamp;
use tempfile::TempDir;

use crate::batch::{self, PreparedCommit, Request};
use crate::canary::Canary;
use crate::head::Head;
use crate::layout::Layout;
use crate::mirror::{LoadFault, Mirror, Received, VerifiedCommit};

pub(super) const TABLE: TableName = TableName("records_of_a_test");
pub(super) const BY: (&str, Timestamp) = ("cp1", Timestamp::UNIX_EPOCH);

/// The keys of etcd, with the revisions of their last changes, and all events so far.
#[derive(Debug, Default, Clone)]
pub(super) struct Etcd {
    pub(super) keys: BTreeMap<String, (Vec<u8>, i64)>,
    pub(super) revision: i64,
    pub(super) history: Vec<Vec<KeyEvent>>,
}

impl Etcd {
    /// Writes or removes keys in one transaction.
    pub(super) fn write(&mut self, writes: impl IntoIterator<Item = (String, Option<Vec<u8>>)>) {
        self.revision += 1;
        let mut events = Vec::new();
        for (key, value) in writes {
            let was_there = self.keys.remove(&key).is_some();
            if let Some(value) = &value {
                self.keys.insert(key.clone(), (value.clone(), self.revision));
            } else if !was_there {
                continue;
            }
            events.push(KeyEvent { key, modified: self.revision, value });
        }
        self.history.push(events);
    }

    /// Makes a commit if the head has not been written since.
    pub(super) fn commit(&mut self, layout: &Layout, commit: &PreparedCommit) -> Option<i64> {
        let modified = self.keys.get(layout.head()).map_or(0, |(_, modified)| *modified);
        (modified == commit.expected).then(|| {
            self.write(commit.writes.clone());
            self.revision
        })
    }

    pub(super) fn list(&self) -> Vec<KeyValue> {
        let keys = self.keys.iter();
        keys.map(|(key, (value, modified))| KeyValue {
            key: key.clone(),
            value: value.clone(),
            modified: *modified,
        })
        .collect()
    }
}

/// A mesh with its key, and an etcd with its canary and first head.
pub(super) struct Mesh {
    _folder: TempDir,
    pub(super) kek: KeyEncryptionKey,
    pub(super) cipher: RecordCipher,
    pub(super) layout: Layout,
    pub(super) etcd: Etcd,
}

impl Mesh {
    pub(super) fn new(prefix: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let kek = KeyEncryptionKey::load_or_create(&folder.path().join("kek"), false).unwrap();
        let cipher = RecordCipher::new(&kek, MeshId::generate().unwrap()).unwrap();
        let layout = Layout::new(prefix);
        let canary = Canary {
            mesh: "default".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
            is_importing: false,
        };
        let canary = canary.seal(&cipher, &layout).unwrap();
        let head = Head::empty("cp1", Timestamp::UNIX_EPOCH).seal(&cipher, layout.head()).unwrap();
        let mut etcd = Etcd::default();
        etcd.write([
            (layout.canary().to_owned(), Some(canary)),
            (layout.head().to_owned(), Some(head)),
        ]);
        Self { _folder: folder, kek, cipher, layout, etcd }
    }

    pub(super) fn load(&self) -> Result<Mirror, LoadFault> {
        Mirror::load(&self.cipher, self.layout.clone(), self.etcd.list())
    }

    /// A replica that has read all of etcd.
    pub(super) fn replica(&self) -> Replica {
        Replica { mirror: self.load().unwrap(), read: self.etcd.history.len() }
    }

    pub(super) fn record(&self, key: &str) -> String {
        self.layout.record(TABLE.0, key)
    }
}

/// A control plane on an etcd.
pub(super) struct Replica {
    pub(super) mirror: Mirror,
    /// The number of transactions whose events it has read.
    read: usize,
}

impl Replica {
    /// Reads the next events. None if there are none.
    pub(super) fn step(&mut self, mesh: &Mesh) -> Option<Received> {
        let events = mesh.etcd.history.get(self.read)?;
        self.read += 1;
        let received = self.mirror.receive(&mesh.cipher, events);
        Some(match received {
            Received::Commit(commit) => {
                let copy = VerifiedCommit {
                    head: commit.head.clone(),
                    modified: commit.modified,
                    changes: commit.changes.clone(),
                };
                self.mirror.apply(commit);
                Received::Commit(copy)
            }
            other => other,
        })
    }

    /// Reads all events. Returns whether all were commits, known, or foreign.
    pub(super) fn follow(&mut self, mesh: &Mesh) -> bool {
        let mut is_sound = true;
        while let Some(received) = self.step(mesh) {
            is_sound &= !matches!(received, Received::Gap | Received::Older { .. });
        }
        is_sound
    }

    pub(super) fn prepare(&self, mesh: &Mesh, changes: &[(&str, Option<&str>)]) -> PreparedCommit {
        let changes = changes.iter().map(|(key, value)| change(key, *value)).collect();
        let mut queue = VecDeque::from([Request { changes, reply: () }]);
        batch::batch(&self.mirror, &mesh.cipher, &mut queue, BY).unwrap().commit.unwrap()
    }

    /// Sends a commit, and takes it over if it succeeds.
    pub(super) fn send(&mut self, mesh: &mut Mesh, commit: PreparedCommit) -> bool {
        let Some(modified) = mesh.etcd.commit(&mesh.layout, &commit) else { return false };
        let PreparedCommit { head, changes, .. } = commit;
        self.mirror.apply(VerifiedCommit { head, modified, changes });
        true
    }

    /// Makes a commit. If the head was removed, writes a value in its place, and makes none.
    pub(super) fn commit(&mut self, mesh: &mut Mesh, changes: &[(&str, Option<&str>)]) -> bool {
        if self.mirror.must_load() {
            return false;
        }
        if self.mirror.head_modified().is_none() {
            let head = mesh.layout.head().to_owned();
            if !mesh.etcd.keys.contains_key(&head) {
                mesh.etcd.write([(head, Some(Vec::new()))]);
            }
            return false;
        }
        let commit = self.prepare(mesh, changes);
        self.send(mesh, commit)
    }

    /// The values of the mirror.
    pub(super) fn values(&self, mesh: &Mesh) -> BTreeMap<String, String> {
        let records = self.mirror.records().of_table(TABLE.0);
        let opened = records.map(|(key, record)| {
            let (_, value) = mesh.cipher.open(&mesh.record(key), &record.sealed).unwrap();
            (key.to_owned(), String::from_utf8(value.to_vec()).unwrap())
        });
        opened.collect()
    }
}

pub(super) fn change(key: &str, value: Option<&str>) -> RecordChange {
    RecordChange {
        table: TABLE,
        key: key.to_owned(),
        expected: ExpectedVersion::Any,
        value: value.map(|value| value.as_bytes().to_vec().into()),
    }
}

pub(super) fn values(values: &[(&str, &str)]) -> BTreeMap<String, String> {
    values.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}
