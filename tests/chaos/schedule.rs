//! Which fault happens when: a seed decides all of it.

use std::time::Duration;

use ironmesh_tests::random::SeededRandom;

use crate::network::Site;

/// A fault, which lasts for some time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// SIGKILL, and a new process when the fault ends.
    Kill(Process),
    /// SIGSTOP, and SIGCONT when the fault ends.
    Freeze(Process),
    /// SIGTERM, and a new process when the fault ends.
    Restart(Process),
    /// Each write to the disk that must be durable takes 200 ms more.
    SlowDisk(Process),
    /// No packet passes between two sites.
    Cut(Site, Site),
    /// No packet passes from the first site to the second one.
    CutOneWay(Site, Site),
    /// No packet passes between a machine and any site.
    Isolate(u8),
    /// Bytes between a control plane and etcd are late, by a different time in each direction.
    Delay { machine: u8, to_etcd: Duration, from_etcd: Duration },
    /// The wall clock of the last control plane is wrong by so many seconds.
    Skew(i64),
}

/// A process that a fault is about. Each machine has one of each kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Process {
    ControlPlane(u8),
    Etcd(u8),
}

/// A fault with its time from the begin of the schedule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
}

impl Step {
    fn end(&self) -> Duration {
        self.at + self.lasts
    }
}

/// Makes a schedule of this length. Up to two faults overlap, of which only one is about a process.
pub(crate) fn schedule(seed: u64, length: Duration) -> Vec<Step> {
    let mut random = SeededRandom::new(seed);
    let mut steps: Vec<Step> = Vec::new();
    let mut at = Duration::from_secs(1);
    // One leader of etcd or of a singleton may be among those that are stopped for half a minute.
    let long = random.below(3);
    while at < length {
        let is_first = steps.is_empty();
        let (fault, lasts) = if is_first {
            let machine = u8::try_from(long).unwrap();
            (Fault::Freeze(Process::ControlPlane(machine)), LONG)
        } else {
            (fault(&mut random), random.millis(1_000..9_000))
        };
        let lasts = lasts.min(length.saturating_sub(at));
        let step = Step { at, lasts, fault };
        let active: Vec<_> = steps.iter().filter(|before| before.end() > at).collect();
        let overlaps = |before: &&&Step| before.fault.is_like(fault);
        if active.len() < 2 && !active.iter().any(|before| overlaps(&before)) {
            steps.push(step);
        }
        at += random.millis(1_000..6_000);
    }
    steps
}

/// The time for which one control plane is stopped: longer than any lease.
const LONG: Duration = Duration::from_secs(30);

fn fault(random: &mut SeededRandom) -> Fault {
    let machine = u8::try_from(random.below(3)).unwrap();
    let other = Site::Machine((machine + 1) % 3);
    let process =
        if random.once_in(2) { Process::ControlPlane(machine) } else { Process::Etcd(machine) };
    match random.below(11) {
        0 | 1 => Fault::Kill(process),
        2 => Fault::Freeze(process),
        3 => Fault::Restart(process),
        4 => Fault::SlowDisk(process),
        5 => Fault::Cut(Site::Machine(machine), other),
        6 => Fault::Cut(Site::Machine(machine), Site::Proxies),
        7 if random.once_in(2) => Fault::CutOneWay(Site::Machine(machine), other),
        7 => Fault::CutOneWay(Site::Proxies, Site::Machine(machine)),
        8 => Fault::Isolate(machine),
        9 => {
            let to_etcd = random.millis(0..100);
            Fault::Delay { machine, to_etcd, from_etcd: Duration::from_millis(100) - to_etcd }
        }
        _ => Fault::Skew(i64::try_from(random.below(240)).unwrap() - 120),
    }
}

impl Fault {
    /// Whether two faults cannot overlap: what ends one of them would end a part of the other.
    fn is_like(self, other: Self) -> bool {
        self.kind() == other.kind()
    }

    fn kind(self) -> u8 {
        match self {
            Self::Kill(_) | Self::Freeze(_) | Self::Restart(_) | Self::SlowDisk(_) => 0,
            Self::Cut(..) | Self::CutOneWay(..) | Self::Isolate(_) => 1,
            Self::Delay { .. } => 2,
            Self::Skew(_) => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedule_depends_on_its_seed_alone_and_ends_in_time() {
        let length = Duration::from_secs(150);
        for seed in 0..200 {
            let steps = schedule(seed, length);
            assert_eq!(steps, schedule(seed, length));
            assert!(steps.iter().all(|step| step.end() <= length), "{steps:#?}");
            assert!(steps.len() > 20, "{}", steps.len());
            for (index, step) in steps.iter().enumerate() {
                let others = steps[..index].iter().filter(|before| before.end() > step.at);
                assert!(others.clone().count() < 2);
                assert!(others.clone().all(|before| !before.fault.is_like(step.fault)));
            }
        }
        assert_ne!(schedule(1, length), schedule(2, length));
    }
}
