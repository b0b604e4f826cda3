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
    /// The restarts of all control planes, one after the other, with the version of this checkout.
    Upgrade,
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

    /// The restarts of an upgrade: each control plane serves again for a while before the next one stops.
    pub(crate) fn restarts(&self) -> Vec<Self> {
        let restart = |number: u8| Self {
            at: self.at + self.lasts * u32::from(number) / 3,
            lasts: self.lasts / 6,
            fault: Fault::Restart(Process::ControlPlane(number)),
        };
        if self.fault == Fault::Upgrade { (0..3).map(restart).collect() } else { Vec::new() }
    }
}

/// Makes a schedule of this length. It begins with one fault of each kind, in any order, as far as it reaches. Up to two
/// faults overlap, of which only one is about a process.
pub(crate) fn schedule(seed: u64, length: Duration) -> Vec<Step> {
    let mut random = SeededRandom::new(seed);
    let mut steps: Vec<Step> = Vec::new();
    let mut at = Duration::from_secs(1);
    let mut first: Vec<usize> = (0..KINDS).collect();
    for place in (1..KINDS).rev() {
        first.swap(place, random.below(place + 1));
    }
    while at < length {
        let active: Vec<_> = steps.iter().filter(|before| before.end() > at).collect();
        let is_possible = |kind: usize| {
            active.len() < 2 && active.iter().all(|before| before.fault.group() != group(kind))
        };
        let kind = match first.iter().position(|kind| is_possible(*kind)) {
            Some(place) => Some(first.remove(place)),
            None if first.is_empty() => Some(random.below(KINDS)).filter(|kind| is_possible(*kind)),
            None => None,
        };
        if let Some(kind) = kind {
            let (fault, lasts) = fault(kind, &mut random);
            steps.push(Step { at, lasts: lasts.min(length.saturating_sub(at)), fault });
        }
        at += random.millis(500..4_000);
    }
    steps
}

/// The number of kinds of faults.
const KINDS: usize = 12;

/// How long an upgrade takes.
const UPGRADE: Duration = Duration::from_secs(15);

/// A fault of a kind, and how long it lasts.
fn fault(kind: usize, random: &mut SeededRandom) -> (Fault, Duration) {
    let machine = u8::try_from(random.below(3)).unwrap();
    let (site, other) = (Site::Machine(machine), Site::Machine((machine + 1) % 3));
    let either = |random: &mut SeededRandom| match random.below(2) {
        0 => Process::ControlPlane(machine),
        _ => Process::Etcd(machine),
    };
    let short = random.millis(1_000..9_000);
    match kind {
        0 => (Fault::Kill(Process::ControlPlane(machine)), short),
        1 => (Fault::Kill(Process::Etcd(machine)), short),
        2 => (Fault::Restart(Process::ControlPlane(machine)), Duration::from_secs(1)),
        3 => (Fault::SlowDisk(either(random)), short),
        4 => (Fault::Cut(site, other), short),
        5 => (Fault::Cut(site, Site::Proxies), short),
        6 => match random.below(2) {
            0 => (Fault::CutOneWay(site, other), short),
            _ => (Fault::CutOneWay(Site::Proxies, site), short),
        },
        // Longer than the lease of a control plane.
        7 => (Fault::Isolate(machine), random.millis(16_000..26_000)),
        8 => {
            let to_etcd = random.millis(0..100);
            let from_etcd = Duration::from_millis(100) - to_etcd;
            (Fault::Delay { machine, to_etcd, from_etcd }, short)
        }
        9 => (Fault::Skew(i64::try_from(random.below(240)).unwrap() - 120), short),
        10 => (Fault::Upgrade, UPGRADE),
        // Longer than any lease.
        _ => match random.below(3) {
            0 => (Fault::Freeze(Process::Etcd(machine)), short),
            _ => (Fault::Freeze(Process::ControlPlane(machine)), Duration::from_secs(30)),
        },
    }
}

/// Faults of one group cannot overlap: what ends one of them would end a part of the other.
fn group(kind: usize) -> u8 {
    match kind {
        0..=3 | 10.. => 0,
        4..=7 => 1,
        8 => 2,
        9 => 3,
    }
}

impl Fault {
    fn group(self) -> u8 {
        match self {
            Self::Kill(_)
            | Self::Freeze(_)
            | Self::Restart(_)
            | Self::Upgrade
            | Self::SlowDisk(_) => 0,
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
        let length = Duration::from_secs(120);
        for seed in 0..200 {
            let steps = schedule(seed, length);
            assert_eq!(steps, schedule(seed, length));
            assert!(steps.iter().all(|step| step.end() <= length), "{steps:#?}");
            let has = |is_kind: fn(&Fault) -> bool| steps.iter().any(|step| is_kind(&step.fault));
            assert!(has(|fault| matches!(fault, Fault::Kill(Process::ControlPlane(_)))));
            assert!(has(|fault| matches!(fault, Fault::Kill(Process::Etcd(_)))));
            assert!(has(|fault| matches!(fault, Fault::Restart(_))));
            assert!(has(|fault| matches!(fault, Fault::Freeze(_))));
            assert!(has(|fault| matches!(fault, Fault::Upgrade)));
            assert!(has(|fault| matches!(fault, Fault::SlowDisk(_))));
            assert!(has(|fault| matches!(fault, Fault::Isolate(_))));
            assert!(has(|fault| matches!(fault, Fault::CutOneWay(..))));
            assert!(has(|fault| matches!(fault, Fault::Delay { .. } | Fault::Skew(_))));
            for (index, step) in steps.iter().enumerate() {
                let others = steps[..index].iter().filter(|before| before.end() > step.at);
                assert!(others.clone().count() < 2);
                assert!(others.clone().all(|before| before.fault.group() != step.fault.group()));
            }
        }
        assert_ne!(schedule(1, length), schedule(2, length));
    }
}
