//! `ironmesh demo`: OSM's bookstore on this machine, with real Envoys and a real control plane.
//!
//! Five services, each with an Envoy on a loopback address of its own, and the applications behind
//! them, which run in this process. [`run`] shows them live, or tells their whole story by itself
//! and checks each step of it in real responses.
//!
//! This crate knows Ironmesh only as a user does: by its command line, its ports, its files and the
//! JSON of its admin port. It imports no other crate of ours, reads no environment and asks nobody
//! but its [`Options`] what time it is. Whatever ends it, SIGKILL included, it leaves no process, no
//! folder and no spoilt terminal behind; see [`tether`] and [`caretaker`].
//!
//! Start reading at `stage.rs`, which is all that runs, then `check.rs` and `live.rs`.

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
mod rise;
mod sidecars;
mod signals;
mod stage;
mod tally;
mod waiting;

pub use error::DemoError;
pub use options::{Mode, Options, Output};
pub use program::EnvoyVersion;

use addresses::Network;
use folder::WorkingFolder;
use printer::tell;
use signals::Signals;
use stage::Stage;

/// Runs the demo until it is over, or until it is told to end.
///
/// The future must be given to `block_on` on the main thread, and not to another task: its children
/// die with the thread that started them.
pub async fn run(options: Options) -> Result<(), DemoError> {
    let mut signals = Signals::listen()?;
    let mut stage = match Box::pin(prepare(&options)).await {
        Ok(stage) => stage,
        Err(error) => {
            if options.mode == Mode::Check {
                check::tell_unbegun(&options, &error).await;
            }
            return Err(error);
        }
    };
    let result = match options.mode {
        Mode::Check => check::run(&options, &mut stage, &mut signals).await,
        Mode::Live => Box::pin(live::run(&options, &mut stage, &mut signals)).await,
    };
    tokio::select! {
        () = stage.end() => {}
        () = signals.wait() => {
            tell("told again to end: killing what has not ended");
            stage.kill().await;
        }
    }
    let folder = stage.folder();
    let shown = folder.path().display().to_string();
    match &result {
        Err(error) if error.is_for_the_logs() => {
            folder.keep().await;
            tell(&format!("the logs are kept in {shown}"));
        }
        _ => {
            let end = if folder.remove().await { "is removed" } else { "could not be removed" };
            tell(&format!("all programs are ended, and {shown} {end}"));
        }
    }
    result
}

/// Finds and makes what the demo needs, before it starts the first program.
async fn prepare(options: &Options) -> Result<Stage, DemoError> {
    let envoy = program::find(options).await?;
    let network = Network::claim(&sidecars::listeners())?;
    let folder = WorkingFolder::create(options).await?;
    Stage::new(options, envoy, network, folder).await
}
