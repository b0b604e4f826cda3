//! The arguments of `ironmesh events`.

use clap::Args;

use crate::ConnectionArguments;

/// The arguments of `ironmesh events`.
#[derive(Debug, Args)]
pub struct EventsArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// Continue after the event with this id; `0` begins with the first stored entry of the journal
    #[arg(long, value_name = "ID")]
    pub since: Option<String>,
    /// Print the stored events, and end
    #[arg(long)]
    pub no_follow: bool,
}
