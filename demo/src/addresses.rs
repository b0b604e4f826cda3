//! The loopback addresses of one demo.
//!
//! Ports such as 15003 are fixed, and the demo needs each of them five times. All of 127.0.0.0/8 is on the loopback
//! interface, so each demo claims its own network there.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};

use crate::error::DemoError;
use crate::holder::{PortHolder, holder_of};

/// A network 127.42.N.0/24, claimed for the lifetime of this value.
#[derive(Debug)]
pub(crate) struct Network {
    number: u8,
    /// Holds the claim against other demos. The system releases it even after SIGKILL.
    _claim: TcpListener,
}

impl Network {
    /// Claims the first unclaimed network in which all `needed` hosts and ports are free.
    pub(crate) fn claim(needed: &[(u8, u16)]) -> Result<Self, DemoError> {
        let mut conflict = socket(u8::MAX, CLAIM_HOST, CLAIM_PORT);
        for number in 0..=u8::MAX {
            let address = socket(number, CLAIM_HOST, CLAIM_PORT);
            let Listening::Free(claim) = listen(address)? else {
                conflict = address;
                continue;
            };
            let sockets = needed.iter().map(|(host, port)| socket(number, *host, *port));
            match first_in_use(sockets)? {
                None => return Ok(Self { number, _claim: claim }),
                Some(address) => conflict = address,
            }
        }
        Err(DemoError::NoNetwork { address: conflict })
    }

    /// The first of these hosts and ports that is in use.
    pub(crate) fn in_use(&self, needed: &[(u8, u16)]) -> Result<Option<SocketAddr>, DemoError> {
        first_in_use(needed.iter().map(|(host, port)| self.socket(*host, *port)))
    }

    /// The address of host `host`.
    pub(crate) fn host(&self, host: u8) -> IpAddr {
        self.socket(host, 0).ip()
    }

    /// Port `port` at host `host`.
    pub(crate) fn socket(&self, host: u8, port: u16) -> SocketAddr {
        socket(self.number, host, port)
    }

    /// `text`, which has addresses of the first network, with the addresses of this one.
    pub(crate) fn localized(&self, text: &str) -> String {
        text.replace("127.42.0.", &format!("127.42.{}.", self.number))
    }
}

/// The result of listening on an address.
enum Listening {
    /// The address is free, and held by this listener.
    Free(TcpListener),
    /// The address is in use; the next network may be free.
    InNetwork,
}

/// The first of these addresses that is in use.
fn first_in_use(
    addresses: impl Iterator<Item = SocketAddr>,
) -> Result<Option<SocketAddr>, DemoError> {
    for address in addresses {
        if let Listening::InNetwork = listen(address)? {
            return Ok(Some(address));
        }
    }
    Ok(None)
}

fn listen(address: SocketAddr) -> Result<Listening, DemoError> {
    let source = match TcpListener::bind(address) {
        Ok(listener) => return Ok(Listening::Free(listener)),
        Err(error) => error,
    };
    if source.kind() != ErrorKind::AddrInUse {
        return Err(DemoError::Listen { address, source });
    }
    match holder_of(address) {
        Some(holder) if holder.is_at_all_addresses => {
            Err(DemoError::PortInUse { address, holder: named(&holder, address.port()) })
        }
        _ => Ok(Listening::InNetwork),
    }
}

fn named(holder: &PortHolder, port: u16) -> String {
    match &holder.process {
        Some(process) => format!("`{}` (process {})", process.command, process.id),
        None => {
            format!("a process of another user (as root, `ss -ltnp 'sport = :{port}'` shows it)")
        }
    }
}

fn socket(number: u8, host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 42, number, host], port))
}

const CLAIM_HOST: u8 = 254;
/// Above the ephemeral ports, and above 1024, so that an ordinary user may bind it.
const CLAIM_PORT: u16 = 61000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_demos_claim_different_networks() {
        let needed = [(21, 8080), (1, 15014)];
        let (one, other) = (Network::claim(&needed).unwrap(), Network::claim(&needed).unwrap());
        assert_ne!(one.number, other.number);
        assert_eq!(one.localized("127.42.0.22"), format!("127.42.{}.22", one.number));
    }

    #[test]
    fn network_with_a_port_in_use_is_skipped() {
        let first = Network::claim(&[]).unwrap();
        let number = first.number;
        let conflict = TcpListener::bind(first.socket(200, 8080)).unwrap();
        let place = conflict.local_addr().unwrap();
        assert_eq!(first.in_use(&[(201, 8080), (200, 8080)]).unwrap(), Some(place));
        drop(first);
        let second = Network::claim(&[(200, 8080)]).unwrap();
        assert_ne!(second.number, number);
        assert_eq!(second.in_use(&[(201, 8080), (200, 8080)]).unwrap(), None);
        drop(conflict);
    }

    #[test]
    fn process_holding_a_port_on_all_addresses_is_named() {
        // An unused port, so that other tests on this machine are not affected.
        let stranger = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = stranger.local_addr().unwrap().port();
        let error = Network::claim(&[(31, port)]).unwrap_err().to_string();
        // The shown part of the command.
        let this = std::env::args().collect::<Vec<_>>().join(" ");
        let this: String = this.chars().take(80).collect();
        let process = format!("(process {})", std::process::id());
        // The port is in use in all networks, so the next one would not help.
        let address = format!(".31:{port} is needed");
        for part in ["127.42.", &address, &format!("port {port} is in use at all"), &this, &process]
        {
            assert!(error.contains(part), "no {part:?} in {error}");
        }
    }
}
