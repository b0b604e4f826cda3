//! The controller of Ansible: this machine, in the network of a fleet, with an inventory of its guests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use fs_err as fs;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::{Instant, timeout};

use crate::fleet::Fleet;

/// The longest play. One of this suite takes a minute.
const LONGEST_PLAY: Duration = Duration::from_secs(600);

/// The same program, with another version in its package, in `--version` and in its metrics.
const OTHER_VERSION: &str = r#"
dpkg-deb --raw-extract "$1" "$2"
sed --in-place "s/^Version: .*/Version: $4-1/" "$2/DEBIAN/control"
sed --in-place "s/$5/$4/g" "$2/usr/bin/ironmesh"
eval "$6"
dpkg-deb -Zgzip -z1 --build --root-owner-group "$2" "$3" >&2
rm -r "$2"
"#;

/// Prints all that the run knows about each host.
const DUMP: &str = r"
- import_playbook: PLAYBOOK
- hosts: all
  gather_facts: false
  tasks:
    - debug:
        var: hostvars[inventory_hostname]
    - debug:
        var: vars
";

/// Runs plays of the collection in this repository on the guests of a fleet.
#[derive(Debug)]
pub(crate) struct Controller<'fleet> {
    fleet: &'fleet Fleet,
    /// Key, inventory and collection.
    folder: TempDir,
    /// The folder with the programs of Ansible.
    programs: PathBuf,
    /// The variables of every play.
    variables: String,
    /// The environment variables of every play.
    environment: Vec<(&'static str, String)>,
}

/// The end of a play.
#[derive(Debug)]
pub(crate) struct PlayReport {
    /// The exit code of `ansible-playbook`.
    pub(crate) code: i32,
    /// What it printed.
    pub(crate) text: String,
}

impl<'fleet> Controller<'fleet> {
    /// Gives the controller access to all guests by SSH. `inventory` is a folder of `deploy-ansible/inventories`.
    pub(crate) async fn new(fleet: &'fleet Fleet, programs: &Path, inventory: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let source = repository().join("deploy-ansible");
        let programs = programs.join("bin");
        let (variables, environment) = ("{}".to_owned(), Vec::new());
        let controller = Self { fleet, folder, programs, variables, environment };
        let copy = r#"
            ssh-keygen -q -t ed25519 -N '' -C controller -f "$1/key"
            cp -r "$2" "$1/inventory"
            sed -i 's/10\.0\.0\.1\([1-9]\)/10.77.0.1\1/' "$1"/inventory/hosts*
        "#;
        let inventory = source.join("inventories").join(inventory);
        let (to, from) = (controller.folder.path(), inventory.as_path());
        let copied = Command::new("sh").args(["-euc", copy, "sh"]).args([to, from]).status();
        assert!(copied.await.unwrap().success());
        let key = fs::read_to_string(controller.folder.path().join("key.pub")).unwrap();
        for guest in fleet.guests() {
            guest.write("/root/.ssh/authorized_keys", &key).await;
            guest.run("systemctl enable --quiet --now ssh.service").await;
        }
        controller
    }

    /// Gives every play these variables.
    pub(crate) fn with_variables(self, variables: &Value) -> Self {
        Self { variables: variables.to_string(), ..self }
    }

