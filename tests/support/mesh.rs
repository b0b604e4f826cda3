//! A whole mesh for one test: a control plane on its own addresses, and proxies enrolled with it.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use fs_err as fs;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::addresses::Loopback;
use crate::client::get_once;
use crate::clock::SkewedClock;
use crate::envoy::Envoy;
use crate::eventually::{eventually, patience};
use crate::process::{Child, Launcher};
use crate::programs::Programs;
use crate::proxy_options::ProxyOptions;

/// A running control plane with its policy folder. Dropping this value removes both; after a failed
/// test the folder stays, and its path is printed.
#[derive(Debug)]
pub struct Mesh {
    programs: Programs,
    /// Before the folder, so that the process ends before the folder is removed.
    control_plane: Option<Child>,
    loopback: Loopback,
    xds: SocketAddr,
    launcher: Launcher,
    /// The program of the control plane, if it is of a different version than that of its commands.
    served_by: Option<PathBuf>,
    /// The control plane's own wall clock, if a test sets one.
    clock: Option<SkewedClock>,
    folder: TempDir,
}

impl Mesh {
    /// Starts a control plane with these policy files (name and text), and waits until it is ready.
    pub async fn start(programs: &Programs, policy: &[(&str, &str)]) -> Self {
        Self::start_with("", programs, policy).await
    }

    /// Starts a control plane with additional settings.
    pub async fn start_with(settings: &str, programs: &Programs, policy: &[(&str, &str)]) -> Self {
        let mut mesh = Self::prepare(settings, programs, policy);
        mesh.restart_control_plane().await;
        mesh
    }

    /// Prepares a mesh without starting its control plane.
    pub fn prepare(settings: &str, programs: &Programs, policy: &[(&str, &str)]) -> Self {
        let loopback = Loopback::claim();
        let xds = loopback.socket(CONTROL_PLANE_HOST, 15128);
        let mesh = Self::create(programs, loopback, xds, Launcher::default());
        let location = policy_location(mesh.folder());
        mesh.write_files(&format!("{settings}\n{location}"), mesh.admin(), policy);
        mesh
    }

    /// Prepares a mesh whose control plane and commands run on a different machine, without a policy folder. That
    /// machine has its admin port to itself, and the proxies have this network.
    pub fn prepare_on(
        settings: &str,
        programs: &Programs,
        proxies: Loopback,
        (xds, launcher): (SocketAddr, Launcher),
    ) -> Self {
        let mesh = Self::create(programs, proxies, xds, launcher);
        mesh.write_files(settings, ([127, 0, 0, 1], 15014).into(), &[]);
        mesh
    }

    fn create(
        programs: &Programs,
        loopback: Loopback,
        xds: SocketAddr,
        launcher: Launcher,
    ) -> Self {
        Self {
            programs: programs.clone(),
            control_plane: None,
            loopback,
            xds,
            launcher,
            served_by: None,
            clock: None,
            folder: tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap(),
        }
    }

    fn write_files(&self, settings: &str, admin: SocketAddr, policy: &[(&str, &str)]) {
        fs::create_dir_all(self.policy_folder()).unwrap();
        fs::create_dir_all(self.folder.path().join("proxies")).unwrap();
        for (file, text) in policy {
            self.write_policy(file, text);
        }
        if policy.is_empty() {
            // An empty folder is no policy.
            self.write_policy("none.toml", "# Nothing is allowed yet.\n");
        }
        let config = config(self.folder(), self.xds(), admin);
        fs::write(self.config_file(), format!("{settings}\n{config}")).unwrap();
    }

    /// Adds tables to the settings.
    pub fn add_settings(&self, tables: &str) {
        let settings = fs::read_to_string(self.config_file()).unwrap();
        fs::write(self.config_file(), format!("{settings}\n{tables}")).unwrap();
    }

    /// Lets the bootstraps that this control plane writes name these addresses of control planes.
    pub fn advertise(&self, addresses: &[SocketAddr]) {
        let settings = fs::read_to_string(self.config_file()).unwrap();
        let all: Vec<_> = addresses.iter().map(ToString::to_string).collect();
        let own = format!("advertise = [\"{}\"]", self.xds());
        assert!(settings.contains(&own));
        fs::write(self.config_file(), settings.replace(&own, &format!("advertise = {all:?}")))
            .unwrap();
    }

    /// The network of this mesh. Host 1 is the control plane.
    pub fn loopback(&self) -> &Loopback {
        &self.loopback
    }

