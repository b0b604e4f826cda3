//! Exports as files, and their import into an embedded store.

use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;

use super::sealed_stream::{FRAME, HEADER, SealedReader, SealedWriter};
use super::*;
use crate::certificates::AUTHORITY;
use crate::mesh_state::{CURRENT, MESH, put};
use crate::{
    EmbeddedImport, EmbeddedImportError, ImportFileError, KeyEncryptionKey, OpenError, RecordStore,
    Store, StoreSnapshot,
};

/// A folder with the state folders of a test. All have the same key-encryption key.
struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn key(&self, name: &str) -> KeyEncryptionKey {
        KeyEncryptionKey::load_or_create(&self.path(name), false).unwrap()
    }

    fn export_key(&self) -> ExportKey {
        ExportKey::new(&self.key("kek")).unwrap()
    }

    fn store(&self, name: &str) -> Arc<Store> {
        Arc::new(Store::open(&self.path(name), self.key("kek")).unwrap())
    }

    /// A store with this many journal entries, and its export.
    fn export(&self, entries: usize) -> (Arc<Store>, PathBuf) {
        let store = self.store("state");
        store.commit(&[put(AUTHORITY, CURRENT, b"the keys".to_vec().into())]).unwrap();
        let names = br#"["mesh.internal","mesh.internal"]"#.to_vec();
        store.commit(&[put(MESH, CURRENT, names.into())]).unwrap();
        for entry in 0..entries {
            let value = vec![b'x'; 1000];
            store.commit(&[put(crate::journal::JOURNAL, entry.to_string(), value.into())]).unwrap();
        }
        store.put(POLICY, "pin", b"a pin").unwrap();
        let path = self.path("export");
        export(&store, self.export_key(), &path).unwrap();
        (store, path)
    }

    fn open(&self, path: &Path) -> Result<ImportSource, ImportFileError> {
        ImportSource::open(path, self.export_key())
    }

    /// The fault of an altered copy of an export.
    fn fault(&self, bytes: &[u8]) -> String {
        let path = self.path("altered");
        fs_err::write(&path, bytes).unwrap();
        ironmesh_catalog::text::chain(&self.open(&path).unwrap_err())
    }
}

fn export(store: &Arc<Store>, key: ExportKey, path: &Path) -> Result<(), ExportError> {
    let snapshot = StoreSnapshot::new(Arc::clone(store)).unwrap();
    let manifest = Manifest {
        mesh: "default".to_owned(),
        version: "1.0.0".to_owned(),
        exported_at: "2026-11-29T08:00:00Z".to_owned(),
    };
    let shared: Arc<dyn RecordSnapshot> = Arc::<StoreSnapshot>::clone(&snapshot);
    let export = Export { key: Arc::new(key), manifest, shared, local: snapshot };
    let mut file = ExportFile::create(path).unwrap();
    export.write(&mut file)?;
    file.finish().unwrap();
    Ok(())
}

fn import(folder: &Folder, source: &mut ImportSource, name: &str) {
    let mut begun = EmbeddedImport::begin(&folder.path(name), folder.key("kek")).unwrap();
    source.read::<Box<dyn std::error::Error>>(|item| Ok(begun.put(item)?)).unwrap();
    begun.finish().unwrap();
}

#[test]
fn imported_store_has_the_records_of_the_exported_one() {
    let folder = Folder::new();
    let (store, path) = folder.export(250);
    let mut source = folder.open(&path).unwrap();
    assert_eq!((source.summary.records, source.summary.proxies), (252, 0));
    assert_eq!(source.summary.manifest.mesh, "default");
    import(&folder, &mut source, "other");

    let imported = folder.store("other");
    for table in SHARED_TABLES {
        let values = |store: &Store| -> Vec<_> {
            let records = store.list(table).unwrap().into_iter();
            records.map(|(key, record)| (key, record.value)).collect()
        };
        assert_eq!(values(&imported), values(&store), "{table}");
    }
    let pin = imported.get_value(POLICY, "pin").unwrap();
    assert_eq!(pin.as_deref(), Some(b"a pin".as_slice()));
    assert!(!folder.path("other/state.redb.import").exists());
}

