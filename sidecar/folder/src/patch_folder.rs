//! The patch of an enrolled proxy: made again from its folder when the settings or the overlay have changed, staged
//! beside the files that are in use, and moved into place after a check.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use ironmesh_config_language::{Document, yaml_value};
use ironmesh_sidecar::envoy::{self, EnvoyPorts};
use ironmesh_sidecar::{
    DRIVERS, DriverSettings, Patch, PatchError, ProcessCommand, SidecarDriver, SidecarProcess,
    UnknownDriver, Workload,
};
use serde_json::Value;

use crate::replacement::write_replacement;

/// The name of the file with the [`Workload`] in the folder of a proxy.
pub const WORKLOAD: &str = "workload.json";

/// The most bytes of an overlay.
const MAX_OVERLAY: u64 = 1 << 20;

/// The reason why a folder has no patch, or why the patch cannot be staged.
#[derive(Debug, thiserror::Error)]
pub enum PatchFolderError {
    /// A file cannot be read or written.
    #[error("cannot {action} `{}`", path.display())]
    File {
        /// What failed: `read`, `write`.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The record is malformed.
    #[error("`{}` is unusable: {problem}; restore it, or enroll the machine again", path.display())]
    Workload {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The record names a driver that this version does not have.
    #[error("cannot run the sidecar of `{}`", folder.display())]
    Driver {
        /// The folder.
        folder: PathBuf,
        /// The unknown driver.
        source: UnknownDriver,
    },
    /// The overlay is no YAML.
    #[error("bootstrap overlay `{}` is malformed: {problem}", path.display())]
    Overlay {
        /// The file.
        path: PathBuf,
        /// The first problem, with its position.
        problem: String,
    },
    /// The settings need files that cannot be made without the record.
    #[error(
        "`{}` has no {WORKLOAD}, as folders of earlier versions: its bootstrap cannot be made again with `ports` or `bootstrap_overlay`; remove these settings, or enroll the machine again",
        .0.display()
    )]
    NoWorkload(PathBuf),
    /// The driver makes no patch.
    #[error(transparent)]
    Patch(#[from] PatchError),
}

/// Makes the patch of the proxy in `folder`, by the settings of its machine. It changes no file.
///
/// `adapted` brings the record in line with the settings. A folder of an earlier version has no record of its workload. Its
/// files stay as they are: the patch has none.
pub fn patch_folder(
    folder: &Path,
    settings: &DriverSettings,
    adapted: impl FnOnce(Workload) -> Workload,
) -> Result<Patch, PatchFolderError> {
    let Some(workload) = read_workload(folder)? else {
        // Folders of earlier versions are Envoy's.
        let is_default = settings.envoy.ports == EnvoyPorts::default();
        if !is_default || settings.envoy.bootstrap_overlay.is_some() {
            return Err(PatchFolderError::NoWorkload(folder.to_owned()));
        }
        return Ok(envoy::Envoy.runtime(folder, settings));
    };
    let workload = adapted(workload);
    let driver = DRIVERS.find(&workload.driver).map_err(|source| {
        let folder = folder.to_owned();
        PatchFolderError::Driver { folder, source }
    })?;
    let overlay = driver.overlay(settings).map(read_overlay).transpose()?;
    Ok(driver.patch(&workload, settings, overlay.as_ref())?)
}

/// The record of the workload in `folder`; none in a folder of an earlier version.
pub fn read_workload(folder: &Path) -> Result<Option<Workload>, PatchFolderError> {
    let path = folder.join(WORKLOAD);
    let text = match fs_err::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(PatchFolderError::File { action: "read", path, source }),
        Ok(text) => text,
    };
    let workload: Workload = serde_json::from_str(&text)
        .map_err(|error| PatchFolderError::Workload { path, problem: error.to_string() })?;
    let folder = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    Ok(Some(Workload { folder, ..workload }))
}

