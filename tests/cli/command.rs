//! Runs `ironmesh` to its end.

use std::path::Path;
use std::process::{Command, Output};

use ironmesh_tests::require_ironmesh;

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A folder for one test, and the program.
#[derive(Debug)]
pub(crate) struct Place {
    program: std::path::PathBuf,
    pub(crate) folder: tempfile::TempDir,
}

impl Place {
    /// `None` where the program is missing and the test is to be skipped.
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
            .env("XDG_STATE_HOME", self.path().join("home"));
        command.env_remove("RUST_LOG").env_remove("IRONMESH_CONFIG");
        command
    }

    /// Runs `ironmesh` with these arguments. It must end by itself.
    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        let Output { status, stdout, stderr } = self.command(arguments).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Run { code: status.code().unwrap(), stdout: text(stdout), stderr: text(stderr) }
    }
}
