//! The futures of one connection, which one task runs.
//!
//! HTTP/2, its streams and their state machines wake each other for every message. As tasks of
//! their own, the runtime would queue each of them, wake threads for them and move them between
//! cores. Here they are polled in turn, each only after it was woken.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use hyper::rt::Executor;
use parking_lot::Mutex;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Starts futures that end with their connection, or before it.
#[derive(Clone, Default)]
pub(crate) struct ConnectionTasks {
    /// The futures that the task has yet to take.
    started: Arc<Mutex<Vec<Task>>>,
}

impl ConnectionTasks {
    /// Starts a future. Call it from a future of the same connection, whose task is then awake.
    pub(crate) fn start(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.started.lock().push(Box::pin(future));
    }

    /// Runs a future, and those that are started meanwhile, until all of them have ended.
    pub(super) async fn run(self, first: impl Future<Output = ()> + Send + 'static) {
        self.start(first);
        let mut running = FuturesUnordered::new();
        poll_fn(|context| self.poll(&mut running, context)).await;
    }

    fn poll(&self, running: &mut FuturesUnordered<Task>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            running.extend(std::mem::take(&mut *self.started.lock()));
            let next = running.poll_next_unpin(context);
            let has_started = !self.started.lock().is_empty();
            match next {
                Poll::Ready(None) if !has_started => return Poll::Ready(()),
                Poll::Pending if !has_started => return Poll::Pending,
                Poll::Ready(_) | Poll::Pending => {}
            }
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for ConnectionTasks {
    fn execute(&self, future: F) {
        self.start(future);
    }
}

impl fmt::Debug for ConnectionTasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionTasks").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn task_ends_after_the_last_future_that_it_started() {
        let (tasks, ended, notify) =
            (ConnectionTasks::default(), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let end = {
            let (ended, notify) = (Arc::clone(&ended), Arc::clone(&notify));
            move || async move {
                notify.notified().await;
                ended.fetch_add(1, Ordering::Relaxed);
            }
        };
        let nested = tasks.clone();
        let first = async move {
            let inner = nested.clone();
            let (second, third) = (end.clone(), end);
            nested.start(async move {
                inner.start(third());
                second().await;
            });
        };
        let mut run = std::pin::pin!(tasks.run(first));
        for expected in 0..2 {
            let is_pending =
                poll_fn(|context| Poll::Ready(run.as_mut().poll(context).is_pending()));
            assert!(is_pending.await);
            assert_eq!(ended.load(Ordering::Relaxed), expected);
            notify.notify_one();
        }
        run.await;
        assert_eq!(ended.load(Ordering::Relaxed), 2);
    }
}