    /// The folder of this test.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Replaces a policy file by a rename, as editors do.
    pub fn write_policy(&self, file: &str, text: &str) {
        // The partial file is outside the policy folder, where it cannot be read as policy.
        let part = self.folder.path().join("policy.part");
        fs::write(&part, text).unwrap();
        fs::rename(&part, self.policy_folder().join(file)).unwrap();
    }

    /// Removes a policy file.
    pub fn remove_policy(&self, file: &str) {
        fs::remove_file(self.policy_folder().join(file)).unwrap();
    }

    /// Starts the control plane again after [`Self::kill_control_plane`] or [`Self::stop`], or
    /// stops and restarts it. Waits until it is ready.
    pub async fn restart_control_plane(&mut self) {
        self.stop().await;
        self.launch_control_plane(&[]);
        self.ready().await;
    }

    /// Starts the control plane with these arguments, without waiting. It must not be running.
    pub fn launch_control_plane(&mut self, arguments: &[&str]) {
        let program = self.served_by.as_ref().unwrap_or(&self.programs.ironmesh);
        let mut command = self.command(program, &[&["serve"], arguments].concat());
        if let Some(clock) = &self.clock {
            clock.give_to(&mut command);
        }
        let log = self.folder.path().join("control-plane.log");
        self.control_plane = Some(Child::start("ironmesh serve", &mut command, &log));
    }

    /// Restarts the control plane with a wall clock that [`Self::set_clock`] sets. Its offset is
    /// zero at first.
    pub async fn restart_with_own_clock(&mut self) {
        self.use_own_clock();
        self.restart_control_plane().await;
    }

    /// Gives the control plane a wall clock that [`Self::set_clock`] sets, from its next start.
    pub fn use_own_clock(&mut self) {
        self.clock = Some(SkewedClock::new(self.folder.path()));
    }

    /// Runs the control plane by this program of a different version from its next start; by `None`, by its own.
    pub fn serve_by(&mut self, program: Option<PathBuf>) {
        self.served_by = program;
    }

    /// The programs of this mesh.
    pub fn programs(&self) -> &Programs {
        &self.programs
    }

    /// Fails the test if the control plane, which was started, has ended by itself.
    pub fn assert_running(&mut self) {
        if let Some(child) = &mut self.control_plane {
            child.assert_running();
        }
    }

    /// Waits until the control plane handles SIGTERM; before that, the signal ends it as any program.
    pub async fn handles_signals(&self) {
        let status = format!("/proc/{}/status", self.id().unwrap());
        eventually("the handler of SIGTERM", async || {
            let status = fs::read_to_string(&status)?;
            let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:\t"));
            let caught = u64::from_str_radix(caught.unwrap_or_default(), 16)?;
            anyhow::ensure!(caught & (1 << (Signal::TERM.as_raw() - 1)) != 0, "SigCgt {caught:x}");
            Ok(())
        })
        .await;
    }

    /// The process id of the running control plane.
    pub fn id(&self) -> Option<u32> {
        self.control_plane.as_ref()?.id()
    }

    /// Sets the offset of the control plane's clock in seconds.
    pub fn set_clock(&self, seconds: i64) {
        self.clock.as_ref().expect("it has its own clock").set(seconds);
    }

    /// Applies the control plane's own clock, if it has one, to a program of a machine.
    pub fn give_clock(&self, command: &mut Command) {
        if let Some(clock) = &self.clock {
            clock.give_to(command);
        }
    }

    /// Waits until the running control plane is ready.
    pub async fn ready(&mut self) {
        let admin = self.admin();
        let child = self.control_plane.as_mut().unwrap();
        eventually("the control plane to be ready", async || {
            child.assert_running();
            let response = get_once(admin, "/readyz", &[]).await?;
            anyhow::ensure!(response.status == 200, "{} {}", response.status, response.text());
            Ok(())
        })
        .await;
    }

    /// Kills the control plane with SIGKILL.
    pub async fn kill_control_plane(&mut self) {
        let mut child = self.control_plane.take().expect("the control plane runs");
        child.kill_hard().await;
    }

    /// Stops the control plane with SIGSTOP: it keeps its connections and answers nothing.
    pub fn freeze_control_plane(&self) {
        self.signal_control_plane(Signal::STOP);
    }

    /// Continues the control plane with SIGCONT after [`Self::freeze_control_plane`].
    pub fn thaw_control_plane(&self) {
        self.signal_control_plane(Signal::CONT);
    }

