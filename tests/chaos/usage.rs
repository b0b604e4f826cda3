//! The memory and file descriptors of processes.

use std::ops::Add;

/// What processes use.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// The resident memory in MiB.
    pub(crate) memory: u64,
    /// The open file descriptors.
    pub(crate) files: usize,
}

impl Usage {
    /// What a process uses now.
    pub(crate) fn of(process: u32) -> Self {
        let status = fs_err::read_to_string(format!("/proc/{process}/status")).unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kibibytes: u64 = resident.trim().trim_end_matches(" kB").parse().unwrap();
        let files = fs_err::read_dir(format!("/proc/{process}/fd")).unwrap().count();
        Self { memory: kibibytes >> 10, files }
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { memory: self.memory + other.memory, files: self.files + other.files }
    }
}