#[test]
fn export_is_private_and_reveals_nothing() {
    let folder = Folder::new();
    let (_store, path) = folder.export(1);
    assert_eq!(fs_err::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = fs_err::read(&path).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
    assert!(!has(b"the keys") && !has(b"authority") && !has(b"mesh.internal") && !has(b"default"));
}

#[test]
fn altered_export_is_rejected_at_each_byte() {
    let folder = Folder::new();
    let (_store, path) = folder.export(2);
    let bytes = fs_err::read(&path).unwrap();
    for position in 0..bytes.len() {
        let mut altered = bytes.clone();
        altered[position] ^= 1;
        let fault = folder.fault(&altered);
        assert!(fault.starts_with("cannot import"), "byte {position}: {fault}");
    }
}

#[test]
fn truncated_export_is_rejected_at_each_length() {
    let folder = Folder::new();
    let (_store, path) = folder.export(2);
    let bytes = fs_err::read(&path).unwrap();
    for length in 1..bytes.len() {
        let fault = folder.fault(&bytes[..length]);
        let is_named = fault.contains("its end is missing") || fault.contains("was not written by");
        assert!(is_named, "{length} bytes: {fault}");
    }
    let longer = [bytes.as_slice(), b"x"].concat();
    assert!(folder.fault(&longer).contains("was changed"), "{}", folder.fault(&longer));
}

#[test]
fn foreign_file_key_and_format_are_named() {
    let folder = Folder::new();
    let (_store, path) = folder.export(0);
    let mut bytes = fs_err::read(&path).unwrap();
    assert!(folder.fault(b"").contains("was not written by"));
    assert!(folder.fault(b"{\"a\": 1}").contains("was not written by"));
    bytes[16] = 2;
    assert!(folder.fault(&bytes).contains("it has the format 2"), "{}", folder.fault(&bytes));
    let other = ExportKey::new(&folder.key("other-kek")).unwrap();
    let error = ImportSource::open(&path, other).unwrap_err();
    let error = ironmesh_catalog::text::chain(&error);
    assert!(error.contains("a different key-encryption key"), "{error}");
}

#[test]
fn frames_cannot_be_removed_swapped_or_taken_from_another_export() {
    let folder = Folder::new();
    let key = folder.export_key();
    let seal = |byte: u8| -> Vec<u8> {
        let mut writer = SealedWriter::new(&key, Vec::new()).unwrap();
        writer.write_all(&vec![byte; 3 * FRAME]).unwrap();
        writer.finish().unwrap()
    };
    let (one, two) = (seal(1), seal(2));
    // Each frame is full: its length, the ciphertext and the tag.
    let frame = |bytes: &[u8], number: usize| {
        let length = 4 + FRAME + 16;
        bytes[HEADER + number * length..][..length].to_vec()
    };
    let read = |frames: &[Vec<u8>]| {
        let bytes = [one[..HEADER].to_vec(), frames.concat()].concat();
        let mut reader = SealedReader::new(&key, bytes.as_slice()).unwrap();
        reader.read_exact(&mut vec![0; 3 * FRAME]).and_then(|()| reader.expect_end())
    };
    let [first, second, third] = [0, 1, 2].map(|number| frame(&one, number));
    read(&[first.clone(), second.clone(), third.clone()]).unwrap();
    for frames in [
        [second.clone(), first.clone(), third.clone()],
        [first.clone(), third.clone(), third.clone()],
        [first.clone(), frame(&two, 1), third],
        [first, second, frame(&two, 2)],
    ] {
        assert!(matches!(read(&frames), Err(ExportFault::NotAuthentic)));
    }
}

#[test]
fn export_keeps_the_moment_of_its_snapshot() {
    let folder = Folder::new();
    let (store, _) = folder.export(0);
    let snapshot = StoreSnapshot::new(Arc::clone(&store)).unwrap();
    store.commit(&[put(AUTHORITY, CURRENT, b"later".to_vec().into())]).unwrap();
    let mut values = Vec::new();
    let refused = snapshot.visit(&mut |table, _, value| {
        values.extend((table == AUTHORITY).then(|| value.to_vec()));
        Ok(())
    });
    assert_eq!((refused.unwrap(), values), (Vec::new(), vec![b"the keys".to_vec()]));
}

#[test]
fn record_that_is_not_authentic_fails_an_export_unless_it_is_replaceable() {
    let folder = Folder::new();
    let (store, _) = folder.export(2);
    let edit = |table: TableName, key: &str| {
        let table = redb::TableDefinition::new(table.0);
        let mut stored = store.get_raw(table, key).unwrap().unwrap();
        *stored.last_mut().unwrap() ^= 1;
        store.put_raw(table, key, &stored).unwrap();
    };
    edit(crate::journal::JOURNAL, "0");
    let path = folder.path("second");
    export(&store, folder.export_key(), &path).unwrap();
    assert_eq!(folder.open(&path).unwrap().summary.records, 3);
    edit(AUTHORITY, CURRENT);
    let error = export(&store, folder.export_key(), &folder.path("third")).unwrap_err();
    assert!(matches!(error, ExportError::NotAuthentic { count: 1, .. }), "{error}");
    let names: Vec<_> = fs_err::read_dir(folder.0.path()).unwrap().collect();
    let has_draft = names.iter().any(|one| one.as_ref().unwrap().path().ends_with(".new"));
    assert!(!has_draft && !folder.path("third").exists());
}

#[test]
fn store_that_exists_is_never_imported_into() {
    let folder = Folder::new();
    let (_store, path) = folder.export(0);
    let begun = EmbeddedImport::begin(&folder.path("state"), folder.key("kek"));
    assert!(matches!(begun, Err(EmbeddedImportError::Exists(_))));

    // No control plane creates one during the import, and one that appears wins.
    let mut begun = EmbeddedImport::begin(&folder.path("other"), folder.key("kek")).unwrap();
    let again = EmbeddedImport::begin(&folder.path("other"), folder.key("kek"));
    assert!(matches!(again, Err(EmbeddedImportError::Concurrent(_))));
    let mut source = folder.open(&path).unwrap();
    source.read::<Box<dyn std::error::Error>>(|item| Ok(begun.put(item)?)).unwrap();
    let opened = Store::open(&folder.path("other"), folder.key("kek"));
    assert!(matches!(opened, Err(OpenError::UnfinishedImport(_))), "{opened:?}");
    fs_err::write(folder.path("other/state.redb"), "a store").unwrap();
    assert!(matches!(begun.finish(), Err(EmbeddedImportError::Exists(_))));
    assert_eq!(fs_err::read(folder.path("other/state.redb")).unwrap(), b"a store");
}

#[test]
fn second_concurrent_import_is_rejected() {
    const IMPORTS: usize = 8;
    let folder = Folder::new();
    let (_store, path) = folder.export(20);
    // What an interrupted one has left is removed by one of them.
    drop(EmbeddedImport::begin(&folder.path("other"), folder.key("kek")).unwrap());
    let start = std::sync::Barrier::new(IMPORTS);
    let begin = || {
        let key = folder.key("kek");
        start.wait();
        EmbeddedImport::begin(&folder.path("other"), key)
    };
    let begun: Vec<_> = std::thread::scope(|threads| {
        let all: Vec<_> = (0..IMPORTS).map(|_| threads.spawn(begin)).collect();
        all.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let (mut running, refused): (Vec<_>, Vec<_>) = begun.into_iter().partition(Result::is_ok);
    let is_concurrent = |one: &Result<_, _>| matches!(one, Err(EmbeddedImportError::Concurrent(_)));
    assert!(running.len() == 1 && refused.iter().all(is_concurrent), "{refused:?}");
    let mut running = running.remove(0).unwrap();
    let mut source = folder.open(&path).unwrap();
    source.read::<Box<dyn std::error::Error>>(|item| Ok(running.put(item)?)).unwrap();
    running.finish().unwrap();
    let again = EmbeddedImport::begin(&folder.path("other"), folder.key("kek"));
    assert!(matches!(again, Err(EmbeddedImportError::Exists(_))));
    drop(folder.store("other"));
}

#[test]
fn interrupted_import_leaves_no_store_and_can_be_repeated() {
    let folder = Folder::new();
    let (store, path) = folder.export(150);
    // The mark of an earlier database of the folder does not make the import an older copy.
    drop(folder.store("other"));
    fs_err::copy(folder.path("state/high-water"), folder.path("other/high-water")).unwrap();
    fs_err::remove_file(folder.path("other/state.redb")).unwrap();
    let mut begun = EmbeddedImport::begin(&folder.path("other"), folder.key("kek")).unwrap();
    let mut source = folder.open(&path).unwrap();
    source.read::<Box<dyn std::error::Error>>(|item| Ok(begun.put(item)?)).unwrap();
    drop(begun);
    let opened = Store::open(&folder.path("other"), folder.key("kek"));
    assert!(matches!(opened, Err(OpenError::UnfinishedImport(_))), "{opened:?}");

    import(&folder, &mut source, "other");
    let imported = folder.store("other");
    assert_eq!(imported.health().high_water, None);
    let count = |store: &Store| store.list(crate::journal::JOURNAL).unwrap().len();
    assert_eq!(count(&imported), count(&store));
}

#[test]
fn import_by_root_belongs_to_the_owner_of_the_state_folder() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = Folder::new();
    let (_store, path) = folder.export(0);
    let state = folder.path("other");
    fs_err::create_dir(&state).unwrap();
    std::os::unix::fs::chown(&state, Some(12345), Some(12346)).unwrap();
    // The folder `local` below it is a new one.
    for target in ["other", "other/local"] {
        import(&folder, &mut folder.open(&path).unwrap(), target);
        for file in ["", "state.redb", "high-water"] {
            let owner = fs_err::metadata(folder.path(target).join(file)).unwrap();
            assert_eq!((owner.uid(), owner.gid()), (12345, 12346), "{target}/{file}");
        }
    }
    // An export of the stopped store writes a new mark, too.
    drop(folder.store("other"));
    assert_eq!(fs_err::metadata(state.join("high-water")).unwrap().uid(), 12345);
}

#[test]
fn changed_file_ends_an_import() {
    let folder = Folder::new();
    let (_store, path) = folder.export(0);
    let mut source = folder.open(&path).unwrap();
    let mut bytes = fs_err::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs_err::write(&path, &bytes).unwrap();
    let read = source.read::<ImportFileError>(|_| Ok(()));
    assert!(read.is_err());
}