    /// Gives every play these environment variables.
    pub(crate) fn with_environment(
        self,
        environment: impl IntoIterator<Item = (&'static str, String)>,
    ) -> Self {
        Self { environment: environment.into_iter().collect(), ..self }
    }

    /// Makes a package of another version out of `package`, and returns the variables of a play that installs it. The
    /// version has as many characters. `change` is a snippet of sh that changes the files in the folder `$2`.
    pub(crate) async fn other_version(
        &self,
        package: &Path,
        version: &str,
        change: &str,
    ) -> String {
        let (folder, own) = (self.folder.path(), env!("CARGO_PKG_VERSION"));
        assert_eq!(version.len(), own.len());
        let name = package.file_name().unwrap().to_string_lossy().replace(own, version);
        let next = folder.join(name);
        let mut make = Command::new("sh");
        make.args(["-euc", OTHER_VERSION, "sh"]).args([package, &folder.join("next"), &next]);
        let made = make.args([version, &own.replace('.', "\\."), change]).status();
        assert!(made.await.unwrap().success());
        let package = json!({ "ironmesh_package_file": next, "ironmesh_version": version });
        let mut variables = self.backup_variables();
        variables.as_object_mut().unwrap().extend(package.as_object().unwrap().clone());
        variables.to_string()
    }

    /// The variables of a play with the folders of backups.
    pub(crate) fn backup_variables(&self) -> Value {
        json!({
            "ironmesh_backup_folder": self.backup(),
            "ironmesh_backup_key_folder": self.folder.path().join("backup-key"),
        })
    }

    /// The folder of the controller with the backups of states.
    pub(crate) fn backup(&self) -> PathBuf {
        self.folder.path().join("backup")
    }

    /// Removes a file of the inventory.
    pub(crate) fn remove(&self, path: &str) {
        fs::remove_file(self.inventory().join(path)).unwrap();
    }

    /// Replaces a file of the inventory.
    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.inventory().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The folder of the inventory.
    pub(crate) fn inventory(&self) -> PathBuf {
        self.folder.path().join("inventory")
    }

    /// Runs a play of the collection, and expects that it succeeds.
    pub(crate) async fn play(&self, name: &str, arguments: &[&str]) -> PlayReport {
        let report = self.try_play(name, arguments).await;
        assert_eq!(report.code, 0, "{name} {arguments:?}\n{}", report.text);
        report
    }

    /// Runs a playbook of the collection with the most output, and prints all that the run knows at its end.
    pub(crate) async fn play_and_dump(&self, name: &str) -> PlayReport {
        let playbook = playbook(name);
        let dump = self.folder.path().join("dump.yml");
        fs::write(&dump, DUMP.replace("PLAYBOOK", playbook.to_str().unwrap())).unwrap();
        let report = self.run_playbook(&dump, &["-vvv"]).await;
        assert_eq!(report.code, 0, "{}", report.text);
        assert!(report.text.contains("ansible_play_hosts_all"), "no dump: {}", report.text);
        report
    }

    /// Runs a playbook of the collection, or a file below `deploy-ansible`.
    pub(crate) async fn try_play(&self, name: &str, arguments: &[&str]) -> PlayReport {
        self.run_playbook(&playbook(name), arguments).await
    }

    async fn run_playbook(&self, play: &Path, arguments: &[&str]) -> PlayReport {
        let name = play.file_stem().unwrap().to_string_lossy();
        let mut command = self.command(self.programs.join("ansible-playbook"), self.folder.path());
        command.arg("--inventory").arg(self.inventory()).arg(play);
        command.arg("--extra-vars").arg(&self.variables).args(arguments);
        // Without the variables in JSON, which are long.
        let shown = arguments.iter().filter(|argument| !argument.starts_with('{'));
        let shown: Vec<_> = shown.copied().collect();
        report(&format!("{name} {}", shown.join(" ")), command).await
    }

    /// Runs a snippet of bash in a folder of this machine, and expects that it succeeds.
    pub(crate) async fn run(&self, folder: &Path, snippet: &str) -> PlayReport {
        let mut command = self.command("bash", folder);
        command.args(["-euc", snippet]);
        let report = report(snippet.lines().last().unwrap_or_default(), command).await;
        assert_eq!(report.code, 0, "{snippet}\n{}", report.text);
        report
    }

    /// A command that ends with the fleet, in its network, with access to the guests by SSH.
    fn command(&self, program: impl AsRef<OsStr>, folder: &Path) -> Command {
        let script = r#"echo $$ >"$1/cgroup.procs"; shift; exec "$@" 2>&1"#;
        let mut command = Command::new("sh");
        command.args(["-euc", script, "sh"]).arg(self.fleet.controller_cgroup());
        command.args(["ip", "netns", "exec"]).arg(self.fleet.lan()).arg(program);
        let own = self.folder.path();
        command.current_dir(folder).env("PWD", folder).env("ANSIBLE_HOME", own.join("home"));
        command.env("ANSIBLE_PRIVATE_KEY_FILE", own.join("key"));
        command.env("ANSIBLE_SSH_CONTROL_PATH_DIR", own.join("control"));
        command.env("ANSIBLE_HOST_KEY_CHECKING", "False").env("ANSIBLE_PIPELINING", "True");
        command.env("ANSIBLE_SSH_ARGS", "-C -o ControlMaster=auto -o ControlPersist=60s -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env("ANSIBLE_FORCE_COLOR", "False").env("ANSIBLE_NOCOWS", "1");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command
    }
}

/// Runs a command to its end, and prints its duration: the suite shows the time of each step.
async fn report(name: &str, mut command: Command) -> PlayReport {
    let begin = Instant::now();
    let output = timeout(LONGEST_PLAY, command.spawn().unwrap().wait_with_output()).await;
    let output = output.unwrap_or_else(|_| panic!("{name} does not end")).unwrap();
    eprintln!("step {name}: {:.1} s", begin.elapsed().as_secs_f32());
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    PlayReport { code: output.status.code().unwrap_or(-1), text }
}

impl PlayReport {
    /// The counts of each host, such as `changed`, in the recap.
    pub(crate) fn counts(&self, name: &str) -> BTreeMap<String, u32> {
        let Some((_, recap)) = self.text.rsplit_once("PLAY RECAP") else {
            panic!("no recap: {}", self.text)
        };
        let hosts = recap.lines().filter_map(|line| line.split_once(" : "));
        let count = |counts: &str| {
            let pairs = counts.split_whitespace().filter_map(|pair| pair.split_once('='));
            let mut values = pairs.filter(|(key, _)| *key == name);
            values.next().and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
        };
        hosts.map(|(host, counts)| (host.trim().to_owned(), count(counts))).collect()
    }

    /// Fails the test unless the play changed nothing.
    pub(crate) fn assert_unchanged(&self) {
        let changed = self.counts("changed");
        assert!(changed.values().all(|count| *count == 0), "{changed:?}\n{}", self.text);
    }

    /// Fails the test unless the play failed with these words.
    pub(crate) fn assert_failed(&self, words: &str) {
        let text = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(self.code != 0 && text.contains(words), "no {words:?}: {}", self.text);
    }
}

/// The path of a playbook of the collection, or of a file below `deploy-ansible`.
fn playbook(name: &str) -> PathBuf {
    let folder = if name.contains('/') { "" } else { "playbooks/" };
    repository().join(format!("deploy-ansible/{folder}{name}.yml"))
}

/// The root of this repository.
pub(super) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}
