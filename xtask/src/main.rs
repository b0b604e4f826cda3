//! Development tasks: `cargo xtask descriptors`, `docs`, `mutations` and `test`, which `make test` runs.

mod descriptors;
mod docs;
mod mutations;
mod test;

use std::process::ExitCode;

#[expect(clippy::print_stderr, reason = "the error is its output")]
fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        // `main` would add a backtrace under `RUST_BACKTRACE`, which reveals nothing about a failed test.
        Err(error) => {
            eprintln!("Error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("descriptors") => descriptors::write(),
        Some("docs") => docs::write(),
        Some("mutations") => mutations::run(&arguments.next().unwrap_or_default()),
        Some("test") => test::run(&arguments.collect::<Vec<_>>()),
        _ => anyhow::bail!(
            "usage: cargo xtask descriptors | docs | mutations [RULE or part of a test's name] | test [NAME...]"
        ),
    }
}
