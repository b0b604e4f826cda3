//! The agent of an enrolled machine while nothing happens: its memory, CPU time and wakeups.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use ironmesh_enrollment::CaHash;
use procfs::process::Process;
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use crate::process::{cpu, rss};
use crate::report::Row;

/// The goals of an idle agent.
const MEMORY_MIB: f64 = 15.0;
const CPU_PERCENT: f64 = 0.1;
const WAKEUPS_PER_SECOND: f64 = 1.0;

/// How long the agent is measured, after it has become idle.
const IDLE: Duration = Duration::from_secs(30);
const SETTLED: Duration = Duration::from_secs(3);
const JOIN_DEADLINE: Duration = Duration::from_secs(20);

/// Runs the agent `program` for a new machine with this token.
pub(super) async fn measure(
    program: &Path,
    enrollment: &str,
    ca_hash: CaHash,
    token: &str,
    address: std::net::IpAddr,
) -> anyhow::Result<Vec<Row>> {
    let machine = tempfile::Builder::new().prefix("ironmesh-bench-agent-").tempdir()?;
    let path = machine.path();
    let settings = format!(
        "control_plane = [\"https://{enrollment}\"]\nca_hash = [\"{ca_hash}\"]\ntoken_file = \"token\"\n\
         folder = \"proxy\"\naddress = \"{address}\"\n"
    );
    fs_err::write(path.join("agent.toml"), settings)?;
    fs_err::write(path.join("token"), token)?;
    let agent = Command::new(program)
        .args(["agent", "run", "--config"])
        .arg(path.join("agent.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let id = agent.id().context("the agent has ended")?;
    let deadline = Instant::now() + JOIN_DEADLINE;
    while !path.join("proxy").exists() {
        ensure!(Instant::now() < deadline, "the agent has not enrolled its machine");
        sleep(Duration::from_millis(50)).await;
    }
    sleep(SETTLED).await;
    let (cpu_before, wakeups_before) = (cpu(id)?, wakeups(id)?);
    sleep(IDLE).await;
    let seconds = IDLE.as_secs_f64();
    let used = cpu(id)?.saturating_sub(cpu_before).as_secs_f64();
    let woken = wakeups(id)?.saturating_sub(wakeups_before);
    let memory = f64::from(u32::try_from(rss(id)? / 1024)?) / 1024.0;
    let woken = f64::from(u32::try_from(woken)?) / seconds;
    Ok(vec![
        Row::new("an idle agent: resident memory", "MiB", memory).itself_at_most(MEMORY_MIB),
        Row::new("an idle agent: CPU, of one core", "%", used / seconds * 100.0)
            .itself_at_most(CPU_PERCENT),
        Row::new("an idle agent: wakeups per second", "", woken).itself_at_most(WAKEUPS_PER_SECOND),
    ])
}

/// How often all threads of a process have waited and gone on.
fn wakeups(id: u32) -> anyhow::Result<u64> {
    let mut sum = 0;
    for task in Process::new(i32::try_from(id)?)?.tasks()? {
        sum += task?.status()?.voluntary_ctxt_switches.unwrap_or_default();
    }
    Ok(sum)
}
