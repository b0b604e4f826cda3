//! Failed TLS handshakes: the last one, recent ones by address, and the addresses whose clients
//! reject this server's certificate, because of its authority or its dates.
//!
//! A client verifies the server before it shows its own certificate. So a proxy of a different
//! authority, or with a wrong clock, ends the handshake with an alert. The server never learns
//! which proxy it is: the address is all there is.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use parking_lot::Mutex;
use rustls::AlertDescription;
use tokio::time::Instant;

/// The maximum number of addresses. The one that has been quiet for longest goes first.
const MAX_ADDRESSES: usize = 256;

/// The maximum number of addresses that [`Rejections::recent`] returns.
const MAX_RECENT: usize = 20;

/// The time for which an address is kept after its last handshake. Envoy reconnects at least once a
/// minute.
const KEPT: Duration = Duration::from_secs(5 * 60);

/// The number of handshakes from which an address counts as a client that retries, not as a single
/// probe.
const REPEATED: u64 = 2;

/// The failed TLS handshakes.
#[derive(Debug, Default)]
pub struct Rejections(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    last: Option<Rejection>,
    all: Addresses,
    /// Clients to which this server's authority is unknown. Kept apart, so that other failures do not displace them.
    distrusting: Addresses,
    /// Clients for which this server's certificate has expired, or is not valid yet.
    misdating: Addresses,
}

/// A failed TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The address of the client.
    pub address: SocketAddr,
    /// Why it failed.
    pub reason: String,
    /// When it failed.
    pub at: Instant,
}

/// The last failed handshake of each address, with their number.
#[derive(Debug, Default)]
struct Addresses(BTreeMap<IpAddr, (Rejection, u64)>);

impl Rejections {
    /// The handshake that failed last.
    pub fn last(&self) -> Option<Rejection> {
        self.0.lock().last.clone()
    }

    /// The last failed handshake of each address in the last minutes, newest first, with the number of its failed
    /// handshakes. At most 20.
    pub fn recent(&self, now: Instant) -> Vec<(Rejection, u64)> {
        let mut state = self.0.lock();
        state.all.forget_quiet(now);
        let mut recent: Vec<_> = state.all.0.values().cloned().collect();
        recent.sort_by_key(|(last, _)| Reverse(last.at));
        recent.truncate(MAX_RECENT);
        recent
    }

    /// The addresses whose clients reject this server's certificate again and again, because they do not know
    /// its authority; with the number of their handshakes.
    pub fn distrusting(&self, now: Instant) -> Vec<(IpAddr, u64)> {
        self.0.lock().distrusting.repeated(now)
    }

    /// The addresses whose clients reject it because, by their clock, it has expired or is not
    /// valid yet.
    pub fn misdating(&self, now: Instant) -> Vec<(IpAddr, u64)> {
        self.0.lock().misdating.repeated(now)
    }

    pub(crate) fn note(&self, address: SocketAddr, error: &io::Error, now: Instant) {
        let rejection = Rejection { address, reason: reason(error), at: now };
        let mut state = self.0.lock();
        match received_alert(error) {
            // An authority of the same name with a different key makes a signature that does not verify.
            Some(AlertDescription::UnknownCA | AlertDescription::DecryptError) => {
                state.distrusting.note(&rejection);
            }
            // BoringSSL and rustls send it also for a certificate that is not valid yet.
            Some(AlertDescription::CertificateExpired) => state.misdating.note(&rejection),
            _ => {}
        }
        state.all.note(&rejection);
        state.last = Some(rejection);
    }
}

impl Addresses {
    fn note(&mut self, rejection: &Rejection) {
        let (known, address) = (&mut self.0, rejection.address.ip().to_canonical());
        if known.len() >= MAX_ADDRESSES && !known.contains_key(&address) {
            let oldest = known.iter().min_by_key(|(_, (last, _))| last.at).map(|one| *one.0);
            if let Some(oldest) = oldest {
                known.remove(&oldest);
            }
        }
        let (last, count) = known.entry(address).or_insert_with(|| (rejection.clone(), 0));
        last.clone_from(rejection);
        *count += 1;
    }

    fn forget_quiet(&mut self, now: Instant) {
        self.0.retain(|_, (last, _)| now < last.at + KEPT);
    }

    fn repeated(&mut self, now: Instant) -> Vec<(IpAddr, u64)> {
        self.forget_quiet(now);
        let repeated = self.0.iter().filter(|(_, (_, count))| *count >= REPEATED);
        repeated.map(|(address, (_, count))| (*address, *count)).collect()
    }
}

/// Why a handshake failed: what the client rejects, or the error of TLS.
pub(crate) fn reason(error: &io::Error) -> String {
    match received_alert(error) {
        Some(alert @ (AlertDescription::UnknownCA | AlertDescription::DecryptError)) => {
            format!(
                "the client does not trust the control plane's certificate authority \
                 (TLS alert {alert:?})"
            )
        }
        Some(alert @ AlertDescription::CertificateExpired) => {
            format!(
                "the client rejects the control plane's certificate as expired or not yet valid \
                 (TLS alert {alert:?})"
            )
        }
        _ => error.to_string(),
    }
}

/// The alert by which the client ended the handshake.
fn received_alert(error: &io::Error) -> Option<AlertDescription> {
    match error.get_ref()?.downcast_ref()? {
        rustls::Error::AlertReceived(alert) => Some(*alert),
        _ => None,
    }
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
    async fn repeated_unknown_ca_alerts_are_counted_by_address() {
        let (rejections, now) = (Rejections::default(), Instant::now());
        assert_eq!(rejections.last(), None);
        for _ in 0..3 {
            rejections.note(client(1), &alert(AlertDescription::UnknownCA), now);
            rejections.note(client(2), &alert(AlertDescription::CertificateExpired), now);
            rejections.note(client(3), &io::ErrorKind::UnexpectedEof.into(), now);
            rejections.note(client(6), &alert(AlertDescription::BadCertificate), now);
        }
        rejections.note(client(4), &alert(AlertDescription::UnknownCA), now);
        rejections.note(client(5), &alert(AlertDescription::DecryptError), now);
        rejections.note(client(5), &alert(AlertDescription::DecryptError), now);
        let expected = [(client(1).ip(), 3), (client(5).ip(), 2)];
        assert_eq!(rejections.distrusting(now), expected);
        let misdating = [(client(2).ip(), 3)];
        assert_eq!(rejections.misdating(now), misdating);
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

    #[tokio::test(start_paused = true)]
    async fn recent_failures_are_listed_newest_first_and_bounded() {
        let (rejections, now) = (Rejections::default(), Instant::now());
        let at = |second: u16| now + Duration::from_secs(second.into());
        let broken = io::Error::from(io::ErrorKind::UnexpectedEof);
        for one in 0..30 {
            rejections.note(client(one), &broken, at(one));
        }
        let mapped = SocketAddr::new("::ffff:10.0.0.5".parse().unwrap(), 1);
        rejections.note(mapped, &alert(AlertDescription::UnknownCA), at(30));
        let recent = rejections.recent(at(30));
        assert_eq!(recent.len(), MAX_RECENT);
        let (last, count) = &recent[0];
        assert_eq!((last.address, *count), (mapped, 2), "the same address");
        assert!(last.reason.contains("UnknownCA"), "{}", last.reason);
        assert_eq!(recent[1].0.address, client(29));
        assert!(rejections.recent(at(30) + KEPT).is_empty());
    }
}
