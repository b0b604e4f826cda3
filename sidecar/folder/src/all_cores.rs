//! Work for many proxies, on all cores.

use std::num::NonZero;
use std::thread;

use crate::ProxyFilesError;

/// Applies `work` to each item, on as many threads as there are cores, and keeps the order.
pub(crate) fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, ProxyFilesError> + Sync,
) -> Result<Vec<R>, ProxyFilesError> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (work, share) = (&work, items.len().div_ceil(threads).max(1));
    thread::scope(|scope| {
        let shares = items.chunks(share).map(|share| {
            scope.spawn(move || share.iter().map(work).collect::<Result<Vec<_>, _>>())
        });
        let mut done = Vec::with_capacity(items.len());
        // Collected first, so that all threads start before the first join.
        for share in shares.collect::<Vec<_>>() {
            done.extend(share.join().map_err(|_| ProxyFilesError::ThreadPanicked)??);
        }
        Ok(done)
    })
}
