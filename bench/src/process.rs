//! What the kernel says of a process, and how many files we may open.

use std::time::Duration;

use anyhow::{Context, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// The CPU time of a process, of all its threads, those that have ended included. In steps of 10 ms.
pub(crate) fn cpu(id: u32) -> anyhow::Result<Duration> {
    let stat = procfs::process::Process::new(i32::try_from(id)?)?.stat()?;
    let ticks = (stat.utime + stat.stime) * 1_000_000 / procfs::ticks_per_second();
    Ok(Duration::from_micros(ticks))
}

/// The same since it was `before`.
pub(crate) fn cpu_since(id: u32, before: Duration) -> anyhow::Result<Duration> {
    Ok(cpu(id)?.saturating_sub(before))
}

/// The memory of a process that is in RAM, in bytes.
pub(crate) fn rss(id: u32) -> anyhow::Result<u64> {
    let status = procfs::process::Process::new(i32::try_from(id)?)?.status()?;
    Ok(status.vmrss.context("the process is ending")? * 1024)
}

/// Sees to it that this process, and those that it starts, may open so many connections each.
pub fn allow_connections(connections: u64) -> anyhow::Result<()> {
    let needed = connections + 200;
    let limit = getrlimit(Resource::Nofile);
    let enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if enough(limit.current) {
        return Ok(());
    }
    ensure!(
        enough(limit.maximum),
        "{needed} open files are needed and {} allowed: raise `ulimit -Hn`, or ask for fewer proxies",
        limit.maximum.unwrap_or_default()
    );
    let raised = Rlimit { current: Some(needed), maximum: limit.maximum };
    setrlimit(Resource::Nofile, raised).context("cannot raise the limit of open files")
}

/// The machine, in a line.
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
