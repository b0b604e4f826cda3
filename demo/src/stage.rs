//! All running parts of the demo: control plane, Envoys, applications and working folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use ironmesh_catalog::text::chain;
use tokio::time::Duration;

use crate::addresses::Network;
use crate::applications::{Records, Store, Warehouse};
use crate::child::{Child, Tether};
use crate::error::DemoError;
use crate::folder::WorkingFolder;
use crate::options::DemoOptions;
use crate::policy::PolicyFolder;
use crate::program::EnvoyProgram;
use crate::sidecars::{
    ADMIN_PORT, APPLICATION_PORT, CONTROL_PLANE, FIRST, REPLACEMENT, SECOND, SIDECARS, Sidecar,
    THIEF, WAREHOUSE_PORT, WAREHOUSES, XDS_PORT,
};

/// The drain time of the demo's Envoys, after which they end connections that lost their grant or their listener.
/// Envoy's default is 600 s; in the demo the end of a TCP connection should be visible soon.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(3);
/// The drain time of the thief's Envoy. It is so long that only the servers' sidecars end the thief's connections: the
/// thief controls its own sidecar, but not those.
const DRAIN_TIME_OF_THIEF: Duration = Duration::from_secs(600);

/// A store with its connection to the warehouse.
#[derive(Debug)]
pub(crate) struct OpenStore {
    pub(crate) store: Store,
    pub(crate) records: Records,
}

/// The running demo.
#[derive(Debug)]
pub(crate) struct Stage {
    pub(crate) network: Network,
    pub(crate) policy: PolicyFolder,
    pub(crate) envoy: EnvoyProgram,
    pub(crate) warehouse: Warehouse,
    pub(crate) first: OpenStore,
    pub(crate) second: OpenStore,
    pub(crate) replacement: Option<OpenStore>,
    folder: WorkingFolder,
    tether: Tether,
    control_plane: Option<Child>,
    envoys: Vec<Child>,
}

impl Stage {
    /// Writes the files and opens the applications. Starts no other program yet.
    pub(crate) async fn new(
        options: &DemoOptions,
        envoy: EnvoyProgram,
        network: Network,
        mut folder: WorkingFolder,
    ) -> Result<Self, DemoError> {
        let (policy, warehouse, [first, second]) =
            match create_content(&network, folder.path()).await {
                Ok(content) => content,
                Err(error) => {
                    folder.remove().await;
                    return Err(error);
                }
            };
        Ok(Self {
            warehouse,
            first,
            second,
            replacement: None,
            tether: Tether::new(options),
            control_plane: None,
            envoys: Vec::new(),
            network,
            policy,
            envoy,
            folder,
        })
    }

    /// The working folder.
    pub(crate) fn folder(&mut self) -> &mut WorkingFolder {
        &mut self.folder
    }

    /// Starts the control plane, without waiting until it is ready.
    pub(crate) fn start_control_plane(&mut self) -> Result<(), DemoError> {
        let arguments = ["serve".into(), "--config".into(), self.settings_file().into()];
        let program = self.tether.ironmesh();
        let child = self.start("the control plane", program, &arguments, "control-plane.log")?;
        self.control_plane = Some(child);
        Ok(())
    }

    /// Starts a program with a log of this name. The program ends with the demo, however the demo ends.
    fn start(
        &self,
        name: &str,
        program: &Path,
        arguments: &[OsString],
        log: &str,
    ) -> Result<Child, DemoError> {
        let log = self.folder.path().join(log);
        let child = Child::start(&self.tether, name, program, arguments, &log)?;
        if let Some(id) = child.id() {
            self.folder.kill_at_end(id);
        }
        Ok(child)
    }

    /// Kills the control plane with SIGKILL.
    pub(crate) async fn kill_control_plane(&mut self) {
        if let Some(child) = self.control_plane.take() {
            Child::kill(&[&child]).await;
        }
    }

    /// Enrolls the five initial sidecars, and starts their Envoys.
    pub(crate) async fn start_sidecars(&mut self) -> Result<(), DemoError> {
        for sidecar in &SIDECARS {
            self.start_sidecar(sidecar).await?;
        }
        Ok(())
    }

    /// Opens a second instance of the store's second version, and starts its sidecar.
    pub(crate) async fn start_replacement(&mut self) -> Result<(), DemoError> {
        self.replacement = Some(open_store(&REPLACEMENT, &self.network, "bookstore-v2").await?);
        self.start_sidecar(&REPLACEMENT).await
    }

    async fn start_sidecar(&mut self, sidecar: &Sidecar) -> Result<(), DemoError> {
        let folder = self.folder.path().join("proxies").join(sidecar.name);
        self.enroll(sidecar, &folder).await?;
        let drain_time = if *sidecar == THIEF { DRAIN_TIME_OF_THIEF } else { DRAIN_TIME };
        let drain_time = drain_time.as_secs().to_string();
        // The command that `ironmesh proxy bootstrap` prints, except for the drain time.
        let mut arguments: Vec<OsString> = vec!["-c".into(), folder.join("envoy.yaml").into()];
        arguments.extend(["--disable-hot-restart", "--drain-time-s"].map(Into::into));
        arguments.push(drain_time.into());
        // One worker is enough for one application, and five Envoys share this machine.
        arguments.extend(["--concurrency", "1"].map(Into::into));
        let name = format!("the Envoy of {}", sidecar.name);
        let log = format!("envoy-{}.log", sidecar.name);
        let envoy = self.start(&name, &self.envoy.path, &arguments, &log)?;
        self.envoys.push(envoy);
        Ok(())
    }

