//! What `ironmesh store export` and `ironmesh store import` report: as JSON, and as text with the next steps.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// An export that is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ExportedMesh {
    /// The name of the mesh.
    pub mesh: String,
    /// Its file.
    pub file: PathBuf,
    /// The size of the file.
    pub bytes: u64,
    /// The file of the key-encryption key, which sealed it.
    pub key_file: PathBuf,
    /// Whether no control plane ran with the store. Otherwise later changes are not in the export.
    pub offline: bool,
}

/// A mesh that was imported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ImportedMesh {
    /// The name of the mesh.
    pub mesh: String,
    /// The place of its store.
    pub store: String,
    /// The number of its enrolled proxies.
    pub proxies: u64,
    /// The number of its records.
    pub records: u64,
    /// When it was exported.
    pub exported_at: String,
    /// The next steps of an operator, in their order.
    pub next: Vec<String>,
}

impl fmt::Display for ExportedMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mesh, file, bytes, key_file, offline } = self;
        let (file, key_file) = (file.display(), key_file.display());
        writeln!(f, "exported the mesh `{mesh}` into {file} ({bytes} bytes)")?;
        writeln!(
            f,
            "it is sealed with the key-encryption key of the mesh, {key_file}, which an import needs"
        )?;
        if !offline {
            f.write_str(
                "later changes are not in it: to move the mesh, stop its control planes and use `--offline`\n",
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for ImportedMesh {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mesh, store, proxies, exported_at, .. } = self;
        let noun = if *proxies == 1 { "proxy" } else { "proxies" };
        writeln!(
            f,
            "imported the mesh `{mesh}` with {proxies} {noun} into {store}, as it was at {exported_at}"
        )?;
        for (number, step) in (1..).zip(&self.next) {
            writeln!(f, "{number}. {step}")?;
        }
        Ok(())
    }
}
