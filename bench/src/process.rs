//! CPU time and memory of processes, and the limit of open files.

use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The CPU time of a process, including its ended threads, in steps of 10 ms.
pub(crate) fn cpu(id: u32) -> anyhow::Result<Duration> {
    let stat = procfs::process::Process::new(i32::try_from(id)?)?.stat()?;
    let ticks = (stat.utime + stat.stime) * 1_000_000 / procfs::ticks_per_second();
    Ok(Duration::from_micros(ticks))
}

/// The CPU time of several processes together.
pub(crate) fn cpu_of(ids: &[u32]) -> anyhow::Result<Duration> {
    ids.iter().map(|id| cpu(*id)).sum()
}

/// The CPU time of a process since it was `before`.
pub(crate) fn cpu_since(id: u32, before: Duration) -> anyhow::Result<Duration> {
    Ok(cpu(id)?.saturating_sub(before))
}

/// The resident memory of a process, in bytes.
pub(crate) fn rss(id: u32) -> anyhow::Result<u64> {
    let status = procfs::process::Process::new(i32::try_from(id)?)?.status()?;
    Ok(status.vmrss.context("the process is ending")? * 1024)
}

/// Raises the limit of open files, so that this process and its children may each open this many connections.
pub fn allow_connections(connections: u64) -> anyhow::Result<()> {
    let needed = connections + 200;
    let limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if enough(limit.current) {
        return Ok(());
    }
    ensure!(
        enough(limit.maximum),
        "{needed} open files are needed and {} allowed: raise `ulimit -Hn`, or use fewer proxies",
        limit.maximum.unwrap_or_default()
    );
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

/// A description of the machine, as one line.
pub(crate) fn machine() -> String {
    let read = |path: &str| fs_err::read_to_string(path).unwrap_or_default();
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key)).unwrap_or_default().to_owned();
        line.split_once(':').map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
    };
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let kernel = read("/proc/sys/kernel/osrelease");
    let load = read("/proc/loadavg");
    format!(
        "{cores} cores of {}, {} of memory, Linux {}, load before {}",
        value(&read("/proc/cpuinfo"), "model name"),
        value(&read("/proc/meminfo"), "MemTotal"),
        kernel.trim(),
        load.split(' ').next().unwrap_or_default()
    )
}
