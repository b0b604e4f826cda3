//! The arguments of `ironmesh journal`.

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, value_parser};
use ironmesh_catalog::JournalKind;
use jiff::{SignedDuration, Timestamp};

use crate::ConnectionArguments;
use crate::duration::duration;

/// The arguments of `ironmesh journal`.
#[derive(Debug, Args)]
pub struct JournalArguments {
    /// The control plane to use.
    #[command(flatten)]
    pub config: ConnectionArguments,
    /// List the entries since this time, such as `1h` ago or `2026-11-23T07:00:00Z`
    #[arg(long, value_name = "TIME", value_parser = start)]
    pub since: Option<JournalStart>,
    /// List only the entries of this kind
    #[arg(
        long,
        value_name = "KIND",
        value_parser = PossibleValuesParser::new(JournalKind::ALL.map(JournalKind::word))
            .try_map(|word| word.parse::<JournalKind>())
    )]
    pub kind: Option<JournalKind>,
    /// List at most this many entries, the newest ones [default: 100, and with `--since` all]
    #[arg(long, value_name = "N", value_parser = value_parser!(u16).range(1..=1000))]
    pub limit: Option<u16>,
    /// Then print new entries as they are recorded, also after a restart of the control plane
    #[arg(long)]
    pub follow: bool,
}

/// The time of the first entry to list.
#[derive(Debug, Clone, Copy)]
pub enum JournalStart {
    /// So long ago.
    Ago(SignedDuration),
    /// At this time.
    At(Timestamp),
}

/// Parses the value of `--since`.
fn start(text: &str) -> Result<JournalStart, &'static str> {
    if let Ok(at) = text.parse() {
        return Ok(JournalStart::At(at));
    }
    duration(text)
        .and_then(|ago| ago.try_into().ok())
        .map(JournalStart::Ago)
        .ok_or("write how long ago, as `90s`, `1h` or `7d`, or a time, as `2026-11-23T07:00:00Z`")
}
