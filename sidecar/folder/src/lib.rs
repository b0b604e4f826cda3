//! The files of new proxies on their machine: keys, certificates and bootstraps, in a folder that appears complete or
//! not at all.
//!
//! Private keys are generated here and never leave this machine.

mod all_cores;
mod enrollment_state;
mod new_folder;
mod proxy_files;
mod start_command;

pub use enrollment_state::{ENROLLMENT, EnrollmentState};
pub use new_folder::{NewFolder, NewFolderError};
pub use proxy_files::{
    AddressRangeExceeded, CommonFiles, NewProxy, ProxyFilesError, create_keys, write_bootstraps,
};
pub use start_command::{quoted, start_command};