    /// Enrolls a sidecar by `ironmesh proxy bootstrap`, as an operator does.
    async fn enroll(&self, sidecar: &Sidecar, folder: &Path) -> Result<(), DemoError> {
        let address = self.network.host(sidecar.host).to_string();
        let mut arguments: Vec<OsString> = ["proxy", "bootstrap", "--service", sidecar.service]
            .into_iter()
            .chain(["--address", &address, "--app-address", &address])
            .map(Into::into)
            .collect();
        for (service, port) in sidecar.upstreams {
            arguments.extend(["--upstream".into(), format!("{service}={port}").into()]);
        }
        // The demo queries the admin interface of its Envoys over TCP.
        arguments.extend(["--admin-tcp".into(), "--out".into(), folder.into()]);
        arguments.extend(["--config".into(), self.settings_file().into()]);
        let output = self.tether.command(self.tether.ironmesh(), &arguments).output().await;
        let failed = |answer: String| DemoError::Command {
            command: format!("proxy bootstrap --service {}", sidecar.service),
            answer,
        };
        match output {
            Ok(output) if output.status.success() => Ok(()),
            Ok(output) => Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned())),
            Err(error) => Err(failed(chain(&error))),
        }
    }

    /// Fails if a program has ended unexpectedly.
    pub(crate) fn assert_running(&self) -> Result<(), DemoError> {
        self.children().try_for_each(Child::assert_running)
    }

    /// Terminates all programs, and waits for their end.
    pub(crate) async fn end(&self) {
        for child in self.children() {
            child.terminate();
        }
        Child::all_ended(&self.children().collect::<Vec<_>>()).await;
    }

    /// Kills all programs with SIGKILL.
    pub(crate) async fn kill(&self) {
        Child::kill(&self.children().collect::<Vec<_>>()).await;
    }

    /// Ends the applications. Without Envoys no caller reaches them.
    pub(crate) fn close(&self) {
        self.warehouse.close();
        for open in [&self.first, &self.second].into_iter().chain(&self.replacement) {
            open.store.close();
        }
    }

    /// The number of started programs, without those that the demo killed on purpose.
    pub(crate) fn programs(&self) -> usize {
        self.children().count()
    }

    /// The address of the control plane's admin port.
    pub(crate) fn admin(&self) -> std::net::SocketAddr {
        self.network.socket(CONTROL_PLANE, ADMIN_PORT)
    }

    /// The local address at which a sidecar offers the warehouse.
    pub(crate) fn warehouse_of(&self, sidecar: &Sidecar) -> std::net::SocketAddr {
        sidecar.socket(&self.network, WAREHOUSE_PORT)
    }

    /// All child processes. Envoys come first, so that the end of the control plane does not show in their logs.
    fn children(&self) -> impl Iterator<Item = &Child> {
        self.envoys.iter().chain(&self.control_plane)
    }

    fn settings_file(&self) -> PathBuf {
        self.folder.path().join(SETTINGS)
    }
}

/// Writes the files of the folder, and opens the warehouse and the stores of both versions.
async fn create_content(
    network: &Network,
    folder: &Path,
) -> Result<(PolicyFolder, Warehouse, [OpenStore; 2]), DemoError> {
    let policy = PolicyFolder::create(folder.join("policy"), network).map_err(DemoError::File)?;
    fs_err::create_dir(folder.join("proxies")).map_err(DemoError::File)?;
    fs_err::write(folder.join(SETTINGS), settings(network)).map_err(DemoError::File)?;
    let warehouse = Warehouse::open(WAREHOUSES.socket(network, APPLICATION_PORT)).await?;
    let first = open_store(&FIRST, network, "bookstore-v1").await?;
    let second = open_store(&SECOND, network, "bookstore-v2").await?;
    Ok((policy, warehouse, [first, second]))
}

async fn open_store(
    sidecar: &Sidecar,
    network: &Network,
    name: &'static str,
) -> Result<OpenStore, DemoError> {
    let (records, sales) = Records::open(sidecar.socket(network, WAREHOUSE_PORT));
    let address = sidecar.socket(network, APPLICATION_PORT);
    Ok(OpenStore { store: Store::open(name, address, sales).await?, records })
}

fn settings(network: &Network) -> String {
    let xds = network.socket(CONTROL_PLANE, XDS_PORT);
    let admin = network.socket(CONTROL_PLANE, ADMIN_PORT);
    // Paths are relative to this file.
    format!(
        "state = \"state\"\n\
         policy = \"policy\"\n\
         advertise = [\"{xds}\"]\n\
         \n\
         [listen]\n\
         xds = \"{xds}\"\n\
         admin = \"{admin}\"\n"
    )
}

const SETTINGS: &str = "ironmesh.toml";
