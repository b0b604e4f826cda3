//! `ironmesh-instructions`: counts the instructions of four hot paths with callgrind, and prints them beside the last
//! recorded counts (`recorded.txt`).
//!
//! Counts of one build hardly vary, also on a busy machine, so that they show a small change that times hide. (Hash maps
//! with random seeds make up to a percent.) They fail nothing: the counts in tests do (`recorded_cost.rs`, `delta/tests/cost.rs`).

mod mesh;
mod paths;

use std::process::{Command, ExitCode};

use anyhow::{Context as _, bail, ensure};

/// The counts of the last commit that recorded them: build, path, count.
const RECORDED: &str = include_str!("../recorded.txt");

const BUILD: &str = if cfg!(debug_assertions) { "debug" } else { "release" };

#[expect(clippy::print_stderr, reason = "errors of a program go to stderr")]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let result = match arguments.next().as_deref() {
        None => print(),
        Some(name) => paths::run(name),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Counts all paths.
#[expect(clippy::print_stdout, reason = "the table is this program's result")]
fn print() -> anyhow::Result<()> {
    println!("instructions of hot paths, {BUILD} build");
    println!("{:<12}{:>14}{:>14}{:>9}", "PATH", "NOW", "RECORDED", "CHANGE");
    for path in paths::NAMES {
        let now = count(path)?;
        match recorded(path) {
            Some(before) => {
                let change = percent(now, before);
                println!("{path:<12}{now:>14}{before:>14}{change:>8.1}%");
            }
            None => println!("{path:<12}{now:>14}{:>14}", "-"),
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a percentage")]
fn percent(now: u64, before: u64) -> f64 {
    100.0 * (now as f64 / before as f64 - 1.0)
}

fn recorded(path: &str) -> Option<u64> {
    RECORDED.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let is_it = words.next() == Some(BUILD) && words.next() == Some(path);
        words.next().filter(|_| is_it)?.parse().ok()
    })
}

/// The number of instructions of a path, without its preparation.
fn count(path: &str) -> anyhow::Result<u64> {
    let folder = tempfile::tempdir()?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=*hot_path*"])
        .arg(format!("--callgrind-out-file={}", folder.path().join("out").display()))
        .arg(std::env::current_exe()?)
        .arg(path)
        .output()
        .context("cannot run valgrind: install Debian's package `valgrind`")?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "valgrind failed on {path}: {text}");
    let collected = text.lines().find_map(|line| line.split_once("Collected : "));
    match collected.and_then(|(_, count)| count.trim().parse().ok()) {
        Some(0) | None => bail!("valgrind collected nothing on {path}: {text}"),
        Some(count) => Ok(count),
    }
}
