//! How faults begin and end.

use std::path::Path;

use ironmesh_tests::process::Child;
use rustix::process::Signal;
use tokio::process::Command;
use tokio::time::{Instant, sleep_until};

use crate::machines::{Machines, SKEWED};
use crate::network::{SITES, Site};
use crate::schedule::{Fault, Process, Step};

/// The faults of a schedule, and what is needed to end them.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    slow_disk: Option<Child>,
    /// The control plane that was sent SIGTERM.
    stopping: Option<u8>,
}

impl Faults {
    /// Follows a schedule. Returns the time at which the last fault ended.
    pub(crate) async fn run(mut self, machines: &mut Machines, steps: &[Step]) -> Instant {
        let begin = Instant::now();
        let restarts: Vec<_> = steps.iter().flat_map(Step::restarts).collect();
        let steps = || steps.iter().chain(&restarts);
        let starts = steps().map(|step| (step.at, true, step));
        let ends = steps().map(|step| (step.at + step.lasts, false, step));
        let mut events: Vec<_> = starts.chain(ends).collect();
        events.sort_by_key(|(at, is_begin, _)| (*at, *is_begin));
        for (at, is_begin, step) in events {
            sleep_until(begin + at).await;
            if is_begin {
                eprintln!("{:6.1} s  {:?} for {:?}", at.as_secs_f64(), step.fault, step.lasts);
                self.begin(machines, step.fault).await;
            } else {
                self.end(machines, step.fault).await;
            }
        }
        Instant::now()
    }

    async fn begin(&mut self, machines: &mut Machines, fault: Fault) {
        for (mesh, number) in machines.control_planes.iter_mut().zip(0..) {
            if self.stopping != Some(number) {
                mesh.assert_running();
            }
        }
        match fault {
            Fault::Kill(Process::ControlPlane(number)) => {
                machines.control_planes[usize::from(number)].kill_control_plane().await;
            }
            Fault::Kill(Process::Etcd(number)) => machines.etcd.kill(number).await,
            Fault::Freeze(process) => signal(machines, process, Signal::STOP),
            Fault::Restart(process) => {
                if let Process::ControlPlane(number) = process {
                    self.stopping = Some(number);
                    // The start before may be a moment ago.
                    machines.control_planes[usize::from(number)].handles_signals().await;
                }
                signal(machines, process, Signal::TERM);
            }
            Fault::Upgrade => {
                for mesh in &mut machines.control_planes {
                    mesh.serve_by(None);
                }
            }
            Fault::SlowDisk(process) => {
                let id = match process {
                    Process::ControlPlane(number) => {
                        machines.control_planes[usize::from(number)].id()
                    }
                    Process::Etcd(number) => machines.etcd.id(number),
                };
                let folder = machines.control_planes[0].folder();
                self.slow_disk = Some(slow_disk(id.expect("it runs"), folder));
            }
            Fault::Cut(one, other) => machines.network.cut(&[(one, other), (other, one)]),
            Fault::CutOneWay(from, to) => machines.network.cut(&[(from, to)]),
            Fault::Isolate(number) => {
                let machine = Site::Machine(number);
                let others = SITES.into_iter().filter(|site| *site != machine);
                let cuts: Vec<_> =
                    others.flat_map(|other| [(machine, other), (other, machine)]).collect();
                machines.network.cut(&cuts);
            }
            Fault::Delay { machine, to_etcd, from_etcd } => {
                machines.relays[usize::from(machine)].set_delays(to_etcd, from_etcd);
            }
            Fault::Skew(seconds) => machines.control_planes[SKEWED].set_clock(seconds),
        }
    }

    async fn end(&mut self, machines: &mut Machines, fault: Fault) {
        match fault {
            Fault::Kill(process) => launch(machines, process),
            Fault::Freeze(process) => signal(machines, process, Signal::CONT),
            Fault::Restart(process) => {
                self.stopping = None;
                match process {
                    Process::ControlPlane(number) => {
                        machines.control_planes[usize::from(number)].ended().await;
                    }
                    Process::Etcd(number) => machines.etcd.kill(number).await,
                }
                launch(machines, process);
            }
            // The restarts end by themselves.
            Fault::Upgrade => {}
            Fault::SlowDisk(_) => {
                if let Some(mut strace) = self.slow_disk.take() {
                    strace.assert_running();
                    strace.terminate().await;
                }
            }
            Fault::Cut(..) | Fault::CutOneWay(..) | Fault::Isolate(_) => machines.network.cut(&[]),
            Fault::Delay { machine, .. } => {
                let [to_etcd, from_etcd] = Machines::distance_to_etcd(machine);
                machines.relays[usize::from(machine)].set_delays(to_etcd, from_etcd);
            }
            Fault::Skew(_) => machines.control_planes[SKEWED].set_clock(0),
        }
    }
}

fn signal(machines: &Machines, process: Process, signal: Signal) {
    match process {
        Process::ControlPlane(number) => {
            machines.control_planes[usize::from(number)].signal_control_plane(signal);
        }
        Process::Etcd(number) => machines.etcd.signal(number, signal),
    }
}

fn launch(machines: &mut Machines, process: Process) {
    match process {
        Process::ControlPlane(number) => {
            machines.control_planes[usize::from(number)].launch_control_plane(&[]);
        }
        Process::Etcd(number) => machines.etcd.start_member(number),
    }
}

/// Delays each durable write of a process, until SIGTERM.
fn slow_disk(process: u32, folder: &Path) -> Child {
    let mut command = Command::new("strace");
    command.args([
        "--follow-forks",
        "--quiet=all",
        "--trace=fsync,fdatasync",
        "--output=/dev/null",
    ]);
    command.args(["--inject=fsync,fdatasync:delay_exit=200000", "--attach", &process.to_string()]);
    Child::start("strace", &mut command, &folder.join("strace.log"))
}
