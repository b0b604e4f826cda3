//! Opening the state folder: the checks of permissions, lock, format and key before any value is read.
//!
//! A rejected store stays unchanged. A new database appears whole, with its canary, or not at all.

use std::io;
use std::path::{Path, PathBuf};

use redb::{DatabaseError, StorageError, TableHandle as _};

use crate::authentic::Authenticator;
use crate::database::{Failure, META, Store, TABLES};
use crate::engine::{Engine, builder};
use crate::file::DatabaseFile;
use crate::high_water::{HIGH_WATER, HighWater};
use crate::key::{self, KeyEncryptionKey};
use crate::private_file;
use crate::record_store::RecordStore as _;
use crate::seal::Sealer;

impl Store {
    /// Whether `folder` has a database. A folder that cannot be read counts as one that has, so that no
    /// second key is created for it.
    pub fn database_exists(folder: &Path) -> bool {
        folder.join(DATABASE).try_exists().unwrap_or(true)
    }

    /// Whether another process has the database of `folder` open.
    pub(crate) fn is_in_use(folder: &Path) -> bool {
        let opened = DatabaseFile::open(&folder.join(DATABASE)).and_then(Engine::open);
        matches!(opened, Err(DatabaseError::DatabaseAlreadyOpen))
    }

    /// Opens the state in `folder`, or creates it at the first start.
    pub fn open(folder: &Path, kek: KeyEncryptionKey) -> Result<Self, OpenError> {
        let unusable = |source| OpenError::Unusable { folder: folder.to_owned(), source };
        private_file::create_folder(folder).map_err(unusable)?;
        shut_folder(folder)?;
        let path = folder.join(DATABASE);
        let damaged = |source| OpenError::Damaged { path: path.clone(), source };
        let sealer = Sealer::new(&kek).map_err(|e| damaged(e.into()))?;
        let authenticator = Authenticator::new(&kek).map_err(|e| damaged(e.into()))?;
        let high_water = HighWater::new(folder, &kek).map_err(|e| damaged(e.into()))?;
        // The cipher has the key now: this copy is wiped.
        let key = kek.into_path();

        let is_new = !path.try_exists().map_err(unusable)?;
        let import = folder.join(IMPORT);
        if is_new && import.try_exists().map_err(unusable)? {
            return Err(OpenError::UnfinishedImport(import));
        }
        if is_new {
            create(&path, &sealer).map_err(|failure| unusable(io::Error::other(failure)))?;
        }
        if private_file::insecure_permissions(&path).map_err(unusable)?.is_some() {
            private_file::tighten(&path).map_err(unusable)?;
        }
        let engine = DatabaseFile::open(&path).and_then(Engine::open);
        let engine = engine.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => OpenError::InUse { folder: folder.to_owned() },
            DatabaseError::Storage(StorageError::Io(source))
                if source.kind() != io::ErrorKind::InvalidData =>
            {
                unusable(source)
            }
            other => damaged(other.into()),
        })?;

        let store = Self::new(engine, sealer, authenticator, high_water);
        let stated = store.format().map_err(damaged)?;
        let stated = stated.ok_or_else(|| damaged("the database has no format number".into()))?;
        if stated > FORMAT {
            return Err(OpenError::NewerFormat { path, found: stated, known: FORMAT });
        }
        let canary = store.get_raw(META, CANARY).map_err(damaged)?;
        let canary = canary.ok_or_else(|| damaged("the database has no canary record".into()))?;
        let Ok(canary) = store.sealer.unseal(META.name(), CANARY, &canary) else {
            return Err(OpenError::WrongKey { path, key });
        };
        // The stated format can be edited, but the canary cannot. Without this check, forged records could
        // pass as those of a version without authentication.
        if *canary != canary_of(stated) {
            let words = format!(
                "the database states format {stated}, but its canary record has a different one"
            );
            return Err(damaged(words.into()));
        }
        store.make_tables().map_err(damaged)?;
        // Before a migration, which is a commit: an older copy must not reach the mark by it.
        store.compare_with_high_water(is_new).map_err(damaged)?;
        if stated < FORMAT {
            store.migrate(stated).map_err(damaged)?;
        }
        Ok(store)
    }

    /// Compares the revision with the high-water mark, and creates a missing mark.
    fn compare_with_high_water(&self, is_new: bool) -> Result<(), Failure> {
        let revision = self.load_revision()?;
        match self.high_water.read(revision) {
            // Not a copy, but the successor of a lost database, which has its authority no more either.
            Some(mark) if is_new => self.put_revision(mark)?,
            Some(mark) => {
                // A revision is never used twice, so that versions and a second older copy stay evident.
                self.skip_revisions(mark);
                self.high_water.note_older_copy(revision);
            }
            None => {}
        }
        // The health reports a failure; the store serves without a mark.
        let _ = self.record_high_water();
        Ok(())
    }

    fn format(&self) -> Result<Option<u32>, Failure> {
        let text = self.get_raw(META, FORMAT_KEY)?;
        Ok(text.and_then(|text| str::from_utf8(&text).ok()?.parse().ok()))
    }
}

