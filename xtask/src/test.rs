//! `xtask test`: builds all test binaries, and runs them in parallel as far as the machine allows.
//!
//! It owns the order of the suites and their report. It does not know what a suite tests, or with which programs.
//!
//! `cargo test` runs the binaries in sequence, but most suites mostly wait for other processes: Envoys that start, leases
//! that expire. So a waiting suite runs beside others, with more threads than cores.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "the results are its output")]
#![expect(clippy::disallowed_methods, reason = "it measures real processes")]

mod binary;
mod events;

use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use binary::Binary;
use events::Outcome;

/// The suites with Envoys, the longest first, each with its number of threads. They run one at a time: an Envoy uses
/// several inotify instances, as does systemd, and Linux allows 128 per user (`fs.inotify.max_user_instances`).
const WITH_ENVOYS: [(&str, usize); 7] = [
    ("envoy", 5),
    ("azure", 5),
    ("consul", 4),
    ("demo", 3),
    ("replicas", 3),
    ("faults", 3),
    ("fleet", 2),
];

/// The other suites that mostly wait.
const WAITING: [(&str, usize); 4] = [("cli", 4), ("etcd", 4), ("it", 3), ("chaos", 2)];

/// The number of slowest tests in the report.
const SLOWEST: usize = 10;

/// Runs all tests, or those whose names contain one of `filters`. Fails if a test fails.
pub(crate) fn run(filters: &[String]) -> anyhow::Result<()> {
    let begin = Instant::now();
    let binaries = binary::build()?;
    // Before the suites: beside them, a lint run may hold Cargo's lock.
    let doctests = binary::run_doctests(filters)?;
    eprintln!("{} test binaries, built in {}", binaries.len(), seconds(begin.elapsed()));
    let begin = Instant::now();
    let outcomes = run_all(binaries, filters)?;
    report(&outcomes, begin.elapsed(), doctests)
}

/// Runs the suites in three lanes: those with Envoys, others that wait, and those that compute. In each lane they run
/// one after the other.
fn run_all(mut binaries: Vec<Binary>, filters: &[String]) -> anyhow::Result<Vec<Outcome>> {
    let cores = thread::available_parallelism().map_or(2, usize::from);
    let mut lane = |suites: &[(&str, usize)]| -> Vec<(Binary, usize)> {
        let mut lane = Vec::new();
        for (name, threads) in suites {
            let at = binaries.iter().position(|binary| binary.name == *name);
            lane.extend(at.map(|at| (binaries.swap_remove(at), *threads)));
        }
        lane
    };
    let (with_envoys, waiting) = (lane(&WITH_ENVOYS), lane(&WAITING));
    let computing = binaries.into_iter().map(|binary| (binary, cores)).collect();
    let outcomes = Mutex::new(Vec::new());
    let work = |lane: Vec<(Binary, usize)>| -> anyhow::Result<()> {
        for (binary, threads) in lane {
            let outcome = binary.run(threads, filters)?;
            outcome.print();
            if let Ok(mut outcomes) = outcomes.lock() {
                outcomes.push(outcome);
            }
        }
        Ok(())
    };
    thread::scope(|scope| {
        let lanes = [with_envoys, waiting, computing];
        let lanes = lanes.map(|lane| scope.spawn(|| work(lane)));
        lanes.into_iter().try_for_each(|lane| match lane.join() {
            Ok(result) => result,
            Err(_) => bail!("a lane of suites panicked"),
        })
    })?;
    outcomes.into_inner().map_err(|_| anyhow::anyhow!("a lane of suites panicked"))
}

/// Prints the slowest tests, the failures and the sums.
fn report(outcomes: &[Outcome], took: Duration, doctests: bool) -> anyhow::Result<()> {
    let tests = outcomes.iter().flat_map(|suite| suite.tests.iter().map(move |test| (suite, test)));
    let mut slowest: Vec<_> = tests.collect();
    slowest.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
    println!("\nthe slowest tests:");
    for (suite, test) in slowest.iter().take(SLOWEST) {
        println!("  {:6.1} s  {}::{}", test.seconds, suite.name, test.name);
    }
    let failed: Vec<_> = outcomes.iter().filter(|suite| !suite.has_succeeded()).collect();
    for suite in &failed {
        for test in suite.tests.iter().filter(|test| test.has_failed) {
            println!("failed: {}::{}", suite.name, test.name);
        }
        if let Some(fault) = &suite.fault {
            println!("failed: {}: {fault}", suite.name);
        }
    }
    if !doctests {
        println!("failed: doctests (see above)");
    }
    let passed: usize = outcomes.iter().map(Outcome::passed).sum();
    let sum: usize = outcomes.iter().map(Outcome::failed).sum::<usize>() + usize::from(!doctests);
    println!("\nall suites took {}", seconds(took));
    println!("{passed} passed, {sum} failed");
    if sum > 0 {
        bail!("{sum} tests failed");
    }
    Ok(())
}

fn seconds(duration: Duration) -> String {
    format!("{:.0} s", duration.as_secs_f64())
}

/// The `cargo` that runs this.
fn cargo() -> anyhow::Result<std::process::Command> {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = std::process::Command::new(program);
    command.current_dir(root()?);
    Ok(command)
}

/// The checkout.
fn root() -> anyhow::Result<std::path::PathBuf> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(folder.parent().context("xtask is not in a checkout")?.to_owned())
}
