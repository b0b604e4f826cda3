//! The machine's half of a sidecar driver, and the registry of all drivers.

use std::fmt::Debug;
use std::path::Path;

use serde_json::Value;

use crate::envoy::{self, Envoy, EnvoySettings};
use crate::{File, Patch, PatchError, Registry, Workload};

/// The sidecar drivers of this version. A driver is one row; the control plane has the other half.
pub static DRIVERS: Registry<dyn SidecarDriver> = Registry::new(&[(envoy::NAME, &Envoy)]);

/// The settings of all sidecar drivers on a machine: a field for each, which is its table of `agent.toml`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverSettings {
    /// Envoy.
    pub envoy: EnvoySettings,
}

/// The machine's half of a sidecar driver. It is pure: the same inputs yield the same patch.
pub trait SidecarDriver: Debug + Sync {
    /// The file that experts merge into the bootstrap, if the settings name one.
    fn overlay<'a>(&self, settings: &'a DriverSettings) -> Option<&'a Path>;

    /// The files for `workload`, except the key and the certificates. `overlay` is the content of the file that
    /// [`SidecarDriver::overlay`] names.
    fn files(
        &self,
        workload: &Workload,
        settings: &DriverSettings,
        overlay: Option<&Value>,
    ) -> Result<Vec<File>, PatchError>;

    /// What runs the files in `folder`.
    fn runtime(&self, folder: &Path, settings: &DriverSettings) -> Patch;

    /// Everything that the machine of `workload` needs.
    fn patch(
        &self,
        workload: &Workload,
        settings: &DriverSettings,
        overlay: Option<&Value>,
    ) -> Result<Patch, PatchError> {
        let files = self.files(workload, settings, overlay)?;
        Ok(Patch { files, ..self.runtime(&workload.folder, settings) })
    }
}
