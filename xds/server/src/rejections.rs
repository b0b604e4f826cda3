//! TLS handshakes that failed: the last one, and the addresses whose clients reject this server's certificate.
//!
//! A client verifies the server before it shows its own certificate. So a proxy of a different authority ends
//! the handshake with an alert, and the server never learns which proxy it is: the address is all there is.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::AlertDescription;
use tokio::time::Instant;

/// How many addresses are kept; the one that is quiet for longest goes first.
const MAX_ADDRESSES: usize = 256;

/// How long an address is kept after its last handshake. Envoy connects again at least once a minute.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// How many handshakes of an address count as a client that tries again, and not as a single probe.
const REPEATED: u64 = 2;

/// The TLS handshakes that failed.
#[derive(Debug, Default)]
pub struct Rejections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Rejection>,
    /// Clients to which this server's authority is unknown.
    distrusting: BTreeMap<IpAddr, Distrust>,
}

/// A TLS handshake that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The address of the client.
    pub address: SocketAddr,
    /// Why it failed.
    pub reason: String,
    /// When.
    pub at: Instant,
}

#[derive(Debug)]
struct Distrust {
    count: u64,
    last: Instant,
}

impl Rejections {
    /// The handshake that failed last.
    pub fn last(&self) -> Option<Rejection> {
        self.0.lock().last.clone()
    }

    /// The addresses whose clients reject this server's certificate again and again, because they do not know
    /// its authority; with the number of their handshakes.
    pub fn distrusting(&self, now: Instant) -> Vec<(IpAddr, u64)> {
        let mut state = self.0.lock();
        state.distrusting.retain(|_, distrust| now < distrust.last + KEPT);
        let repeated = state.distrusting.iter().filter(|(_, one)| one.count >= REPEATED);
        repeated.map(|(address, one)| (*address, one.count)).collect()
    }

    pub(crate) fn note(&self, address: SocketAddr, error: &io::Error, now: Instant) {
        let mut state = self.0.lock();
        state.last = Some(Rejection { address, reason: error.to_string(), at: now });
        if !is_distrust(error) {
            return;
        }
        let known = &mut state.distrusting;
        if known.len() >= MAX_ADDRESSES && !known.contains_key(&address.ip()) {
            let oldest = known.iter().min_by_key(|(_, one)| one.last).map(|(address, _)| *address);
            if let Some(oldest) = oldest {
                known.remove(&oldest);
            }
        }
        let one = known.entry(address.ip()).or_insert(Distrust { count: 0, last: now });
        one.count += 1;
        one.last = now;
    }
}

/// Whether the client says that it does not know the authority of the server's certificate. An authority of
/// the same name with a different key makes a signature that does not verify.
fn is_distrust(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref());
    matches!(
        error,
        Some(rustls::Error::AlertReceived(
            AlertDescription::UnknownCA | AlertDescription::DecryptError
        ))
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(description: AlertDescription) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, rustls::Error::AlertReceived(description))
    }

    fn client(last: u16) -> SocketAddr {
        let [high, low] = last.to_be_bytes();
        SocketAddr::from(([10, 0, high, low], 40_000))
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_alerts_of_an_unknown_authority_are_counted_by_address() {
        let (rejections, now) = (Rejections::default(), Instant::now());
        assert_eq!(rejections.last(), None);
        for _ in 0..3 {
            rejections.note(client(1), &alert(AlertDescription::UnknownCA), now);
            rejections.note(client(2), &alert(AlertDescription::CertificateExpired), now);
            rejections.note(client(3), &io::ErrorKind::UnexpectedEof.into(), now);
        }
        rejections.note(client(4), &alert(AlertDescription::UnknownCA), now);
        rejections.note(client(5), &alert(AlertDescription::DecryptError), now);
        rejections.note(client(5), &alert(AlertDescription::DecryptError), now);
        let expected = [(client(1).ip(), 3), (client(5).ip(), 2)];
        assert_eq!(rejections.distrusting(now), expected);
        let last = rejections.last().unwrap();
        assert_eq!((last.address, last.at), (client(5), now));
        assert!(last.reason.contains("DecryptError"), "{}", last.reason);
    }

    #[tokio::test(start_paused = true)]
    async fn quiet_addresses_are_forgotten_and_their_number_is_bounded() {
        let (rejections, now) = (Rejections::default(), Instant::now());
        let crowd = u16::try_from(MAX_ADDRESSES).unwrap() + 10;
        for one in 0..crowd {
            let at = now + Duration::from_millis(one.into());
            rejections.note(client(one), &alert(AlertDescription::UnknownCA), at);
            rejections.note(client(one), &alert(AlertDescription::UnknownCA), at);
        }
        let known = rejections.distrusting(now + Duration::from_secs(1));
        assert_eq!(known.len(), MAX_ADDRESSES);
        assert_eq!(known[0].0, client(10).ip(), "the oldest went");
        assert!(rejections.distrusting(now + KEPT * 2).is_empty());
    }
}