fn read_overlay(path: &Path) -> Result<Value, PatchFolderError> {
    let failed = |source| PatchFolderError::File { action: "read", path: path.to_owned(), source };
    let text = fs_err::metadata(path)
        .and_then(|metadata| match metadata.len() {
            0..=MAX_OVERLAY => fs_err::read_to_string(path),
            _ => Err(io::Error::new(ErrorKind::FileTooLarge, "the file has more than 1 MiB")),
        })
        .map_err(failed)?;
    yaml_value(&Document::new(path.display().to_string(), text)).map_err(|findings| {
        let problem = findings.first().map(ToString::to_string).unwrap_or_default();
        PatchFolderError::Overlay { path: path.to_owned(), problem }
    })
}

/// The files of a patch that differ from those in use, written beside them. Dropped, it removes them.
#[derive(Debug)]
pub struct StagedPatch {
    folder: PathBuf,
    process: Option<SidecarProcess>,
    changed: Vec<&'static str>,
}

/// The files that a patch replaced.
#[derive(Debug)]
pub struct ReplacedFiles {
    folder: PathBuf,
    previous: Vec<(&'static str, String)>,
}

impl ReplacedFiles {
    /// Puts them back.
    pub fn restore(self) -> Result<(), PatchFolderError> {
        for (name, content) in &self.previous {
            let (path, new) = (self.folder.join(name), self.folder.join(format!(".new.{name}")));
            write_replacement(&new, content, &path)
                .and_then(|()| fs_err::rename(&new, &path))
                .map_err(|source| PatchFolderError::File { action: "restore", path, source })?;
        }
        Ok(())
    }
}

/// Writes the changed files of `patch` beside those in `folder`, which stay in use.
pub fn stage(folder: &Path, patch: &Patch) -> Result<StagedPatch, PatchFolderError> {
    let process = patch.process.clone();
    let mut staged = StagedPatch { folder: folder.to_owned(), process, changed: Vec::new() };
    for file in &patch.files {
        let path = folder.join(file.name);
        if fs_err::read_to_string(&path).is_ok_and(|present| present == file.content) {
            continue;
        }
        // Noted first: a file that is written in part is removed, too.
        staged.changed.push(file.name);
        let new = staged.path(file.name);
        write_replacement(&new, &file.content, &path).map_err(|source| PatchFolderError::File {
            action: "write",
            path: new,
            source,
        })?;
    }
    Ok(staged)
}

impl StagedPatch {
    /// The names of the files that the patch changes.
    pub fn changed(&self) -> &[&'static str] {
        &self.changed
    }

    /// The command by which the sidecar's program checks the configuration; none if it has no process.
    pub fn validation(&self) -> Option<ProcessCommand> {
        let process = self.process.as_ref()?;
        let file = process.validation.file;
        let is_new = self.changed.contains(&file);
        let path = if is_new { self.path(file) } else { self.folder.join(file) };
        Some(process.validation(&path))
    }

    /// Moves the files into place. They are on the disk when this returns.
    pub fn commit(mut self) -> Result<ReplacedFiles, PatchFolderError> {
        let previous = self.changed.iter().filter_map(|name| {
            // A file that cannot be read is not restored.
            Some((*name, fs_err::read_to_string(self.folder.join(name)).ok()?))
        });
        let replaced = ReplacedFiles { folder: self.folder.clone(), previous: previous.collect() };
        if self.changed.is_empty() {
            return Ok(replaced);
        }
        // The configuration is the first file and the last that is moved: it refers to the others.
        while let Some(name) = self.changed.pop() {
            let path = self.folder.join(name);
            if let Err(source) = fs_err::rename(self.path(name), &path) {
                self.changed.push(name);
                return Err(PatchFolderError::File { action: "replace", path, source });
            }
        }
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        let path = self.folder.clone();
        synced.map_err(|source| PatchFolderError::File { action: "sync", path, source })?;
        Ok(replaced)
    }

    /// The path of a new file. Envoy knows the format of a file by its extension.
    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!(".new.{name}"))
    }
}

