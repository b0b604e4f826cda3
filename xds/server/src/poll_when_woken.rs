//! Futures that are polled only after they were woken.

use std::future::pending;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

/// The same future, polled only after it was woken.
///
/// A task polls all that it waits for at each message. What hardly ever happens, such as a shutdown, then costs several
/// locks per message and connection, although it has not been woken.
pub(crate) async fn poll_when_woken<F: Future>(future: F) -> F::Output {
    let mut only = FuturesUnordered::from_iter([future]);
    match only.next().await {
        Some(output) => output,
        // It has exactly one future, and is not polled after its end.
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn future_is_polled_when_it_is_woken_and_not_with_its_task() {
        let (polls, notify) = (Cell::new(0), Notify::new());
        let mut notified = pin!(notify.notified());
        let counted = poll_fn(|context| {
            polls.set(polls.get() + 1);
            notified.as_mut().poll(context)
        });
        let mut waiting = pin!(poll_when_woken(counted));
        for _ in 0..10 {
            let is_pending =
                poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context).is_pending()));
            assert!(is_pending.await);
        }
        assert_eq!(polls.get(), 1);
        notify.notify_waiters();
        waiting.await;
        assert_eq!(polls.get(), 2);
    }
}
