//! The key-encryption key: its file, and its creation.
//!
//! It is created once, at the first start. It is never replaced if a database exists, since everything that
//! it sealed would be lost.

use std::fmt;
use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use zeroize::Zeroizing;

use crate::{acl, private_file};

/// The key that seals private keys in the store. It is stored as 64 hexadecimal digits in a file that only
/// its owner may read.
pub struct KeyEncryptionKey {
    bytes: Zeroizing<[u8; Self::LENGTH]>,
    path: PathBuf,
}

impl KeyEncryptionKey {
    /// Its length in bytes: that of a key of AES-256.
    pub const LENGTH: usize = 32;

    /// Reads the key from `path`. Creates it first if it is missing and there is no database yet that another
    /// key may have sealed (see [`Store::database_exists`]).
    ///
    /// [`Store::database_exists`]: crate::Store::database_exists
    pub fn load_or_create(path: &Path, database_exists: bool) -> Result<Self, KeyError> {
        let unusable = |source| KeyError::Unusable { path: path.to_owned(), source };
        match fs_err::File::open(path) {
            Ok(file) => Self::read(file, path),
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(unusable(error)),
            Err(_) if database_exists => Err(KeyError::Missing { path: path.to_owned() }),
            Err(_) => {
                create(path)?;
                // The content of the file decides, since a concurrent start may have created it.
                Self::read(fs_err::File::open(path).map_err(unusable)?, path)
            }
        }
    }

    /// Makes the file `path` hold a key: that of the file `adopted`, if it exists, or a new one. A key in `path` stays.
    ///
    /// # Errors
    ///
    /// Fails if neither file exists and there is a database, which a different key has sealed.
    pub fn initialize(
        path: &Path,
        adopted: &Path,
        database_exists: bool,
    ) -> Result<KeyOrigin, KeyError> {
        let exists = |path: &Path| {
            let unusable = |source| KeyError::Unusable { path: path.to_owned(), source };
            fs_err::exists(path).map_err(unusable)
        };
        let (has_key, has_adopted) = (exists(path)?, exists(adopted)?);
        if !has_key && has_adopted {
            write(path, Self::load_or_create(adopted, true)?.bytes())?;
        }
        Self::load_or_create(path, database_exists)?;
        Ok(match (has_key, has_adopted) {
            (true, _) => KeyOrigin::Present,
            (false, true) => KeyOrigin::Adopted,
            (false, false) => KeyOrigin::Created,
        })
    }

    pub(crate) fn bytes(&self) -> &[u8; Self::LENGTH] {
        &self.bytes
    }

    /// The path of the file; the key itself is wiped.
    pub(crate) fn into_path(self) -> PathBuf {
        self.path
    }

    fn read(file: fs_err::File, path: &Path) -> Result<Self, KeyError> {
        let unusable = |source| KeyError::Unusable { path: path.to_owned(), source };
        let insecure = private_file::insecure_permissions(path).map_err(unusable)?;
        if let Some(mode) = insecure
            && !acl::is_private(path).map_err(unusable)?
        {
            return Err(KeyError::OpenToOthers { path: path.to_owned(), mode });
        }
        // A little more than a key, so that a file that is too long is detected.
        let mut text = Zeroizing::new(String::with_capacity(READ_AT_MOST));
        match file.take(READ_AT_MOST as u64).read_to_string(&mut text) {
            Err(error) if error.kind() != io::ErrorKind::InvalidData => Err(unusable(error)),
            _ => Ok(()),
        }?;
        let bytes =
            from_hex(text.trim()).ok_or_else(|| KeyError::Malformed { path: path.to_owned() })?;
        Ok(Self { bytes, path: path.to_owned() })
    }
}

impl fmt::Debug for KeyEncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyEncryptionKey").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Where the key in a file comes from, after [`KeyEncryptionKey::initialize`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyOrigin {
    /// It was there before.
    Present,
    /// It is a copy of the key in the other file.
    Adopted,
    /// It is new.
    Created,
}

/// The key-encryption key could not be read or created.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// A database exists, but not the key that sealed it.
    #[error(
        "key-encryption key is missing, but the state that it sealed exists: restore the key from your backup, since a new key cannot unseal that state: `{}`", path.display()
    )]
    Missing {
        /// The path of the missing key.
        path: PathBuf,
    },
    /// Other users may read or change it.
    #[error(
        "key-encryption key is open to others than its owner (mode {mode:04o}): \
         run `chmod 600 {}`", path.display()
    )]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// The file has a different format.
    #[error("key-encryption key is not a line of 64 hexadecimal digits: `{}`", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be read or created.
    #[error("cannot read or create the key-encryption key: `{}`", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The operating system gave no random bytes.
    #[error("the operating system returned no random bytes for a key-encryption key")]
    Random,
}

/// Creates a key at `path`, unless a concurrent start creates one first.
fn create(path: &Path) -> Result<(), KeyError> {
    let mut bytes = Zeroizing::new([0; KeyEncryptionKey::LENGTH]);
    rand::fill(&mut *bytes).map_err(|_| KeyError::Random)?;
    write(path, &bytes)
}

/// Writes a key to `path`, unless a concurrent start writes one first.
fn write(path: &Path, bytes: &[u8; KeyEncryptionKey::LENGTH]) -> Result<(), KeyError> {
    let unique = unique_name().ok_or(KeyError::Random)?;
    let write = || -> io::Result<()> {
        if let Some(folder) = path.parent() {
            private_file::create_folder(folder)?;
        }
        let draft = private_file::draft_of(path, &unique);
        let mut file = private_file::create_file(&draft)?;
        let written = file.write_all(to_hex(bytes).as_bytes()).and_then(|()| file.sync_all());
        if let Err(error) = written {
            fs_err::remove_file(&draft)?;
            return Err(error);
        }
        private_file::publish(&draft, path)
    };
    write().map_err(|source| KeyError::Unusable { path: path.to_owned(), source })
}

/// A file name that no concurrent start chooses.
pub(crate) fn unique_name() -> Option<String> {
    let mut bytes = [0; 8];
    rand::fill(&mut bytes).ok()?;
    Some(to_hex(&bytes).trim_end().to_owned())
}

/// `bytes` as a line of hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8]) -> Zeroizing<String> {
    // The whole capacity at once: growth would leave copies of a key in memory.
    let mut text = Zeroizing::new(String::with_capacity(bytes.len() * 2 + 1));
    for byte in bytes {
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('\n');
    text
}

fn from_hex(text: &str) -> Option<Zeroizing<[u8; KeyEncryptionKey::LENGTH]>> {
    let bytes = bytes_from_hex(text)?;
    Some(Zeroizing::new(bytes.as_slice().try_into().ok()?))
}

/// The bytes of hexadecimal digits.
pub(crate) fn bytes_from_hex(text: &str) -> Option<Zeroizing<Vec<u8>>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    // The whole capacity at once: growth would leave copies of a key in memory.
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for at in (0..text.len()).step_by(2) {
        bytes.push(u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?);
    }
    Some(bytes)
}

const READ_AT_MOST: usize = 128;
