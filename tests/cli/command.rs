//! Runs `ironmesh` to its end.

use std::path::Path;
use std::process::{Command, Output};

use ironmesh_tests::require_ironmesh;

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A folder of one test, and the program.
#[derive(Debug)]
pub(crate) struct Workspace {
    program: std::path::PathBuf,
    pub(crate) folder: tempfile::TempDir,
}

impl Workspace {
    /// Opens a workspace. `None` skips the test because the program is missing.
    pub(crate) fn open() -> Option<Self> {
        let folder = tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap();
        Some(Self { program: require_ironmesh()?, folder })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file below the folder.
    pub(crate) fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        fs_err::write(path, text).unwrap();
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(arguments)
            .current_dir(self.path())
            .env("XDG_STATE_HOME", self.path().join("home"))
            .env("XDG_CONFIG_HOME", self.path().join("config"));
        for variable in ["RUST_LOG", "IRONMESH_CONFIG", "IRONMESH_CONTEXT", "IRONMESH_SERVER"] {
            command.env_remove(variable);
        }
        command
    }

    /// Runs `ironmesh` with these arguments. It must end by itself.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        finish(&mut self.command(arguments))
    }

    /// Runs `ironmesh` as an unprivileged user. If root runs the tests, this gives the folder to
    /// `nobody`. `None` skips the test because that is impossible.
    pub(crate) fn run_unprivileged(&self, arguments: &[&str]) -> Option<Run> {
        if !rustix::process::geteuid().is_root() {
            return Some(self.run(arguments));
        }
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        if !succeeds(Command::new("setpriv").args(nobody).arg("true")) {
            eprintln!("SKIPPED: root bypasses permissions, and cannot become `nobody` by setpriv");
            return None;
        }
        // Other users may not reach the build folder.
        let program = self.path().join("ironmesh");
        fs_err::copy(&self.program, &program).unwrap();
        assert!(succeeds(Command::new("chown").arg("-R").arg("65534:65534").arg(self.path())));
        let command = self.command(arguments);
        let mut unprivileged = Command::new("setpriv");
        unprivileged.args(nobody).arg(program).args(arguments).current_dir(self.path());
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => unprivileged.env(name, value),
                None => unprivileged.env_remove(name),
            };
        }
        Some(finish(&mut unprivileged))
    }
}

/// Whether the command runs and succeeds, whatever it prints.
pub(crate) fn succeeds(command: &mut Command) -> bool {
    command.output().is_ok_and(|output| output.status.success())
}

pub(crate) fn finish(command: &mut Command) -> Run {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Run { code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
}
