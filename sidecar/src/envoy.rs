//! The Envoy driver: its bootstrap, its settings on the machine, and its commands. Everything else comes by xDS.

mod admin;
mod bootstrap;
mod certificates;
mod overlay;
mod settings;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;

use serde_json::Value;

use crate::{
    Admin, DriverSettings, File, Patch, PatchError, ProgramVersion, SidecarDriver, SidecarProcess,
    Validation, Workload,
};
pub use admin::{AdminSocketPathTooLong, admin_socket, agent_socket, check_admin_socket_path};
use bootstrap::Bootstrap;
pub use certificates::certificates_socket;
pub use overlay::OverlayError;
pub use settings::{EnvoyPorts, EnvoySettings, InvalidEnvoySettings, LogLevel};

/// The name of the driver.
pub const NAME: &str = "envoy";

/// The name of the control plane's cluster in a bootstrap. Resources refer to it.
pub const CONTROL_PLANE_CLUSTER: &str = "ironmesh-control-plane";

/// The name of the agent's cluster for certificates, in the bootstrap of a proxy that gets them from the agent. Resources
/// refer to it.
pub const CERTIFICATES_CLUSTER: &str = "ironmesh-certificates";

/// The name of the runtime layer, in bootstraps of version 1 and later, that says which callers are withdrawn.
pub const WITHDRAWALS_LAYER: &str = "ironmesh-withdrawals";

/// The name of the main configuration file.
pub const CONFIGURATION: &str = "envoy.yaml";
/// The name of the file that holds the proxy's certificate.
pub const CERTIFICATE: &str = "proxy.crt";
/// The name of the file that holds the proxy's key.
pub const KEY: &str = "proxy.key";
/// The name of the file that holds the roots of the mesh.
pub const ROOTS: &str = "ca.crt";

/// The oldest Envoy that runs. Older ones have holes in what authorization relies on: path parameters and headers with
/// several values passed RBAC, and an embedded NUL passed SAN matching (fixed in 1.39).
pub const MINIMUM_VERSION: ProgramVersion = ProgramVersion { major: 1, minor: 39, patch: 0 };

/// The log level under the supervisor, unless the settings choose one. At Envoy's own, `info`, each start logs hundreds of
/// lines.
const SUPERVISED_LOG_LEVEL: LogLevel = LogLevel::Warning;

/// The Envoy driver.
#[derive(Debug, Clone, Copy)]
pub struct Envoy;

impl SidecarDriver for Envoy {
    fn overlay<'a>(&self, settings: &'a DriverSettings) -> Option<&'a Path> {
        settings.envoy.bootstrap_overlay.as_deref()
    }

    fn files(
        &self,
        workload: &Workload,
        settings: &DriverSettings,
        overlay: Option<&Value>,
    ) -> Result<Vec<File>, PatchError> {
        if workload.admin == Admin::Socket {
            check_admin_socket_path(&workload.folder)?;
        }
        let ports = settings.envoy.ports;
        check_upstreams(workload, ports)?;
        let bootstrap = Bootstrap { workload, ports };
        let mut configuration = bootstrap.configuration();
        if let Some(overlay) = overlay {
            overlay::merge(&mut configuration, overlay)?;
        }
        let mut files = vec![Bootstrap::file(&configuration)];
        files.extend(bootstrap.secrets());
        Ok(files)
    }

    fn runtime(&self, folder: &Path, settings: &DriverSettings) -> Patch {
        let settings = &settings.envoy;
        let configuration = folder.join(CONFIGURATION);
        let own = |level: Option<LogLevel>| {
            let level = level.map(|level| ["-l".into(), OsString::from(level.word())]);
            let threads = settings.concurrency.map(|threads| option("--concurrency", threads));
            level.into_iter().flatten().chain(threads.into_iter().flatten())
        };
        let drain = option("--drain-time-s", settings.drain_time.as_secs());
        let mut standalone = vec!["-c".into(), configuration.clone().into()];
        standalone.push("--disable-hot-restart".into());
        standalone.extend(drain.clone().into_iter().chain(own(settings.log_level)));
        let mut supervised = vec!["-c".into(), configuration.into()];
        let parent = option("--parent-shutdown-time-s", settings.parent_shutdown_time.as_secs());
        supervised.extend(drain.into_iter().chain(parent));
        supervised.extend(own(settings.log_level.or(Some(SUPERVISED_LOG_LEVEL))));
        let process = SidecarProcess {
            program: settings.binary.clone(),
            standalone,
            supervised,
            minimum_version: MINIMUM_VERSION,
            validation: Validation {
                file: CONFIGURATION,
                arguments: ["--mode", "validate", "-l", "warning", "-c"].map(Into::into).into(),
            },
        };
        Patch {
            files: Vec::new(),
            process: Some(process),
            environment: Vec::new(),
            interception: Vec::new(),
        }
    }
}

fn option(name: &str, value: impl Into<u64>) -> [OsString; 2] {
    [name.into(), value.into().to_string().into()]
}

/// Fails if an upstream has a port to which the settings move one of Envoy's own listeners. The control plane knows only
/// the default ports; it reports upstreams there.
fn check_upstreams(workload: &Workload, ports: EnvoyPorts) -> Result<(), PatchError> {
    let by_key = ports.by_key().into_iter().zip(EnvoyPorts::default().by_key());
    let moved: Vec<_> =
        by_key.filter(|(own, default)| own != default).map(|(own, _)| own).collect();
    let metadata = &workload.metadata;
    let services = metadata.upstreams.iter().map(|one| (one.service.to_string(), one.local_port));
    let hosts = metadata.hosts.iter().map(|one| (one.authority(), one.local_port));
    for (upstream, port) in services.chain(hosts) {
        if let Some((key, _)) = moved.iter().find(|(_, own)| *own == port) {
            return Err(PatchError::PortInUse { upstream, port, key });
        }
    }
    Ok(())
}
