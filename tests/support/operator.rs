//! An operator on a different machine, whose commands reach a mesh over the network.

use std::path::Path;
use std::process::Output;

use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::eventually::patience;
use crate::mesh::Mesh;

/// An operator with a certificate, and a folder of contexts in place of the mesh's settings.
#[derive(Debug)]
pub struct RemoteOperator {
    program: std::path::PathBuf,
    folder: TempDir,
}

impl RemoteOperator {
    /// Issues a certificate with a role, as the owner of the admin socket, and chooses it for all commands. The mesh has
    /// `listen.api`.
    pub async fn new(mesh: &Mesh, name: &str, role: &str) -> Self {
        let operator = Self {
            program: mesh.programs().ironmesh.clone(),
            folder: tempfile::tempdir().unwrap(),
        };
        let file = |end: &str| operator.folder.path().join(format!("{name}.{end}"));
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        let (key, csr, credential) = (text(&file("key")), text(&file("csr")), text(&file("json")));
        let folder = text(operator.folder.path());
        operator.succeed(&["operator", "request", name, "--out", &folder]).await;
        let issue =
            ["operator", "issue", name, "--role", role, "--csr", &csr, "--out", &credential];
        let issued = mesh.run(&issue).await;
        assert!(issued.status.success(), "{issued:?}");
        let add = ["context", "add", "remote", "--credential", &credential, "--key", &key];
        operator.succeed(&add).await;
        operator.succeed(&["context", "use", "remote"]).await;
        operator
    }

    /// Runs `ironmesh` with these arguments until it ends.
    pub async fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(&self.program);
        command.args(arguments).env("XDG_CONFIG_HOME", self.folder.path()).kill_on_drop(true);
        timeout(patience(), command.output())
            .await
            .unwrap_or_else(|_| panic!("`ironmesh {}` does not end", arguments.join(" ")))
            .unwrap()
    }

    /// Runs `ironmesh`, which must succeed, and returns what it prints.
    pub async fn succeed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}
