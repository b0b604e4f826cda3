//! The folder of one test, which all processes of a demo name, so that leftovers are visible.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use fs_err as fs;
use ironmesh_tests::eventually::patience;
use ironmesh_tests::process::Child;
use ironmesh_tests::programs::require_envoy;
use ironmesh_tests::{eventually, require_ironmesh};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::timeout;

use crate::live::Demo;

/// Serializes the tests.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

/// The folder in which a test runs its demos.
#[derive(Debug)]
pub(crate) struct Workspace {
    ironmesh: PathBuf,
    /// The value of ENVOY_BIN for demos.
    pub(crate) envoy: PathBuf,
    folder: TempDir,
    _turn: MutexGuard<'static, ()>,
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A process of a demo of this workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DemoProcess {
    pub(crate) id: i32,
    pub(crate) command: String,
}

impl Workspace {
    /// Opens a workspace with a real Envoy. `None` skips the test because a program is missing.
    pub(crate) async fn open() -> Option<Self> {
        let envoy = require_envoy()?;
        let mut workspace = Self::without_envoy().await?;
        workspace.envoy = envoy;
        Some(workspace)
    }

    /// Opens a workspace in which `envoy` is missing.
    pub(crate) async fn without_envoy() -> Option<Self> {
        let ironmesh = require_ironmesh()?;
        let turn = ONE_AT_A_TIME.lock().await;
        let folder = tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap();
        fs::create_dir(folder.path().join(TEMPORARY)).unwrap();
        Some(Self { ironmesh, envoy: folder.path().join("envoy"), folder, _turn: turn })
    }

    /// The demos' folder for temporary files.
    pub(crate) fn temporary(&self) -> PathBuf {
        self.path().join(TEMPORARY)
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// `ironmesh` with these arguments.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_through(&[], arguments)
    }

    /// The same, executed by another program.
    pub(crate) fn command_through(&self, program: &[&str], arguments: &[&str]) -> Command {
        let ironmesh = self.ironmesh.to_str().unwrap();
        let words: Vec<&str> = [program, &[ironmesh], arguments].concat();
        let (first, rest) = words.split_first().unwrap();
        let mut command = Command::new(first);
        command.args(rest).env("TMPDIR", self.temporary()).env("ENVOY_BIN", &self.envoy);
        for name in ["RUST_LOG", "IRONMESH_CONFIG", "NO_COLOR"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null()).kill_on_drop(true);
        command
    }

    /// Starts `ironmesh demo` with these arguments.
    pub(crate) fn start(&self, arguments: &[&str]) -> Demo {
        self.start_through(&[], arguments)
    }

    /// The same, executed by another program.
    pub(crate) fn start_through(&self, program: &[&str], arguments: &[&str]) -> Demo {
        let arguments = [&["demo"], arguments].concat();
        let logs = fs::read_dir(self.path()).unwrap().count();
        let log = self.path().join(format!("demo-{logs}.log"));
        let mut command = self.command_through(program, &arguments);
        Demo::new(Child::start("ironmesh demo", &mut command, &log), log)
    }

    /// All processes that name the temporary folder in their command line or initial environment: a
    /// demo and its children.
    pub(crate) fn processes(&self) -> Vec<DemoProcess> {
        let needle = self.temporary().into_os_string().into_encoded_bytes();
        let names = |text: &[u8]| text.windows(needle.len()).any(|part| part == needle);
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let Ok(id) = entry.file_name().to_string_lossy().parse() else { continue };
            // Ended processes, and those of other users, cannot be read.
            let read = |name| fs::read(entry.path().join(name)).unwrap_or_default();
            let command = read("cmdline");
            if names(&command) || names(&read("environ")) {
                let command = String::from_utf8_lossy(&command).replace('\0', " ");
                found.push(DemoProcess { id, command });
            }
        }
        found
    }

    /// The only process with these words in its command line; otherwise the list of processes.
    pub(crate) fn process(&self, words: &[&str]) -> Result<DemoProcess, String> {
        let mut all = self.processes();
        all.retain(|trace| words.iter().all(|word| trace.command.contains(word)));
        match <[DemoProcess; 1]>::try_from(all) {
            Ok([trace]) => Ok(trace),
            Err(all) => Err(format!("{} with {words:?}: {all:?}", all.len())),
        }
    }

    /// Fails the test if anything of a demo is left.
    pub(crate) fn assert_nothing_left(&self) {
        self.look().unwrap_or_else(|left| panic!("something is left: {left}"));
    }

    /// Waits until nothing is left, where other processes clean up.
    pub(crate) async fn wait_until_nothing_left(&self) {
        eventually("nothing to be left", async || self.look()).await;
    }

    fn look(&self) -> Result<(), String> {
        let mut left = String::new();
        for DemoProcess { id, command } in self.processes() {
            writeln!(left, "process {id}: {command}").unwrap();
        }
        // The folder may be missing: some tests remove it.
        for entry in fs::read_dir(self.temporary()).into_iter().flatten() {
            writeln!(left, "{}", entry.unwrap().path().display()).unwrap();
        }
        if left.is_empty() { Ok(()) } else { Err(left) }
    }
}

impl Drop for Workspace {
    /// Leftovers of a faulty demo must not outlive their test.
    fn drop(&mut self) {
        for DemoProcess { id, .. } in self.processes() {
            let _ = kill_process(Pid::from_raw(id).unwrap(), Signal::KILL);
        }
    }
}

/// Runs a command to its end, which must come by itself.
pub(crate) async fn finish(command: &mut Command) -> Run {
    let ended = timeout(patience(), command.output()).await;
    let Output { status, stdout, stderr } = ended.expect("it does not end").unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let code = status.code().unwrap_or_else(|| panic!("{status}"));
    Run { code, stdout: text(stdout), stderr: text(stderr) }
}

/// A name that shells must quote.
const TEMPORARY: &str = "it's temporary";
