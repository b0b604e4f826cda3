//! `examples/consul` prints what the guide shows.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use fs_err as fs;
use ironmesh_tests::eventually::patience;
use ironmesh_tests::programs::require_consul;
use ironmesh_tests::{Loopback, Programs};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;
use tokio::time::timeout;

/// The number of waits in the script, each of which may take the whole patience.
const WAITS: u32 = 13;

#[tokio::test]
async fn consul_example_prints_the_output_of_its_guide() {
    let (Some(programs), Some(consul)) = (Programs::find(), require_consul()) else { return };
    let loopback = Loopback::claim();
    let host = loopback.host(1).to_string();
    let network = host.strip_suffix(".1").unwrap();
    let printed = run(Command::new(checkout().join("examples/consul/run.sh")).envs([
        ("CONSUL_BIN", consul.display().to_string()),
        ("ENVOY_BIN", programs.envoy.display().to_string()),
        ("IRONMESH_BIN", programs.ironmesh.display().to_string()),
        ("NETWORK", network.to_owned()),
        ("PATIENCE", patience().as_secs().to_string()),
    ]))
    .await;
    let printed = printed.replace(network, "127.0.1");

    let all_well = printed.lines().filter(|line| line.trim() == "500 200");
    assert_eq!(all_well.count(), 2, "without Consul, and while it is not authoritative: {printed}");
    let caller = "12 books left, says stock-3 to spiffe://mesh.internal/ns/default/sa/shop";
    assert!(printed.contains(caller), "{printed}");

    let guide = fs::read_to_string(checkout().join("docs/guides/consul.md")).unwrap();
    let (_, guide) = guide.split_once("## The example\n").expect("the guide has that part");
    let guide = guide.split("\n## ").next().unwrap();
    assert_eq!(commands(guide), commands(&printed), "left: what docs/guides/consul.md shows");
}

/// The typed commands of a transcript.
fn commands(transcript: &str) -> Vec<&str> {
    transcript.lines().filter(|line| line.starts_with("$ ")).collect()
}

/// Runs a command to its end and returns its output.
async fn run(command: &mut Command) -> String {
    let script = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let script = script.process_group(0).spawn().unwrap();
    let _group = Group(Pid::from_raw(i32::try_from(script.id().unwrap()).unwrap()).unwrap());
    let output = timeout(patience() * WAITS, script.wait_with_output()).await;
    // The command must end.
    let output = output.unwrap().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    stdout
}

/// A process group, killed when this is dropped.
#[derive(Debug)]
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // The group is empty if the script has ended as it should.
        let _ = kill_process_group(self.0, Signal::KILL);
    }
}

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}
