//! Follows a table of records that all control planes share.
//!
//! It decides only when a table is read again; what is read belongs to the owner of the table.

use std::time::Duration;

use ironmesh_catalog::text::chain;
use ironmesh_store::{Record, RecordError, RecordTable};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The pause before a new watch, after one that failed.
const RETRY: Duration = Duration::from_secs(1);

/// Calls `reread` at the start and after each change of the table, until `shutdown`. A failed watch is begun again. It is
/// for tables with few records and few changes.
pub(crate) async fn follow_records<R: Record>(
    table: &RecordTable<R>,
    reread: impl Fn() -> Result<(), RecordError>,
    shutdown: &CancellationToken,
) {
    let once = async || -> Result<(), RecordError> {
        let mut watch = tokio::task::block_in_place(|| table.watch())?;
        loop {
            watch.changed().await?;
            tokio::task::block_in_place(&reread)?;
        }
    };
    let follow = async {
        loop {
            if let Err(error) = once().await {
                tracing::debug!(
                    table = R::TABLE.0,
                    error = chain(&error),
                    "the watch of a table has ended"
                );
            }
            sleep(RETRY).await;
        }
    };
    tokio::select! {
        () = follow => {}
        () = shutdown.cancelled() => {}
    }
}
