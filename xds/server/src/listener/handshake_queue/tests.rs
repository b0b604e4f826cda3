//! Which connection is evicted for which, without sockets.

use super::*;

/// A handshake queue whose tasks do nothing until they are aborted.
struct TestQueue {
    queue: HandshakeQueue,
    tasks: Vec<tokio::task::JoinHandle<()>>,
}

impl TestQueue {
    fn new(slots: usize) -> Self {
        Self { queue: HandshakeQueue::new(slots), tasks: Vec::new() }
    }

    /// A connection from 127.0.0.`host` arrives.
    fn enter(&mut self, host: u8, port: u16) -> (Id, Option<EvictedConnection>) {
        let mut own = 0;
        let evicted = self.queue.enter(address(host, port), |id| {
            own = id;
            let task = tokio::spawn(std::future::pending());
            let handle = task.abort_handle();
            self.tasks.push(task);
            handle
        });
        (own, evicted)
    }

    /// The same, and its ClientHello arrives.
    fn speak(
        &mut self,
        host: u8,
        port: u16,
    ) -> (Id, oneshot::Receiver<()>, Option<EvictedConnection>) {
        let (id, none) = self.enter(host, port);
        assert_eq!(none, None);
        let (slot, evicted) = self.queue.hello_received(id);
        (id, slot, evicted)
    }
}

fn address(host: u8, port: u16) -> SocketAddr {
    ([127, 0, 0, host], port).into()
}

#[tokio::test]
async fn silent_connections_of_the_greatest_source_are_closed_first() {
    let mut handshakes = TestQueue::new(1);
    assert_eq!(handshakes.enter(3, 1).1, None);
    for port in 1..=3 {
        assert_eq!(handshakes.enter(2, port).1, None);
    }
    assert_eq!(handshakes.enter(2, 4).1, Some(EvictedConnection(address(2, 1))));
    assert_eq!(handshakes.enter(4, 1).1, Some(EvictedConnection(address(2, 2))));
    tokio::task::yield_now().await;
    let ended: Vec<_> = handshakes.tasks.iter().map(tokio::task::JoinHandle::is_finished).collect();
    assert_eq!(ended, [false, true, true, false, false, false]);
}

#[tokio::test]
async fn ipv6_addresses_of_one_network_are_one_source() {
    let of = |address: &str| Source::of(address.parse().unwrap());
    assert_eq!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:2:3:4:5:6]:2"));
    assert_ne!(of("[2001:db8:1:2::1]:1"), of("[2001:db8:1:3::1]:1"));
    assert_eq!(of("[::ffff:127.0.0.1]:1"), of("127.0.0.1:2"));
    assert_ne!(of("127.0.0.1:1"), of("127.0.0.2:1"));
}

#[tokio::test]
async fn free_slot_goes_to_the_source_with_the_fewest() {
    let mut handshakes = TestQueue::new(2);
    let (first, mut granted, _) = handshakes.speak(2, 1);
    assert_eq!(granted.try_recv(), Ok(()));
    let (second, mut granted, _) = handshakes.speak(2, 2);
    assert_eq!(granted.try_recv(), Ok(()));
    let (_, mut third, _) = handshakes.speak(2, 3);
    let (_, mut other, _) = handshakes.speak(3, 1);
    assert!(third.try_recv().is_err() && other.try_recv().is_err(), "both wait");
    handshakes.queue.leave(first);
    assert!(third.try_recv().is_err(), "it came first, and its source has a place");
    assert_eq!(other.try_recv(), Ok(()));
    handshakes.queue.leave(second);
    assert_eq!(third.try_recv(), Ok(()));
}

/// A36.
#[tokio::test(start_paused = true)]
async fn slow_handshake_loses_its_slot_when_others_wait() {
    let mut handshakes = TestQueue::new(1);
    let (_, mut first, _) = handshakes.speak(2, 1);
    assert_eq!(first.try_recv(), Ok(()));
    let begin = Instant::now();
    let eviction = tokio::time::timeout(3 * SLOT_TIME, handshakes.queue.next_evicted());
    assert!(eviction.await.is_err());
    let (_, second, _) = handshakes.speak(3, 1);
    assert_eq!(handshakes.queue.next_evicted().await, EvictedConnection(address(2, 1)));
    assert_eq!(begin.elapsed().as_secs(), (3 * SLOT_TIME).as_secs(), "at once: its time was over");
    assert_eq!(second.await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn accept_pauses_only_while_a_full_queue_makes_progress() {
    let mut handshakes = TestQueue::new(1);
    let mut waiting: Vec<_> = (1..=5).map(|port| handshakes.speak(2, port)).collect();
    let is_stalled = async |handshakes: &TestQueue| {
        tokio::time::timeout(Duration::from_millis(1), handshakes.queue.may_accept()).await.is_err()
    };
    assert!(is_stalled(&handshakes).await, "one has a place and four wait");
    handshakes.queue.leave(waiting.remove(0).0);
    assert!(!is_stalled(&handshakes).await);
    waiting.push(handshakes.speak(2, 6));
    // The connection in the slot makes no progress: from now on the newest of the largest source is
    // evicted.
    assert_eq!(handshakes.queue.next_evicted().await, EvictedConnection(address(2, 2)));
    waiting.push(handshakes.speak(2, 7));
    assert!(!is_stalled(&handshakes).await);
    let (_, _, evicted) = handshakes.speak(3, 1);
    assert_eq!(evicted, Some(EvictedConnection(address(2, 7))));
}
