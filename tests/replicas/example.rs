//! `examples/replicas` runs to its end, and no call fails.

use std::path::Path;

use ironmesh_tests::eventually::patience;
use ironmesh_tests::{Loopback, Programs, require_etcd};
use tokio::process::Command;
use tokio::time::timeout;

/// The number of waits in the script, each of which may take the whole patience.
const WAITS: u32 = 12;

#[tokio::test]
async fn replicas_example_runs_without_a_failed_call() {
    let (Some(programs), Some(etcd)) = (Programs::find(), require_etcd()) else { return };
    let loopback = Loopback::claim();
    let host = loopback.host(1).to_string();
    let network = host.strip_suffix(".1").unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/replicas/run.sh");
    let run = Command::new(script)
        .envs([
            ("ETCD_BIN", etcd.display().to_string()),
            ("ENVOY_BIN", programs.envoy.display().to_string()),
            ("IRONMESH_BIN", programs.ironmesh.display().to_string()),
            ("NETWORK", network.to_owned()),
            ("PATIENCE", patience().as_secs().to_string()),
        ])
        .kill_on_drop(true)
        .output();
    let output = timeout(patience() * WAITS, run).await.unwrap().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{errors}");
    let all_well = printed.lines().filter(|line| line.trim() == "500 200");
    assert_eq!(
        all_well.count(),
        3,
        "without a control plane, without etcd, and afterwards: {printed}"
    );
}
