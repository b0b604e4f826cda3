//! A TLS listener that floods and slow clients do not stop, for the machines' API and the operators' API.
//!
//! It owns the way of a connection to its verified TLS stream, in this order: the block of its source, the connection
//! limits, a handshake slot (rate, number, fairness between sources), and the handshake; and the time for which a client
//! may read nothing. It never reads a request, and knows no certificate: each listener passes its credentials and what
//! serves a stream.

mod handshake_slots;
mod limits;
mod losses;
mod rate;
mod sources;
mod tls_listener;
mod write_deadline;

pub use limits::ListenerLimits;
pub use losses::{ConnectionLoss, ConnectionLosses};
pub use sources::ClientSource;
pub use tls_listener::{Accepted, TlsCredentials, TlsListener};
pub use write_deadline::{WRITE_LIMIT, WriteDeadline};
