//! The arguments of `ironmesh finding`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand};
use ironmesh_catalog::SilenceId;
use ironmesh_terminal::explained::{self, Explained};
use jiff::Timestamp;

use crate::duration::silence_length;
use crate::{ConnectionArguments, WatchArgument};

/// A command of `ironmesh finding`.
#[derive(Debug, Subcommand)]
pub enum FindingCommand {
    /// List the active findings of the mesh, errors first, and the active silences
    List(FindingListArguments),
    /// Silence findings for a while, with a reason
    ///
    /// `ironmesh status` and alerts leave them out until the silence ends. They stay in lists, marked with the reason, the
    /// operator and the end. An outage that callers see stays a problem of `ironmesh status`.
    Silence(SilenceArguments),
    /// Remove a silence: its findings are active again
    Unsilence(UnsilenceArguments),
}

/// The arguments of `ironmesh finding list`.
#[derive(Debug, Args)]
pub struct FindingListArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Whether to watch.
    #[command(flatten)]
    pub watch: WatchArgument,
}

/// The arguments of `ironmesh finding silence`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("end").required(true).args(["length", "until"])))]
pub struct SilenceArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Silence the findings with this code, such as `IM0734`
    #[arg(value_name = "CODE", value_parser = explained::code)]
    pub code: Explained,
    /// Silence only those about this object, such as `proxy:NAME` or `service:NS/NAME` [default: all with the code]
    #[arg(long, value_name = "OBJECT")]
    pub object: Option<String>,
    /// Show this reason beside the findings
    #[arg(long, value_name = "TEXT")]
    pub reason: String,
    /// End the silence after this time, such as `2h` or `7d`, at most 90 days
    #[arg(long = "for", value_name = "TIME", value_parser = silence_length)]
    pub length: Option<Duration>,
    /// End the silence at this time, such as `2026-11-23T07:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = end)]
    pub until: Option<Timestamp>,
}

/// The arguments of `ironmesh finding unsilence`.
#[derive(Debug, Args)]
pub struct UnsilenceArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Remove the silence with this id, 8 digits, as `ironmesh finding list` shows it
    #[arg(value_name = "ID")]
    pub id: SilenceId,
}

/// Parses the value of `--until`.
fn end(text: &str) -> Result<Timestamp, &'static str> {
    text.parse().map_err(|_| "write a time with its zone, as `2026-11-23T07:00:00Z`")
}
