//! `ironmesh demo`: OSM's bookstore on this machine, with real Envoys and a real control plane.
//!
//! The mesh has five services, each with an Envoy on its own loopback address. Their applications run in this
//! process. [`run`] shows the mesh live, or plays the whole story and verifies each step in real responses.
//!
//! This crate uses Ironmesh only as a user does: by its command line, ports, files and the JSON of its admin port. It
//! imports no other crate of the workspace. It reads no environment, and takes the time from its [`DemoOptions`].
//! Whatever ends the demo, SIGKILL included, it leaves no process, no folder and no broken terminal behind; see
//! [`tether`] and [`caretaker`].
//!
//! Start reading at `stage.rs`, which owns all running parts, then `check.rs` and `live.rs`.

pub mod caretaker;
pub mod tether;

mod addresses;
mod applications;
mod check;
mod child;
mod control_plane;
mod error;
mod folder;
mod holder;
mod http_client;
mod ledger;
mod live;
mod options;
mod policy;
mod printer;
mod program;
mod sidecars;
mod signals;
mod stage;
mod startup;
mod tally;
mod waiting;

pub use error::DemoError;
pub use options::{DemoMode, DemoOptions, DemoOutput};
pub use program::DemoEnvoyVersion;

use addresses::Network;
use folder::WorkingFolder;
use printer::print_progress;
use signals::Signals;
use stage::Stage;

/// Runs the demo until it is complete, or until a signal ends it.
///
/// Pass the future to `block_on` on the main thread, not to a spawned task: child processes die with the thread that
/// started them.
pub async fn run(options: DemoOptions) -> Result<(), DemoError> {
    let mut signals = Signals::listen()?;
    let mut stage = match Box::pin(prepare(&options)).await {
        Ok(stage) => stage,
        Err(error) => {
            if options.mode == DemoMode::Check {
                check::report_not_started(&options, &error).await;
            }
            return Err(error);
        }
    };
    let result = match options.mode {
        DemoMode::Check => check::run(&options, &mut stage, &mut signals).await,
        DemoMode::Live => Box::pin(live::run(&options, &mut stage, &mut signals)).await,
    };
    tokio::select! {
        () = stage.end() => {}
        () = signals.wait() => {
            print_progress("second signal: killing the remaining programs");
            stage.kill().await;
        }
    }
    let folder = stage.folder();
    let shown = folder.path().display().to_string();
    match &result {
        Err(error) if error.keeps_logs() => {
            folder.keep().await;
            print_progress(&format!("the logs are kept in {shown}"));
        }
        _ => {
            let end = if folder.remove().await { "is removed" } else { "could not be removed" };
            print_progress(&format!("all programs are ended, and {shown} {end}"));
        }
    }
    result
}

/// Finds Envoy, claims addresses and creates the folder, before the first program starts.
async fn prepare(options: &DemoOptions) -> Result<Stage, DemoError> {
    let envoy = program::find(options).await?;
    let network = Network::claim(&sidecars::listeners())?;
    let folder = WorkingFolder::create(options).await?;
    Stage::new(options, envoy, network, folder).await
}
