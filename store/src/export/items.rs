//! What an export has: a manifest, records and values, and their number at the end.
//!
//! ```text
//! manifest   length 4 | JSON
//! item       kind 1 | table 4 + bytes | key 4 + bytes | value 4 + bytes
//! end        kind 0 | number of items 8
//! ```

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::sealed_stream::{ExportFault, SealedReader};
use super::{LOCAL_TABLES, SHARED_TABLES};
use crate::record_store::{RecordBytes, TableName};

/// What an export says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The name of the mesh, as in the settings.
    pub mesh: String,
    /// The version of the program that wrote it.
    pub version: String,
    /// When the export began.
    pub exported_at: String,
}

/// A table of values that one control plane keeps for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalTable {
    /// The retained policies, and the rollback pin.
    Policy,
    /// The last good endpoints.
    Endpoints,
}

/// A record or a value of an export.
#[derive(Clone, PartialEq, Eq)]
pub enum TransferItem {
    /// A record that all control planes share.
    Shared(TableName, String, RecordBytes),
    /// A value that one control plane keeps for itself.
    Local(LocalTable, String, RecordBytes),
}

/// The value may have a private key, so only its place is shown.
impl std::fmt::Debug for TransferItem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shared(table, key, _) => write!(f, "Shared({table}/{key})"),
            Self::Local(table, key, _) => write!(f, "Local({table:?}/{key})"),
        }
    }
}

pub(crate) const END: u8 = 0;
pub(crate) const SHARED: u8 = 1;
pub(crate) const LOCAL: u8 = 2;

/// The most bytes of a part. A record has at most 16 MiB, and a policy document is one text.
const MAX_PART: u32 = 1 << 30;

pub(crate) fn write_manifest(output: &mut impl Write, manifest: &Manifest) -> io::Result<()> {
    write_part(output, &serde_json::to_vec(manifest)?)
}

pub(crate) fn write_item(
    output: &mut impl Write,
    kind: u8,
    (table, key): (&str, &str),
    value: &[u8],
) -> io::Result<()> {
    output.write_all(&[kind])?;
    write_part(output, table.as_bytes())?;
    write_part(output, key.as_bytes())?;
    write_part(output, value)
}

pub(crate) fn write_end(output: &mut impl Write, items: u64) -> io::Result<()> {
    output.write_all(&[END])?;
    output.write_all(&items.to_be_bytes())
}

fn write_part(output: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    let length = u32::try_from(bytes.len()).ok().filter(|length| *length <= MAX_PART);
    let length = length.ok_or_else(|| io::Error::other("a value is too large for an export"))?;
    output.write_all(&length.to_be_bytes())?;
    output.write_all(bytes)
}

pub(crate) fn read_manifest<R: Read>(input: &mut SealedReader<R>) -> Result<Manifest, ExportFault> {
    let json = read_part(input)?;
    serde_json::from_slice(&json).map_err(|_| ExportFault::Unknown("a different manifest".into()))
}

/// The next item; at the end, the number of all.
pub(crate) fn read_item<R: Read>(
    input: &mut SealedReader<R>,
) -> Result<Result<TransferItem, u64>, ExportFault> {
    let mut kind = [0];
    input.read_exact(&mut kind)?;
    let [kind] = kind;
    if kind == END {
        let mut count = [0; 8];
        input.read_exact(&mut count)?;
        return Ok(Err(u64::from_be_bytes(count)));
    }
    let (table, key, value) = (read_text(input)?, read_text(input)?, read_part(input)?);
    let unknown = || ExportFault::Unknown(format!("the table `{table}`"));
    Ok(Ok(match kind {
        SHARED => {
            let known = SHARED_TABLES.into_iter().find(|one| one.0 == table);
            TransferItem::Shared(known.ok_or_else(unknown)?, key, value)
        }
        LOCAL => {
            let known = LOCAL_TABLES.into_iter().find(|(_, one)| table_name(one) == table);
            TransferItem::Local(known.ok_or_else(unknown)?.0, key, value)
        }
        other => return Err(ExportFault::Unknown(format!("items of the kind {other}"))),
    }))
}

pub(crate) fn table_name(table: &crate::database::Table) -> String {
    redb::TableHandle::name(table).to_owned()
}

fn read_text<R: Read>(input: &mut SealedReader<R>) -> Result<String, ExportFault> {
    let bytes = read_part(input)?;
    str::from_utf8(&bytes).map(str::to_owned).map_err(|_| ExportFault::NotAuthentic)
}

fn read_part<R: Read>(input: &mut SealedReader<R>) -> Result<RecordBytes, ExportFault> {
    let mut length = [0; 4];
    input.read_exact(&mut length)?;
    let length = u32::from_be_bytes(length);
    let length = usize::try_from(length).ok().filter(|_| length <= MAX_PART);
    let mut bytes = Zeroizing::new(vec![0; length.ok_or(ExportFault::NotAuthentic)?]);
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}
