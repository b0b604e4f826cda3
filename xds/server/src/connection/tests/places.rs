//! Clients beyond the maximum number of clients.

use super::*;
use crate::counters::CloseReason;
use crate::hub::RETRY_DELAY;
use crate::service::Completion;

/// Each client has the port of its address as its name. The admission of [`UNCLAIMED`] is never completed.
struct ByPort;

const UNCLAIMED: u16 = 3;

impl Admission for ByPort {
    fn admit(&self, peer: &Peer, _: &Node) -> Result<ClientKey, StreamRejection> {
        Ok(peer.address.port().to_string().into())
    }

    fn complete<'a>(&'a self, client: &'a ClientKey, _: &'a Peer) -> Completion<'a> {
        let is_unclaimed = **client == *UNCLAIMED.to_string();
        let rejected = is_unclaimed.then(|| StreamRejection("the claim failed".to_owned()));
        Box::pin(std::future::ready(rejected.map_or(Ok(()), Err)))
    }
}

/// A connection of this client to a server of at most one client.
async fn connect(hub: &Arc<Hub>, client: u16) -> (SendRequest<bytes::Bytes>, JoinHandle<()>) {
    let streams = Streams {
        hub: Arc::clone(hub),
        admission: Arc::new(ByPort),
        limits: Limits { clients: Some(1), ..Limits::default() },
        shutdown: CancellationToken::new(),
        rejection_log: Arc::default(),
        tasks: TaskTracker::new(),
    };
    let (io, server) = duplex(1 << 20);
    let address = SocketAddr::from(([127, 0, 0, 1], client));
    let peer = Peer::new(Vec::new().into(), Validity::endless(), address);
    let permit = ConnectionLimit::new(streams.limits).acquire().unwrap();
    Connections::new(&streams).open(server, peer, permit);
    let (requests, end) = speak(io).await;
    (requests, tokio::spawn(async move { end.await.unwrap().unwrap() }))
}

/// The status with which the first stream of a connection ends, and the rest of the connection.
async fn final_status(hub: &Arc<Hub>, client: u16) -> tonic::Status {
    let (mut requests, end) = connect(hub, client).await;
    let (response, mut body) = requests.send_request(request(), false).unwrap();
    body.send_data(FIRST_REQUEST.into(), false).unwrap();
    let mut response = response.await.unwrap().into_body();
    assert!(response.data().await.is_none());
    let trailers = response.trailers().await.unwrap().unwrap();
    // Without the end of the connection, the client would open its next stream on it.
    drop(body);
    timeout(GRACE + Duration::from_millis(10), end).await.expect("its connection ends").unwrap();
    assert!(requests.ready().await.is_err(), "no stream can be opened any more");
    tonic::Status::from_header_map(&trailers).unwrap()
}

#[tokio::test(start_paused = true)]
async fn refused_client_gets_the_reason_and_loses_its_connection() {
    let hub = Arc::<Hub>::default();
    let (mut requests, end) = connect(&hub, 1).await;
    let (response, mut body) = requests.send_request(request(), false).unwrap();
    body.send_data(FIRST_REQUEST.into(), false).unwrap();
    let _response = response.await.unwrap();
    while hub.streams("1") == 0 {
        tokio::task::yield_now().await;
    }
    // It comes back, because it knows no other server.
    let mut waits = Vec::new();
    for _ in 0..4 {
        let begin = Instant::now();
        let refused = final_status(&hub, 2).await;
        waits.push(begin.elapsed());
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        let message = refused.message();
        let is_clear = message.contains("limit of 1 ") && message.contains("different address");
        assert!(is_clear, "{message}");
    }
    assert!(waits[..3].iter().all(|wait| *wait < RETRY_DELAY), "{waits:?}");
    assert!(waits[3] >= RETRY_DELAY, "{waits:?}");
    assert_eq!(hub.refused_clients().len(), 1);
    assert_eq!(hub.status_of("2").map(|status| status.streams), None, "it was never served");
    assert_eq!(hub.counters().streams_closed(CloseReason::TooManyClients), 4);
    // Its first client has kept its stream.
    assert_eq!(hub.streams("1"), 1);
    assert!(!end.is_finished());
}

#[tokio::test(start_paused = true)]
async fn client_whose_admission_fails_takes_no_place() {
    let hub = Arc::<Hub>::default();
    for client in [UNCLAIMED, 1] {
        let (mut requests, _end) = connect(&hub, client).await;
        let (response, mut body) = requests.send_request(request(), false).unwrap();
        body.send_data(FIRST_REQUEST.into(), false).unwrap();
        let mut response = response.await.unwrap().into_body();
        if client == UNCLAIMED {
            assert!(response.data().await.is_none());
            let trailers = response.trailers().await.unwrap().unwrap();
            let status = tonic::Status::from_header_map(&trailers).unwrap();
            assert_eq!(status.code(), tonic::Code::PermissionDenied);
            continue;
        }
        while hub.streams("1") == 0 {
            assert_eq!(hub.refused_clients(), [], "the place is free at once");
            tokio::task::yield_now().await;
        }
    }
}
