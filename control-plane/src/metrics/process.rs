//! The metrics of this process, with the names that client libraries of Prometheus use. It reads `/proc` and nothing else.

use std::fmt::Error;
use std::path::Path;
use std::sync::OnceLock;

use fs_err as fs;
use rustix::process::{Resource, getrlimit};

use super::families::Families;

/// The time units of `/proc/self/stat` per second: a hundredth of a second on each architecture but two historic ones.
const TICKS: f64 = 100.0;

/// What `/proc` shows of a process.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ProcessState {
    cpu_seconds: f64,
    threads: u64,
    /// The start of the process, in ticks since the boot of the machine.
    start_ticks: f64,
    resident_bytes: u64,
}

/// The start of this process as seconds since 1970. It is read once: the kernel computes the time of the boot from the wall
/// clock each time, and the result varies by a second.
static START: OnceLock<f64> = OnceLock::new();

/// Leaves a family out that `/proc` does not show.
pub(super) fn encode(families: &mut Families<'_>) -> Result<(), Error> {
    let read = |name: &str| fs::read_to_string(Path::new("/proc").join(name)).unwrap_or_default();
    if let Some(state) = parse(&read("self/stat"), &read("self/status")) {
        let help = "CPU time that the process has used, in user and in kernel mode";
        families.counter_of_seconds("process_cpu_seconds", help, state.cpu_seconds)?;
        let help = "Memory of the process that is resident";
        families.gauge("process_resident_memory_bytes", help, state.resident_bytes)?;
        families.gauge("process_threads", "Threads of the process", state.threads)?;
        let boot = || boot_time(&read("stat"));
        let start = START.get().copied().or_else(|| {
            let start = boot()? + state.start_ticks / TICKS;
            Some(*START.get_or_init(|| start))
        });
        if let Some(start) = start {
            let help = "Start of the process, in seconds since 1970";
            families.gauge("process_start_time_seconds", help, start)?;
        }
    }
    if let Some(open) = open_files() {
        families.gauge("process_open_fds", "Open file descriptors of the process", open)?;
    }
    if let Some(most) = getrlimit(Resource::Nofile).current {
        let help = "Limit of open file descriptors of the process";
        families.gauge("process_max_fds", help, most)?;
    }
    Ok(())
}

/// Reads the state from `/proc/self/stat` and `/proc/self/status`.
fn parse(stat: &str, status: &str) -> Option<ProcessState> {
    // The name of the program, in parentheses, may have any characters. The state follows, which is field 3.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
    let field = |number: usize| -> Option<f64> { fields.get(number - 3)?.parse().ok() };
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = resident.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(ProcessState {
        cpu_seconds: (field(14)? + field(15)?) / TICKS,
        threads: fields.get(20 - 3)?.parse().ok()?,
        start_ticks: field(22)?,
        resident_bytes: kilobytes * 1024,
    })
}

/// The time of the boot in `/proc/stat`, in seconds since 1970.
fn boot_time(stat: &str) -> Option<f64> {
    stat.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()
}

/// The number of open file descriptors. Linux 6.2 and later shows it as the size of the folder; else it is the number of its
/// entries, without the one that reads them.
fn open_files() -> Option<u64> {
    let folder = Path::new("/proc/self/fd");
    match fs::metadata(folder).ok()?.len() {
        0 => u64::try_from(fs::read_dir(folder).ok()?.count()).ok()?.checked_sub(1),
        count => Some(count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_program_with_any_name_is_parsed() {
        let stat = "42 (a) R (b c) S 1 42 42 0 -1 4194560 1021 0 4 0 250 150 0 0 20 0 17 0 12345 1024 300 0\n";
        let status = "Name:\ta) R (b c\nVmSize:\t   99 kB\nVmRSS:\t   2048 kB\nThreads:\t17\n";
        let state = ProcessState {
            cpu_seconds: 4.0,
            threads: 17,
            start_ticks: 12345.0,
            resident_bytes: 2 * 1024 * 1024,
        };
        assert_eq!(parse(stat, status), Some(state));
        assert_eq!(parse("42 (a) S 1", status), None);
        assert_eq!(parse(stat, ""), None);
        assert_eq!(boot_time("cpu 1 2\nbtime 1700000000\nprocesses 3\n"), Some(1_700_000_000.0));
        assert_eq!(boot_time(""), None);
    }

    #[test]
    fn open_file_is_counted_until_it_is_closed() {
        // (Other tests of this process open and close files, too.)
        let files: Vec<_> = (0..500).map(|_| fs::File::open("/proc/self/stat").unwrap()).collect();
        assert!(open_files().unwrap() >= 500);
        drop(files);
    }
}