impl Drop for StagedPatch {
    fn drop(&mut self) {
        for name in &self.changed {
            drop(fs_err::remove_file(self.path(name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use serde_json::json;

    use super::*;

    fn folder_with_workload() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let workload = json!({
            "id": "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f",
            "name": "bookstore-1",
            "service": "shop/bookstore",
            "address": "10.0.0.5",
            "control_plane": [["10.0.0.1", 15128]],
            "control_plane_id": "spiffe://mesh.internal/control-plane",
        });
        fs_err::write(folder.path().join(WORKLOAD), workload.to_string()).unwrap();
        folder
    }

    fn with_overlay(folder: &Path, text: &str) -> DriverSettings {
        let path = folder.join("overlay.yaml");
        fs_err::write(&path, text).unwrap();
        let mut settings = DriverSettings::default();
        settings.envoy.bootstrap_overlay = Some(path);
        settings
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs_err::read_dir(folder).unwrap();
        let name = |entry: io::Result<fs_err::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<_> = entries.map(|one| name(one).into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn patch_is_staged_and_moved_into_place_only_by_commit() {
        let folder = folder_with_workload();
        let path = folder.path();
        let patch = patch_folder(path, &DriverSettings::default(), |workload| workload).unwrap();
        let staged = stage(path, &patch).unwrap();
        assert_eq!(staged.changed(), ["envoy.yaml", "sds-certificate.yaml", "sds-roots.yaml"]);
        let validation = staged.validation().unwrap();
        let checked = path.join(".new.envoy.yaml");
        assert_eq!(validation.arguments.last().unwrap(), checked.as_os_str());
        drop(staged);
        assert_eq!(names(path), [WORKLOAD]);

        stage(path, &patch).unwrap().commit().unwrap();
        let after = ["envoy.yaml", "sds-certificate.yaml", "sds-roots.yaml", WORKLOAD];
        assert_eq!(names(path), after);

        let settings = with_overlay(path, "node:\n  locality: { zone: eu-1 }\n");
        let patch = patch_folder(path, &settings, |workload| workload).unwrap();
        let staged = stage(path, &patch).unwrap();
        assert_eq!(staged.changed(), ["envoy.yaml"]);
        staged.commit().unwrap();
        let text = fs_err::read_to_string(path.join("envoy.yaml")).unwrap();
        let written: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(written["node"]["locality"]["zone"], "eu-1");
        let staged = stage(path, &patch).unwrap();
        assert!(staged.changed().is_empty());
        let validation = staged.validation().unwrap();
        assert_eq!(
            validation.arguments.last().map(|last| &**last),
            Some(path.join("envoy.yaml").as_os_str())
        );
    }

    #[test]
    fn unusable_folder_or_overlay_has_no_patch() {
        let folder = folder_with_workload();
        let path = folder.path();
        let failed = |settings: &DriverSettings| {
            patch_folder(path, settings, |workload| workload).map(drop).unwrap_err().to_string()
        };
        let malformed = failed(&with_overlay(path, "node:\n  - [\n"));
        assert!(malformed.contains("overlay.yaml` is malformed: "), "{malformed}");
        let owned = failed(&with_overlay(path, "dynamic_resources: {}\n"));
        assert!(owned.contains("`dynamic_resources` belongs to the mesh"), "{owned}");
        let mut missing = DriverSettings::default();
        missing.envoy.bootstrap_overlay = Some(path.join("none.yaml"));
        assert!(failed(&missing).contains("cannot read"));
        let workload = path.join(WORKLOAD);
        let text = fs_err::read_to_string(&workload).unwrap();
        fs_err::write(&workload, text.replacen('{', r#"{"driver":"envoi","#, 1)).unwrap();
        let error =
            patch_folder(path, &DriverSettings::default(), |workload| workload).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("did you mean `envoy`?"), "{source}");
        fs_err::write(&workload, "{}").unwrap();
        assert!(failed(&DriverSettings::default()).contains("workload.json` is unusable"));
    }

    #[test]
    fn folder_of_an_earlier_version_keeps_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let patch =
            patch_folder(folder.path(), &DriverSettings::default(), |workload| workload).unwrap();
        assert!(patch.files.is_empty());
        let process = patch.process.unwrap();
        let configuration = folder.path().join("envoy.yaml");
        let arguments = process.standalone().arguments;
        assert_eq!(arguments.get(1).map(|one| &**one), Some::<&OsStr>(configuration.as_ref()));
        let settings = with_overlay(folder.path(), "node: {}\n");
        let error =
            patch_folder(folder.path(), &settings, |workload| workload).unwrap_err().to_string();
        assert!(error.contains("has no workload.json"), "{error}");
    }
}
