//! Reading an export: first to its end, to verify all of it, then once more to import it.

use std::fmt;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use ironmesh_catalog::{Domain, TrustDomain};

use super::items::{self, Manifest, TransferItem};
use super::key::ExportKey;
use super::sealed_stream::{ExportFault, SealedReader};
use crate::record_store::{RecordAddress, TableName};

/// What a verified export has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportSummary {
    /// What it says of itself.
    pub manifest: Manifest,
    /// The domain and the trust domain of the mesh.
    pub names: Option<(Domain, TrustDomain)>,
    /// The number of enrolled proxies.
    pub proxies: u64,
    /// The number of records that all control planes share.
    pub records: u64,
    /// The largest record and its bytes.
    pub largest: Option<(RecordAddress, usize)>,
}

/// An export whose whole content is verified.
pub struct ImportSource {
    file: fs_err::File,
    key: ExportKey,
    path: PathBuf,
    /// What it has.
    pub summary: ImportSummary,
}

/// An export cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot import `{}`", path.display())]
pub struct ImportFileError {
    path: PathBuf,
    #[source]
    fault: ExportFault,
}

impl ImportSource {
    /// Opens an export, and reads it to its end.
    ///
    /// # Errors
    ///
    /// Fails if it is not a whole and unchanged export that this key has sealed.
    pub fn open(path: &Path, key: ExportKey) -> Result<Self, ImportFileError> {
        let file = fs_err::File::open(path);
        let opened = file.map_err(ExportFault::Unreadable).and_then(|file| {
            let summary = verify(&file, &key)?;
            Ok((file, summary))
        });
        match opened {
            Ok((file, summary)) => Ok(Self { file, key, path: path.to_owned(), summary }),
            Err(fault) => Err(ImportFileError { path: path.to_owned(), fault }),
        }
    }

    /// Passes each item to `put`, in their order. Each is authentic.
    ///
    /// # Errors
    ///
    /// Fails if `put` does, or if the file has changed since it was verified.
    pub fn read<E: From<ImportFileError>>(
        &mut self,
        mut put: impl FnMut(TransferItem) -> Result<(), E>,
    ) -> Result<(), E> {
        let failed = |fault| ImportFileError { path: self.path.clone(), fault };
        let unreadable = |error| failed(ExportFault::Unreadable(error));
        self.file.seek(SeekFrom::Start(0)).map_err(unreadable)?;
        let mut outcome = Ok(());
        let read = read_all(&self.file, &self.key, |item| {
            put(item).map_err(|error| {
                outcome = Err(error);
                // The caller gets its own error in place of this one.
                ExportFault::Unreadable(io::Error::other("the import has failed"))
            })
        });
        outcome?;
        read.map_err(failed)?;
        Ok(())
    }
}

impl fmt::Debug for ImportSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportSource").field("path", &self.path).finish_non_exhaustive()
    }
}

fn verify(file: &fs_err::File, key: &ExportKey) -> Result<ImportSummary, ExportFault> {
    let (mut proxies, mut records, mut names) = (0, 0, None);
    let mut largest: Option<(RecordAddress, usize)> = None;
    let manifest = read_all(file, key, |item| {
        let TransferItem::Shared(table, key, value) = item else { return Ok(()) };
        records += 1;
        proxies += u64::from(table == JOIN_RECORDS);
        if table == crate::mesh_state::MESH {
            names = Some(serde_json::from_slice(&value).map_err(|_| ExportFault::NotAuthentic)?);
        }
        if largest.as_ref().is_none_or(|(_, bytes)| *bytes < value.len()) {
            largest = Some((RecordAddress { table, key }, value.len()));
        }
        Ok(())
    })?;
    Ok(ImportSummary { manifest, names, proxies, records, largest })
}

/// Reads an export from its beginning to its end.
fn read_all(
    file: &fs_err::File,
    key: &ExportKey,
    mut see: impl FnMut(TransferItem) -> Result<(), ExportFault>,
) -> Result<Manifest, ExportFault> {
    let mut input = SealedReader::new(key, BufReader::new(file))?;
    let manifest = items::read_manifest(&mut input)?;
    let mut count = 0;
    loop {
        match items::read_item(&mut input)? {
            Ok(item) => see(item)?,
            Err(all) if all == count => break,
            Err(_) => return Err(ExportFault::NotAuthentic),
        }
        count += 1;
    }
    input.expect_end()?;
    Ok(manifest)
}

const JOIN_RECORDS: TableName =
    <ironmesh_catalog::JoinRecord as crate::record_table::Record>::TABLE;
