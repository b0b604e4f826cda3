//! The xDS engine: resource sets in, streams out.
//!
//! It knows no mesh. Its user decides which clients may connect ([`Admission`]) and which resources
//! each of them has ([`Hub::publish`]). The engine brings each client to that state, by the letter of
//! the xDS protocol, and reports ACKs and NACKs ([`Hub::status`]).
//!
//! It serves the aggregated service and those of clusters, endpoints, listeners, routes and secrets,
//! each in both variants, over mutual TLS.
//!
//! ```no_run
//! use std::sync::Arc;
//!
//! use ironmesh_xds_server::wire::pb::envoy::config::cluster::v3::Cluster;
//! use ironmesh_xds_server::wire::{Node, Resource, ResourceSet};
//! use ironmesh_xds_server::{Admission, ClientKey, Hub, Limits, Peer, StreamRejection, serve};
//! use tokio::net::TcpListener;
//! use tokio::sync::watch;
//! use tokio_util::sync::CancellationToken;
//!
//! /// Admits every client with a certificate, under the name that it reports.
//! struct AdmitAll;
//!
//! impl Admission for AdmitAll {
//!     fn admit(&self, _: &Peer, node: &Node) -> Result<ClientKey, StreamRejection> {
//!         Ok(node.id.as_str().into())
//!     }
//! }
//!
//! /// `tls` requests client certificates and offers the protocol `h2`.
//! async fn control_plane(tls: rustls::ServerConfig) -> Result<(), Box<dyn std::error::Error>> {
//!     let hub = Arc::new(Hub::default());
//!     let (_tls, current) = watch::channel(Arc::new(tls));
//!     let listener = TcpListener::bind("127.0.0.1:18000").await?;
//!     let (admission, shutdown) = (Arc::new(AdmitAll), CancellationToken::new());
//!     let limits = Limits::default();
//!     tokio::spawn(serve(listener, current, Arc::clone(&hub), admission, limits, shutdown));
//!
//!     let mut set = ResourceSet::default();
//!     set.insert(Resource::new(&Cluster { name: "a".to_owned(), ..Cluster::default() }).into());
//!     let mut changes = hub.changes();
//!     loop {
//!         // Publish the set to each client that connects; publish again whenever the set changes.
//!         for (client, status) in hub.take_changed() {
//!             if status.streams > 0 && hub.published(&client).is_none() {
//!                 hub.publish(&client, set.clone());
//!             }
//!         }
//!         changes.changed().await?;
//!     }
//! }
//! ```
//!
//! Inside is a state machine per stream, without sockets and clocks: [`delta::DeltaStream`] or
//! [`sotw::SotwStream`]. Around it, a task per stream moves its inputs and outputs. Users with other
//! transports can drive it themselves:
//!
//! ```
//! use ironmesh_xds_server::delta::DeltaStream;
//! use ironmesh_xds_server::stream::StreamOutput;
//! use ironmesh_xds_server::wire::pb::envoy::config::cluster::v3::Cluster;
//! use ironmesh_xds_server::wire::{DeltaRequest, Resource, ResourceSet, ResourceType};
//! use tokio::time::Instant;
//!
//! let mut set = ResourceSet::default();
//! set.insert(Resource::new(&Cluster { name: "a".to_owned(), ..Cluster::default() }).into());
//!
//! let (mut stream, now) = (DeltaStream::new(&Default::default()), Instant::now());
//! assert!(stream.on_set(set, now).is_empty(), "no request yet");
//!
//! let type_url = ResourceType::Cluster.url().to_owned();
//! let all_clusters = DeltaRequest { type_url, ..DeltaRequest::default() };
//! let outputs = stream.on_request(&all_clusters, now);
//! let [StreamOutput::Send(response)] = &outputs[..] else { panic!("{outputs:?}") };
//! assert_eq!(&**response.resources[0].name(), "a");
//!
//! let ack = DeltaRequest { nonce: response.nonce.to_string(), ..all_clusters };
//! let outputs = stream.on_request(&ack, now);
//! assert!(matches!(&outputs[..], [StreamOutput::Acked(ack)] if ack.names == ["a".into()]));
//! ```

mod body;
mod connection;
mod connection_limit;
mod counters;
pub mod delta;
#[cfg(any(test, feature = "fuzzing"))]
#[expect(clippy::indexing_slicing, reason = "for tests: a panic is a failed test")]
pub mod fuzzing;
mod hub;
mod limits;
mod listener;
mod log_throttle;
mod memory_quota;
mod messages;
mod nack_bisection;
mod overlay;
mod peer;
mod poll_when_woken;
mod rate_limiter;
mod references;
mod rejections;
mod report;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), expect(dead_code, reason = "the tests use all of it"))]
#[expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "for tests: a panic is a failed test"
)]
mod scenarios;
mod separate;
mod service;
#[cfg(any(test, feature = "simulated"))]
pub mod simulated;
pub mod sotw;
pub mod stream;
mod subscription;
#[cfg(any(test, feature = "fuzzing"))]
#[cfg_attr(not(test), expect(dead_code, reason = "the tests use all of it"))]
mod test_resources;
mod validity;
mod variant;

pub use connection::SILENCE_LIMIT;
pub use counters::{CloseReason, ConnectionRejection, Counters};
pub use hub::{
    ClientChange, ClientKey, ClientStatus, Exchange, Hub, LiveStream, Nack, ObservedPush,
    Occurrences, PushObserver,
};
/// The resources, sets and messages of the engine's inputs and outputs.
pub use ironmesh_xds_wire as wire;
pub use limits::Limits;
pub use listener::{serve, serve_incoming};
pub use peer::Peer;
pub use rejections::{Rejection, Rejections};
pub use report::{Report, ResourceState, ResourceStatus};
pub use service::{Admission, Completion, StreamRejection};