    /// Sends the control plane a signal.
    pub fn signal_control_plane(&self, signal: Signal) {
        self.control_plane.as_ref().expect("the control plane runs").signal(signal);
    }

    /// Terminates the control plane if it runs.
    ///
    /// # Panics
    ///
    /// If its exit code reports a failure.
    pub async fn stop(&mut self) {
        if let Some(mut child) = self.control_plane.take() {
            let status = child.terminate().await;
            assert!(status.success(), "the control plane ended with {status}");
        }
    }

    /// Waits for the end of a control plane that was sent SIGTERM.
    ///
    /// # Panics
    ///
    /// If its exit code reports a failure.
    pub async fn ended(&mut self) {
        if let Some(mut child) = self.control_plane.take() {
            let status = child.wait().await;
            assert!(status.success(), "the control plane ended with {status}");
        }
    }

    /// The answer of `/readyz`.
    pub async fn readyz(&self) -> Value {
        self.admin_get("/readyz").await
    }

    /// The proxies that the control plane lists.
    pub async fn proxies(&self) -> Value {
        let mut page = self.admin_get("/v1/proxies").await;
        page.get_mut("proxies").unwrap().take()
    }

    /// Sends `GET path` to the control plane's admin port; the answer as JSON.
    pub async fn admin_get(&self, path: &str) -> Value {
        get_once(self.admin(), path, &[]).await.unwrap().json()
    }

    /// The address of the admin API.
    pub fn admin(&self) -> SocketAddr {
        self.loopback.socket(CONTROL_PLANE_HOST, 15014)
    }

    /// The address of the xDS server.
    pub fn xds(&self) -> SocketAddr {
        self.xds
    }

    /// The log of the control plane.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("control-plane.log")).unwrap()
    }

    /// Enrolls a proxy with `ironmesh proxy bootstrap`; returns the folder with its files.
    pub async fn bootstrap(&self, options: &ProxyOptions) -> PathBuf {
        let address = self.loopback.host(options.host);
        let app_address = options.app_address.unwrap_or(address).to_string();
        let address = address.to_string();
        let folder = self.folder.path().join("proxies").join(options.name());
        let out = folder.to_str().unwrap();
        let bind = options.bind.map(|host| self.loopback.host(host).to_string());
        let mut arguments = vec!["proxy", "bootstrap"];
        arguments.extend(["--address", &address, "--app-address", &app_address, "--out", out]);
        for service in &options.services {
            arguments.extend(["--service", service]);
        }
        if let Some(bind) = &bind {
            arguments.extend(["--bind", bind]);
        }
        let machine = options.machine.map(|machine| machine.to_string());
        if let Some(machine) = &machine {
            arguments.extend(["--azure-vm-id", machine]);
        }
        for upstream in &options.upstreams {
            arguments.extend(["--upstream", upstream]);
        }
        for label in &options.labels {
            arguments.extend(["--label", label]);
        }
        if let Some(locality) = &options.locality {
            arguments.extend(["--locality", locality]);
        }
        if let Some(folder) = &options.access_log_dir {
            arguments.extend(["--access-log-dir", folder.to_str().unwrap()]);
        }
        if !options.admin_socket {
            arguments.push("--admin-tcp");
        }
        let output = self.run(&arguments).await;
        assert!(
            output.status.success(),
            "`ironmesh {}` ended with {}:\n{}",
            arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr),
        );
        if options.sotw {
            select_sotw(&folder);
        }
        if let Some(address) = options.name_server {
            set_name_server(&folder, address);
        }
        if options.first_bootstrap {
            remove_withdrawals(&folder);
        }
        folder
    }

    /// Enrolls a proxy and starts its Envoy; returns once that is ready.
    pub async fn envoy(&self, options: &ProxyOptions) -> Envoy {
        let folder = self.bootstrap(options).await;
        let name = options.name();
        let address = self.loopback.host(options.bind.unwrap_or(options.host));
        Envoy::start(&self.programs.envoy, &name, &folder, address, options.drain_seconds).await
    }

    /// Runs `ironmesh` with these arguments and this mesh's settings until it ends.
    pub async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.ironmesh(arguments);
        let output = command.kill_on_drop(true).output();
        timeout(patience(), output)
            .await
            .unwrap_or_else(|_| panic!("`ironmesh {}` does not end", arguments.join(" ")))
            .unwrap()
    }

    /// Runs `ironmesh` with these arguments and without the control plane's settings, as on another machine.
    pub async fn run_on_machine(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.programs.ironmesh);
        let output = command.args(arguments).kill_on_drop(true).output();
        timeout(patience(), output)
            .await
            .unwrap_or_else(|_| panic!("`ironmesh {}` does not end", arguments.join(" ")))
            .unwrap()
    }

    /// Starts `ironmesh` with these arguments and this mesh's settings. It is killed when the result is dropped.
    pub fn spawn(&self, arguments: &[&str]) -> tokio::process::Child {
        let mut command = self.ironmesh(arguments);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        command.spawn().unwrap()
    }

    fn ironmesh(&self, arguments: &[&str]) -> Command {
        self.command(&self.programs.ironmesh, arguments)
    }

    fn command(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = self.launcher.command(program);
        command.args(arguments).arg("--config").arg(self.config_file());
        command
    }

    fn config_file(&self) -> PathBuf {
        self.folder.path().join("ironmesh.toml")
    }

    fn policy_folder(&self) -> PathBuf {
        self.folder.path().join("policy")
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.folder.disable_cleanup(true);
            eprintln!("--- the mesh of this test is kept in {}", self.folder.path().display());
        }
    }
}

