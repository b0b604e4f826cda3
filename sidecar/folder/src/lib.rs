//! The files of proxies on their machine: keys, certificates and bootstraps. The folder of a new proxy appears complete or
//! not at all; the bootstrap of an enrolled one can be made again ([`patch_folder()`]).
//!
//! Private keys are generated here and never leave this machine.

mod all_cores;
mod enrollment_state;
mod new_folder;
mod patch_folder;
mod proxy_files;
mod replacement;
mod start_command;

pub use enrollment_state::{ENROLLMENT, EnrollmentState};
pub use new_folder::{NewFolder, NewFolderError};
pub use patch_folder::{
    PatchFolderError, ReplacedFiles, StagedPatch, WORKLOAD, patch_folder, read_workload, stage,
};
pub use proxy_files::{
    AddressRangeExceeded, CommonFiles, NewProxy, ProxyFilesError, create_keys, write_bootstraps,
};
pub use replacement::write_replacement;
pub use start_command::{quoted, start_command};