/// The state could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// An import runs or was interrupted, so there is no store yet.
    #[error(
        "an import has not ended: repeat `ironmesh store import`, or remove `{}` to begin a new mesh", .0.display()
    )]
    UnfinishedImport(PathBuf),
    /// The folder or its database cannot be created, read or written.
    #[error(
        "cannot create, read or write the state folder: make the user of `ironmesh serve` its owner, or set `state` to a different folder: `{}`", folder.display()
    )]
    Unusable {
        /// The folder.
        folder: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// Other users may read the folder, and it has other content, so its permissions are not changed.
    #[error(
        "state folder is open to others than its owner (mode {mode:04o}) and has other files in \
         it: run `chmod 700 {}`, or set `state` to a different folder", folder.display()
    )]
    OpenToOthers {
        /// The folder.
        folder: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Another process has the folder open.
    #[error("another `ironmesh serve` has this state folder: `{}`", folder.display())]
    InUse {
        /// The folder.
        folder: PathBuf,
    },
    /// A newer version of this program wrote the database.
    #[error(
        "state has format {found}, and this version supports formats up to {known}: run the version that wrote it, or a newer one: `{}`", path.display()
    )]
    NewerFormat {
        /// The database.
        path: PathBuf,
        /// The format of the database.
        found: u32,
        /// The newest format of this version.
        known: u32,
    },
    /// The key-encryption key is not the one that sealed the database.
    #[error(
        "state in `{}` was not sealed by the key-encryption key in `{}`: restore the matching pair from your backup; nothing was changed", path.display(), key.display()
    )]
    WrongKey {
        /// The database.
        path: PathBuf,
        /// The file with the wrong key.
        key: PathBuf,
    },
    /// The file is no database of this program, or is damaged.
    #[error("state cannot be read: restore it from your backup: `{}`", path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// The damage.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Removes other users' access to a folder with no other content, such as one that an installer created too
/// open. A folder with other content keeps its permissions: it may be a home, or `/tmp`.
fn shut_folder(folder: &Path) -> Result<(), OpenError> {
    let unusable = |source| OpenError::Unusable { folder: folder.to_owned(), source };
    let Some(mode) = private_file::insecure_permissions(folder).map_err(unusable)? else {
        return Ok(());
    };
    let mut is_own = folder.join(DATABASE).exists();
    if !is_own {
        let names: Result<Vec<_>, _> = fs_err::read_dir(folder)
            .and_then(|entries| entries.map(|entry| Ok(entry?.file_name())).collect());
        is_own = names.map_err(unusable)?.iter().all(|name| {
            OWN_FILES.iter().any(|our| name.as_encoded_bytes().starts_with(our.as_bytes()))
        });
    }
    if is_own && private_file::tighten(folder).is_ok() {
        return Ok(());
    }
    Err(OpenError::OpenToOthers { folder: folder.to_owned(), mode })
}

/// Creates a new database at `path`, unless a concurrent start creates one first.
fn create(path: &Path, sealer: &Sealer) -> Result<(), Failure> {
    let unique = key::unique_name().ok_or("no random bytes")?;
    let draft = private_file::draft_of(path, &unique);
    let written = write_new(&draft, sealer);
    if written.is_err() {
        // The first failure is reported; there may not even be a draft.
        let _ = fs_err::remove_file(&draft);
    }
    written?;
    Ok(private_file::publish(&draft, path)?)
}

/// Writes a new database with its tables, format and canary.
fn write_new(path: &Path, sealer: &Sealer) -> Result<(), Failure> {
    let (file, _) = private_file::create_file(path)?.into_parts();
    let database = builder().create_file(file)?;
    let transaction = database.begin_write()?;
    for table in TABLES {
        transaction.open_table(table)?;
    }
    {
        let mut meta = transaction.open_table(META)?;
        meta.insert(FORMAT_KEY, FORMAT.to_string().as_bytes())?;
        meta.insert(CANARY, sealer.seal(META.name(), CANARY, &canary_of(FORMAT))?.as_slice())?;
    }
    Ok(transaction.commit()?)
}

/// The database's name in the state folder.
pub(crate) const DATABASE: &str = "state.redb";

/// The folder of an import that has not ended. With it, a new database would begin a different mesh.
pub(crate) const IMPORT: &str = "state.redb.import";
/// The prefix of the store's own file names in the state folder.
const OWN_FILES: [&str; 4] = [DATABASE, "kek", "admin.sock", HIGH_WATER];
/// The format that this version writes. Values of format 1 have no authentication, join records of format 2 no version;
/// in format 3, join records and tokens are the only records.
pub(crate) const FORMAT: u32 = 4;
pub(crate) const FORMAT_KEY: &str = "format";
/// A sealed value that detects a wrong key before any other read, and authenticates the format.
pub(crate) const CANARY: &str = "canary";

/// The plain text of the canary of a database of this format.
pub(crate) fn canary_of(format: u32) -> Vec<u8> {
    if format == 1 { b"canary".to_vec() } else { format!("canary of format {format}").into_bytes() }
}
