//! Three machines, each with a member of etcd and a control plane, and the machine of all proxies.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use fs_err as fs;
use ironmesh_tests::process::Launcher;
use ironmesh_tests::{Etcd, Mesh, Programs, eventually};
use serde_json::Value;
use tokio::process::Command;
use tokio::time::timeout;

use crate::network::{self, Network, Site};
use crate::relay::Relay;

/// The machines with their processes.
#[derive(Debug)]
pub(crate) struct Machines {
    /// Before etcd, so that they end first.
    pub(crate) control_planes: Vec<Mesh>,
    pub(crate) etcd: Etcd,
    pub(crate) relays: Vec<Relay>,
    pub(crate) network: Network,
}

/// The number of the machine whose control plane has a wall clock of its own.
pub(crate) const SKEWED: usize = 2;

/// Settings of each control plane: its connections move to others now and then, as in production. All proxies are on one
/// machine.
const SETTINGS: &str =
    "xds = { max_connection_age = \"1m\" }\nendpoints = { allow_local_addresses = true }\n";

impl Machines {
    /// Starts all, and waits until each control plane answers. `predecessor` is the program of an earlier version, which
    /// control planes run until an upgrade.
    pub(crate) async fn start(
        network: Network,
        programs: &Programs,
        predecessor: Option<&PathBuf>,
    ) -> Option<Self> {
        let machines = [0, 1, 2].map(Site::Machine);
        let launchers = machines.map(|machine| network.launcher(machine));
        let etcd = Etcd::start_three_on(network::of_etcd(), launchers.clone()).await?;
        let mut relays = Vec::new();
        let mut control_planes = Vec::new();
        for ((number, machine), launcher) in (0_u8..).zip(machines).zip(launchers) {
            relays.push(Relay::start(
                network.enter(machine),
                (0..3).map(|member| etcd.socket(member)),
            ));
            let place = ((network::of_control_plane(number), 15128).into(), launcher);
            let mesh = Mesh::prepare_on(SETTINGS, programs, network::of_proxies(), place);
            mesh.add_settings(&etcd.settings_by(&Relay::endpoints(number)));
            control_planes.push(mesh);
        }
        let addresses: Vec<_> = control_planes.iter().map(Mesh::xds).collect();
        for (number, mesh) in control_planes.iter().enumerate() {
            let mut advertised = addresses.clone();
            advertised.rotate_left(number);
            mesh.advertise(&advertised);
        }
        let key = |mesh: &Mesh| mesh.folder().join("state").join("kek");
        let first = &control_planes[0];
        let output = first.run(&["store", "init"]).await;
        assert!(output.status.success(), "{output:?}");
        for mesh in &control_planes[1..] {
            fs::create_dir_all(key(mesh).parent().unwrap()).unwrap();
            fs::copy(key(first), key(mesh)).unwrap();
        }
        for (relay, machine) in relays.iter().zip(0..) {
            let [to_etcd, from_etcd] = Self::distance_to_etcd(machine);
            relay.set_delays(to_etcd, from_etcd);
        }
        control_planes[SKEWED].use_own_clock();
        for mesh in &mut control_planes {
            mesh.serve_by(predecessor.cloned());
            mesh.launch_control_plane(&[]);
        }
        let started = Self { control_planes, etcd, relays, network };
        for number in 0..3 {
            started.cli(number).wait_until_it_answers().await;
        }
        Some(started)
    }

    /// The delays to etcd and back without a fault. The control plane of the second machine is in a region of its own, 50 ms
    /// away from all members.
    pub(crate) fn distance_to_etcd(machine: u8) -> [Duration; 2] {
        [if machine == 1 { Duration::from_millis(25) } else { Duration::ZERO }; 2]
    }

    /// Commands for a control plane, on its machine.
    pub(crate) fn cli(&self, machine: usize) -> Cli {
        Cli {
            launcher: self.network.launcher(Site::Machine(u8::try_from(machine).unwrap())),
            program: self.control_planes[machine].programs().ironmesh.clone(),
            settings: self.control_planes[machine].folder().join("ironmesh.toml"),
        }
    }

    /// Commands on the machine of the operators, for what needs etcd alone.
    pub(crate) fn cli_of_operators(&self, folder: &Path) -> Cli {
        let settings = folder.join("operator.toml");
        fs::write(&settings, self.etcd.settings("mesh")).unwrap();
        Cli {
            launcher: self.network.launcher(Site::Proxies),
            program: self.control_planes[0].programs().ironmesh.clone(),
            settings,
        }
    }
}

/// Commands of `ironmesh` with one file of settings.
#[derive(Debug, Clone)]
pub(crate) struct Cli {
    launcher: Launcher,
    program: PathBuf,
    settings: PathBuf,
}

impl Cli {
    /// Runs a command. `None` if it does not end in time: it may have had its effect.
    pub(crate) async fn run(&self, arguments: &[&str]) -> Option<Output> {
        let mut command: Command = self.launcher.command(&self.program);
        command.args(arguments).arg("--config").arg(&self.settings);
        command.stdin(Stdio::null()).kill_on_drop(true);
        timeout(LIMIT, command.output()).await.ok().map(Result::unwrap)
    }

    /// The JSON output of a command that succeeds, otherwise why there is none.
    pub(crate) async fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let output = self.run(&[arguments, &["--output", "json"]].concat()).await;
        let output = output.ok_or_else(|| anyhow::anyhow!("{arguments:?} does not end"))?;
        let errors = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "{arguments:?}: {errors}");
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    async fn wait_until_it_answers(&self) {
        eventually("a control plane to answer", async || self.json(&["proxy", "list"]).await).await;
    }
}

/// How long a command may take: a control plane that is stopped never answers.
const LIMIT: Duration = Duration::from_secs(12);
