//! docs/guides/enroll-a-machine.md, word by word: each block of its steps runs as it is printed.

use std::path::Path;
use std::process::Output;

use fs_err as fs;
use fs_err::os::unix::fs::symlink;
use ironmesh_tests::guide::{GuideBlock, guide_blocks, variables_and_steps};
use ironmesh_tests::{Mesh, Programs, eventually};
use tokio::process::Command;

const POLICY: &str = r#"
[[service]]
name = "bookstore"
namespace = "shop"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
"#;

/// The guide, in docs/guides.
const GUIDE: &str = "enroll-a-machine";

/// The number of the machine on the loopback of the test.
const MACHINE: u8 = 31;

/// The two hosts of the guide: folders of this machine.
struct Hosts<'a> {
    mesh: &'a Mesh,
    variables: Vec<(&'static str, String)>,
}

impl Hosts<'_> {
    /// Runs a block as the guide's reader does: with its variables, and `ironmesh` and `envoy` in the path.
    async fn run(&self, block: &GuideBlock) -> Output {
        let folder = self.mesh.folder();
        // What is copied is on the control-plane host before.
        let host = if block.place == "machine" { "machine" } else { "control-plane" };
        let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-ec", &block.text]).current_dir(folder.join(host));
        command.env("PATH", path).envs(self.variables.iter().cloned());
        if host == "control-plane" {
            command.env("IRONMESH_CONFIG", folder.join("ironmesh.toml"));
        }
        let log = fs::File::create(folder.join("block.log")).unwrap();
        // Envoy stays in the background, and would keep a pipe open.
        command.stdout(log.try_clone().unwrap().into_parts().0).stderr(log.into_parts().0);
        let status = command.status().await.unwrap();
        let stdout = fs::read(folder.join("block.log")).unwrap();
        let output = Output { status, stdout, stderr: Vec::new() };
        assert!(status.success(), "{}{}", block.text, String::from_utf8_lossy(&output.stdout));
        output
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn guide_enrolls_and_renews_a_machine() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    prepare(&mesh, &programs);
    let address = mesh.loopback().host(MACHINE).to_string();
    let variables = vec![
        ("CONTROL_PLANE", mesh.loopback().host(1).to_string()),
        ("ADDRESS", address.clone()),
        ("RANGE", "127.0.0.0/8".to_owned()),
        ("SERVICE", "shop/bookstore".to_owned()),
        ("TOKEN", "token".to_owned()),
        ("DIR", mesh.folder().join("machine/proxy").display().to_string()),
    ];
    let mut hosts = Hosts { mesh: &mesh, variables };
    let (defined, steps) = variables_and_steps(guide_blocks(GUIDE));
    let mut set: Vec<_> = hosts.variables.iter().map(|(name, _)| *name).collect();
    // The test learns this one from the output.
    set.push("CA_HASH");
    assert_eq!(defined, set);
    // Those of Azure are in tests/azure/guide.rs.
    let is_of_azure = |block: &GuideBlock| block.place.starts_with("azure-");
    let steps = steps.iter().filter(|block| block.place != "systemd" && !is_of_azure(block));
    let steps: Vec<_> = steps.collect();
    let places: Vec<_> = steps.iter().map(|block| &*block.place).collect();
    assert_eq!(places, ["control-plane", "copy", "machine", "machine", "control-plane", "machine"]);

    let created = hosts.run(steps[0]).await;
    let created = String::from_utf8(created.stdout).unwrap();
    let hash = created.split_once("--ca-hash ").unwrap().1.split_whitespace().next().unwrap();
    hosts.variables.push(("CA_HASH", hash.to_owned()));
    hosts.run(steps[1]).await;
    hosts.run(steps[2]).await;
    let envoy = RunningEnvoy(mesh.folder().join("envoy.pid"));
    hosts.run(steps[3]).await;
    eventually("the proxy to be synced", async || {
        let proxies = mesh.proxies().await;
        match proxies[0]["sync"]["state"].as_str() {
            Some("synced") => Ok(()),
            _ => Err(proxies),
        }
    })
    .await;
    let shown = String::from_utf8(hosts.run(steps[4]).await.stdout).unwrap();
    assert!(shown.contains("SYNCED") && shown.contains(&address), "{shown}");
    let renewed = String::from_utf8(hosts.run(steps[5]).await.stdout).unwrap();
    assert!(renewed.contains("not due before"), "{renewed}");
    drop(envoy);
    mesh.kill_control_plane().await;
}

/// The programs of both hosts, by the names that the guide uses.
fn prepare(mesh: &Mesh, programs: &Programs) {
    let folder = mesh.folder();
    for name in ["bin", "control-plane", "machine"] {
        fs::create_dir(folder.join(name)).unwrap();
    }
    symlink(&programs.ironmesh, folder.join("bin/ironmesh")).unwrap();
    let script = |name: &str, text: String| {
        let path = folder.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&path, mode).unwrap();
    };
    let (envoy, pid) = (programs.envoy.display(), folder.join("envoy.pid"));
    script("envoy", format!("echo $$ > {}\nexec {envoy} \"$@\"", pid.display()));
    // Both hosts are folders of this machine.
    script("scp", format!("cp \"$1\" {}/\"${{2#*:}}\"", folder.join("machine").display()));
}

/// The Envoy that a block has started. Dropping it ends the process.
struct RunningEnvoy(std::path::PathBuf);

impl Drop for RunningEnvoy {
    fn drop(&mut self) {
        let pid = fs::read_to_string(&self.0).ok().and_then(|pid| pid.trim().parse().ok());
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
    }
}

/// systemd accepts the units that the guide installs.
#[tokio::test]
async fn units_of_the_renewal_are_valid() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let blocks = guide_blocks(GUIDE);
    let systemd = blocks.iter().find(|block| block.place == "systemd").unwrap();
    let folder = tempfile::tempdir().unwrap();
    for unit in ["ironmesh-renew@.service", "ironmesh-renew@.timer"] {
        assert!(systemd.text.contains("ironmesh-renew@proxy.timer"), "{}", systemd.text);
        let text = fs::read_to_string(root.join("examples/renew").join(unit)).unwrap();
        // The program is not installed here.
        let text = text.replace("/usr/bin/ironmesh", "/bin/true");
        fs::write(folder.path().join(unit.replace('@', "@proxy")), text).unwrap();
    }
    let verify = Command::new("systemd-analyze")
        .arg("verify")
        .arg(folder.path().join("ironmesh-renew@proxy.timer"))
        .output()
        .await;
    let Ok(verify) = verify else {
        eprintln!("skipped: no systemd-analyze");
        return;
    };
    let problems = String::from_utf8_lossy(&verify.stderr);
    let problems: Vec<_> =
        problems.lines().filter(|line| line.contains("ironmesh-renew")).collect();
    assert!(problems.is_empty(), "{problems:#?}");
}
