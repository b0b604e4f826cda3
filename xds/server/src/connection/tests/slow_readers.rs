//! Slow readers, and clients that do not read, beside a client that must not wait for them.

use h2::{RecvStream, SendStream};
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use ironmesh_xds_wire::{ResourceSet, ResourceType};
use prost::Message as _;

use super::*;
use crate::test_resources::{cluster, large_cluster};

/// Sixteen clusters of `size` KiB each.
fn clusters(content: u32, size: usize) -> ResourceSet {
    let mut set = ResourceSet::default();
    for n in 0..16 {
        set.insert(large_cluster(&format!("{n:02}"), content, size << 10));
    }
    set
}

/// A client of a delta stream, which reads only when the test lets it.
struct Client {
    hub: Arc<Hub>,
    name: &'static str,
    body: SendStream<bytes::Bytes>,
    response: RecvStream,
    read: bytes::BytesMut,
    _peer: Peer,
}

impl Client {
    /// Opens a client with this window of its stream.
    async fn open(hub: &Arc<Hub>, name: &'static str, window: u32) -> Self {
        let (peer, io) = connection_to(hub, Limits::default());
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(1 << 16);
        let (mut requests, connection) = builder.handshake(io).await.unwrap();
        tokio::spawn(connection);
        let (response, body) = requests.send_request(request(), false).unwrap();
        let mut client = Self {
            hub: Arc::clone(hub),
            name,
            body,
            response: response.await.unwrap().into_body(),
            read: bytes::BytesMut::new(),
            _peer: peer,
        };
        let mut first = FIRST_REQUEST.to_vec();
        // The name is in the node.
        first[9] = name.as_bytes()[0];
        client.body.send_data(first.into(), false).unwrap();
        while hub.status_of(name).is_none() {
            tokio::task::yield_now().await;
        }
        client
    }

    /// Reads the next piece. Returns the final status when the stream has ended.
    async fn read(&mut self) -> Result<usize, tonic::Status> {
        let Some(data) = self.response.data().await else {
            let trailers = self.response.trailers().await.unwrap().unwrap();
            return Err(tonic::Status::from_header_map(&trailers).unwrap());
        };
        let data = data.unwrap();
        self.read.extend_from_slice(&data);
        self.response.flow_control().release_capacity(data.len()).unwrap();
        Ok(data.len())
    }

    /// The next response that has been read completely.
    fn response(&mut self) -> Option<DeltaDiscoveryResponse> {
        let length = self.read.get(1..5)?.try_into().unwrap();
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap();
        if self.read.len() < 5 + length {
            return None;
        }
        let response = self.read.split_to(5 + length);
        Some(DeltaDiscoveryResponse::decode(&response[5..]).unwrap())
    }

    fn ack(&mut self, response: DeltaDiscoveryResponse) {
        let (type_url, response_nonce) = (response.type_url, response.nonce);
        let ack =
            DeltaDiscoveryRequest { type_url, response_nonce, ..DeltaDiscoveryRequest::default() };
        let mut framed = vec![0];
        framed.extend(u32::try_from(ack.encoded_len()).unwrap().to_be_bytes());
        ack.encode(&mut framed).unwrap();
        self.body.send_data(framed.into(), false).unwrap();
    }

    /// Publishes a cluster to the client, which reads and ACKs it before any time passes.
    async fn serve(&mut self, content: u32) {
        let begin = Instant::now();
        let mut set = ResourceSet::default();
        set.insert(cluster("b", content));
        self.hub.publish(self.name, set);
        let response = loop {
            if let Some(response) = self.response() {
                break response;
            }
            self.read().await.unwrap();
        };
        self.ack(response);
        let version = cluster("b", content).version();
        while !self.hub.status_of(self.name).unwrap().has(ResourceType::Cluster, "b", version) {
            tokio::task::yield_now().await;
        }
        assert_eq!(begin.elapsed(), Duration::ZERO);
    }
}

/// A44 (bystander): a reader that makes progress receives everything, and does not delay others.
#[tokio::test(start_paused = true)]
async fn slow_reader_receives_all_without_delaying_others() {
    let hub = Arc::new(Hub::default());
    let mut slow = Client::open(&hub, "s", 1024).await;
    let mut other = Client::open(&hub, "o", 1 << 16).await;
    hub.publish("s", clusters(1, 64));
    let (begin, mut read, mut got, mut served) = (Instant::now(), 0, 0, 0);
    while got < 16 {
        read += slow.read().await.expect("it is not cut off");
        while let Some(response) = slow.response() {
            got += response.resources.len();
            slow.ack(response);
        }
        let due = begin + Duration::from_secs(1) * u32::try_from(read / 1024).unwrap();
        tokio::time::sleep_until(due).await;
        if due >= begin + Duration::from_secs(10) * (served + 1) {
            served += 1;
            other.serve(served).await;
        }
    }
    assert!(begin.elapsed() > Duration::from_secs(1000), "{:?}", begin.elapsed());
    assert!(served > 100, "{served}");
    // Each part was sent once, including the late ones.
    let pushes = hub.counters().pushes(ResourceType::Cluster) - u64::from(served);
    assert!(pushes <= 16, "{pushes}");
}

/// A43, A44 (bystander): what waits for a reader that falls behind is limited, and its stream ends.
#[tokio::test(start_paused = true)]
async fn too_slow_reader_is_disconnected_with_bounded_buffering() {
    for (window, reads) in [(0, false), (1024, true)] {
        let hub = Arc::new(Hub::default());
        let mut slow = Client::open(&hub, "s", window).await;
        let mut other = Client::open(&hub, "o", 1 << 16).await;
        let (begin, mut content, mut read) = (Instant::now(), 0, 0);
        while hub.counters().streams_closed(CloseReason::SlowReader) == 0 {
            assert!(begin.elapsed() < Duration::from_secs(900), "it is not cut off");
            content += 1;
            hub.publish("s", clusters(content, 16));
            other.serve(content).await;
            if reads {
                read += slow.read().await.unwrap();
            }
            sleep(Duration::from_secs(5)).await;
        }
        let pushes = hub.counters().pushes(ResourceType::Cluster) - u64::from(content);
        // Pushes in the queue, one that waits for the queue, and two in HTTP/2, which takes the
        // next before one is complete. All of them are shared bytes.
        let whole = u64::try_from(read / (256 << 10)).unwrap();
        assert!(pushes <= whole + 19, "{pushes} for {read} bytes");
        assert!(begin.elapsed() > Duration::from_secs(60));
        other.serve(content + 1).await;
    }
}