/// Changes a bootstrap so that Envoy uses the state-of-the-world variant.
fn select_sotw(folder: &Path) {
    let file = folder.join("envoy.yaml");
    let delta = fs::read_to_string(&file).unwrap();
    let sotw = delta.replace("DELTA_GRPC", "GRPC");
    assert_ne!(sotw, delta, "the bootstrap has no DELTA_GRPC");
    fs::write(&file, sotw).unwrap();
}

/// Changes a bootstrap to one from before there were versions.
fn remove_withdrawals(folder: &Path) {
    let file = folder.join("envoy.yaml");
    let mut bootstrap: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let layers = bootstrap.pointer_mut("/layered_runtime/layers").unwrap();
    let layers = layers.as_array_mut().unwrap();
    layers.retain(|layer| layer.get("rtds_layer").is_none());
    assert_eq!(layers.len(), 1, "the bootstrap has one other layer");
    let metadata = bootstrap.pointer_mut("/node/metadata/ironmesh").unwrap();
    metadata.as_object_mut().unwrap().remove("bootstrap_version").unwrap();
    for later in ["bootstrap_extensions", "hds_config"] {
        bootstrap.as_object_mut().unwrap().remove(later).unwrap();
    }
    fs::write(&file, bootstrap.to_string()).unwrap();
}

fn set_name_server(folder: &Path, address: SocketAddr) {
    let file = folder.join("envoy.yaml");
    let mut bootstrap: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    let ip = address.ip().to_string();
    let address = json!({ "socket_address": { "address": ip, "port_value": address.port() } });
    let resolver = json!({
        "name": "envoy.network.dns_resolver.cares",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
            "resolvers": [address],
        },
    });
    bootstrap.as_object_mut().unwrap().insert("typed_dns_resolver_config".to_owned(), resolver);
    fs::write(&file, bootstrap.to_string()).unwrap();
}

fn policy_location(folder: &Path) -> String {
    format!("policy = {{ folder = \"{}/policy\", removal_hold = \"0s\" }}\n", folder.display())
}

fn config(folder: &Path, xds: SocketAddr, admin: SocketAddr) -> String {
    let folder = folder.display();
    format!(
        r#"
state = "{folder}/state"
advertise = ["{xds}"]

[listen]
xds = "{xds}"
admin = "{admin}"
"#
    )
}

/// The control plane's host number in the network of a mesh.
const CONTROL_PLANE_HOST: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_settings_file_loads() {
        let (xds, admin) = (([127, 64, 0, 1], 15128).into(), ([127, 64, 0, 1], 15014).into());
        let settings = ironmesh_config_settings::load_settings(
            &(policy_location(Path::new("/mesh")) + &config(Path::new("/mesh"), xds, admin)),
            "ironmesh.toml",
        )
        .unwrap();
        assert_eq!((settings.listen.xds, settings.listen.admin), (xds, admin));
        let policy = ironmesh_config_settings::PolicyLocation::Folder("/mesh/policy".into());
        assert_eq!(settings.policy, Some(policy));
        assert_eq!(settings.advertise, [(xds.ip().to_string(), xds.port())]);
    }
}
