//! All that runs: the control plane, the Envoys and the applications, with their folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use tokio::time::Duration;

use crate::addresses::Network;
use crate::applications::{Records, Store, Warehouse};
use crate::child::{Child, Tether};
use crate::error::{DemoError, chain};
use crate::folder::WorkingFolder;
use crate::options::Options;
use crate::policy::PolicyFolder;
use crate::program::EnvoyProgram;
use crate::sidecars::{
    ADMIN_PORT, APPLICATION_PORT, CONTROL_PLANE, FIRST, NEWCOMER, SECOND, SIDECARS, Sidecar, THIEF,
    WAREHOUSE_PORT, WAREHOUSES, XDS_PORT,
};

/// How long an Envoy lets connections go on that have lost their grant, or their listener. Envoy's
/// own default is 600 s; a TCP connection of the demo should show its end while somebody looks.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(3);
/// The same of the thief's Envoy, which so ends none of its connections while anybody looks: that is
/// left to the sidecars of those whom it calls, which are not the thief's to command.
const DRAIN_TIME_OF_THIEF: Duration = Duration::from_secs(600);

/// A store with all that belongs to it.
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
    pub(crate) newcomer: Option<OpenStore>,
    folder: WorkingFolder,
    tether: Tether,
    control_plane: Option<Child>,
    envoys: Vec<Child>,
}

impl Stage {
    /// Writes the files and opens the applications. No other program is started yet.
    pub(crate) async fn new(
        options: &Options,
        envoy: EnvoyProgram,
        network: Network,
        mut folder: WorkingFolder,
    ) -> Result<Self, DemoError> {
        let (policy, warehouse, [first, second]) = match furnish(&network, folder.path()).await {
            Ok(furnished) => furnished,
            Err(error) => {
                folder.remove().await;
                return Err(error);
            }
        };
        Ok(Self {
            warehouse,
            first,
            second,
            newcomer: None,
            tether: Tether::new(options),
            control_plane: None,
            envoys: Vec::new(),
            network,
            policy,
            envoy,
            folder,
        })
    }

    pub(crate) fn folder(&mut self) -> &mut WorkingFolder {
        &mut self.folder
    }

    /// Starts the control plane. Whether it is ready is another question.
    pub(crate) fn start_control_plane(&mut self) -> Result<(), DemoError> {
        let arguments = ["serve".into(), "--config".into(), self.settings_file().into()];
        let program = self.tether.ironmesh();
        let child = self.start("the control plane", program, &arguments, "control-plane.log")?;
        self.control_plane = Some(child);
        Ok(())
    }

    /// Starts a program with a log of this name. It ends with us, however we end.
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
            self.folder.look_after(id);
        }
        Ok(child)
    }

    /// SIGKILL.
    pub(crate) async fn kill_control_plane(&mut self) {
        if let Some(child) = self.control_plane.take() {
            Child::kill(&[&child]).await;
        }
    }

    /// Lets the five sidecars of the beginning join, and starts their Envoys.
    pub(crate) async fn start_sidecars(&mut self) -> Result<(), DemoError> {
        for sidecar in &SIDECARS {
            self.start_sidecar(sidecar).await?;
        }
        Ok(())
    }

    /// Opens another store of the second version, and starts its sidecar.
    pub(crate) async fn start_newcomer(&mut self) -> Result<(), DemoError> {
        self.newcomer = Some(open_store(&NEWCOMER, &self.network, "bookstore-v2").await?);
        self.start_sidecar(&NEWCOMER).await
    }

    async fn start_sidecar(&mut self, sidecar: &Sidecar) -> Result<(), DemoError> {
        let folder = self.folder.path().join("proxies").join(sidecar.name);
        self.join(sidecar, &folder).await?;
        let drain_time = if *sidecar == THIEF { DRAIN_TIME_OF_THIEF } else { DRAIN_TIME };
        let drain_time = drain_time.as_secs().to_string();
        // As `ironmesh proxy bootstrap` says, except for the drain time.
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

    /// Lets a sidecar join, as an operator does.
    async fn join(&self, sidecar: &Sidecar, folder: &Path) -> Result<(), DemoError> {
        let address = self.network.host(sidecar.host).to_string();
        let mut arguments: Vec<OsString> = ["proxy", "bootstrap", "--service", sidecar.service]
            .into_iter()
            .chain(["--address", &address, "--app-address", &address])
            .map(Into::into)
            .collect();
        for (service, port) in sidecar.upstreams {
            arguments.extend(["--upstream".into(), format!("{service}={port}").into()]);
        }
        // The demo asks its Envoys how they are, over TCP.
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

    /// An error if a program that should run has ended.
    pub(crate) fn assert_running(&self) -> Result<(), DemoError> {
        self.children().try_for_each(Child::assert_running)
    }

    /// Ends all programs, and waits for that.
    pub(crate) async fn end(&self) {
        for child in self.children() {
            child.terminate();
        }
        Child::all_ended(&self.children().collect::<Vec<_>>()).await;
    }

    /// Ends all programs at once: SIGKILL.
    pub(crate) async fn kill(&self) {
        Child::kill(&self.children().collect::<Vec<_>>()).await;
    }

    /// Ends the applications, which nobody can call any more.
    pub(crate) fn close(&self) {
        self.warehouse.close();
        for open in [&self.first, &self.second].into_iter().chain(&self.newcomer) {
            open.store.close();
        }
    }

    /// How many programs there have been, besides those that were killed on purpose.
    pub(crate) fn programs(&self) -> usize {
        self.children().count()
    }

    /// Where the control plane answers people.
    pub(crate) fn admin(&self) -> std::net::SocketAddr {
        self.network.socket(CONTROL_PLANE, ADMIN_PORT)
    }

    /// Where the warehouse is, as the application of a sidecar sees it.
    pub(crate) fn warehouse_of(&self, sidecar: &Sidecar) -> std::net::SocketAddr {
        sidecar.socket(&self.network, WAREHOUSE_PORT)
    }

    /// The Envoys end first: what they have lost is theirs to tell, and not the control plane's.
    fn children(&self) -> impl Iterator<Item = &Child> {
        self.envoys.iter().chain(&self.control_plane)
    }

    fn settings_file(&self) -> PathBuf {
        self.folder.path().join(SETTINGS)
    }
}

/// Writes the files into the folder, and opens the warehouse and the stores of both versions.
async fn furnish(
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
