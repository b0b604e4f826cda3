//! Loopback addresses that belong to one demo alone.
//!
//! Ports such as 15003 are fixed, and the demo has five of each. All of 127.0.0.0/8 is on the
//! loopback interface, so every demo takes a network of its own in it.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener};

use crate::error::DemoError;
use crate::holder::{Holder, holder_of};

/// One network 127.42.N.0/24, for as long as this value lives.
#[derive(Debug)]
pub(crate) struct Network {
    number: u8,
    /// Holds the network against other demos. The system lets go of it even if we are killed.
    _claim: TcpListener,
}

impl Network {
    /// Claims the first network that nobody has, and in which nobody listens where we shall:
    /// `needed` tells the hosts and ports.
    pub(crate) fn claim(needed: &[(u8, u16)]) -> Result<Self, DemoError> {
        let mut in_the_way = socket(u8::MAX, CLAIM_HOST, CLAIM_PORT);
        for number in 0..=u8::MAX {
            let address = socket(number, CLAIM_HOST, CLAIM_PORT);
            let Listening::Free(claim) = listen(address)? else {
                in_the_way = address;
                continue;
            };
            let places = needed.iter().map(|(host, port)| socket(number, *host, *port));
            match first_in_use(places)? {
                None => return Ok(Self { number, _claim: claim }),
                Some(address) => in_the_way = address,
            }
        }
        Err(DemoError::NoNetwork { address: in_the_way })
    }

    /// The first of these hosts and ports at which somebody listens.
    pub(crate) fn in_use(&self, places: &[(u8, u16)]) -> Result<Option<SocketAddr>, DemoError> {
        first_in_use(places.iter().map(|(host, port)| self.socket(*host, *port)))
    }

    /// The address of host `host`.
    pub(crate) fn host(&self, host: u8) -> IpAddr {
        self.socket(host, 0).ip()
    }

    /// Port `port` at host `host`.
    pub(crate) fn socket(&self, host: u8, port: u16) -> SocketAddr {
        socket(self.number, host, port)
    }

    /// `text`, which is written for the first network, as it reads in this one.
    pub(crate) fn localized(&self, text: &str) -> String {
        text.replace("127.42.0.", &format!("127.42.{}.", self.number))
    }
}

/// What became of listening on an address.
enum Listening {
    /// Nobody listens there, and we do for now.
    Free(TcpListener),
    /// Somebody does, on that address; the next network may be free.
    InNetwork,
}

/// The first of these places at which somebody listens.
fn first_in_use(places: impl Iterator<Item = SocketAddr>) -> Result<Option<SocketAddr>, DemoError> {
    for address in places {
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

fn named(holder: &Holder, port: u16) -> String {
    match &holder.process {
        Some(process) => format!("`{}` (process {})", process.command, process.id),
        None => {
            format!("a process of another user (as root, `ss -ltnp 'sport = :{port}'` tells which)")
        }
    }
}

fn socket(number: u8, host: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([127, 42, number, host], port))
}

const CLAIM_HOST: u8 = 254;
/// Above the ports that the system gives out by itself, and not below 1024, so that an ordinary user
/// may have it.
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
        let in_the_way = TcpListener::bind(first.socket(200, 8080)).unwrap();
        let place = in_the_way.local_addr().unwrap();
        assert_eq!(first.in_use(&[(201, 8080), (200, 8080)]).unwrap(), Some(place));
        drop(first);
        let second = Network::claim(&[(200, 8080)]).unwrap();
        assert_ne!(second.number, number);
        assert_eq!(second.in_use(&[(201, 8080), (200, 8080)]).unwrap(), None);
        drop(in_the_way);
    }

    #[test]
    fn process_holding_a_port_on_all_addresses_is_named() {
        // A port that nobody else needs: tests elsewhere on this machine go on.
        let stranger = TcpListener::bind("0.0.0.0:0").unwrap();
        let port = stranger.local_addr().unwrap().port();
        let told = Network::claim(&[(31, port)]).unwrap_err().to_string();
        // As much of the command as is told.
        let this = std::env::args().collect::<Vec<_>>().join(" ");
        let this: String = this.chars().take(80).collect();
        let process = format!("(process {})", std::process::id());
        // Whatever the network is, there is no use in going to the next one.
        let address = format!(".31:{port} is needed");
        for part in ["127.42.", &address, &format!("port {port} is in use at all"), &this, &process]
        {
            assert!(told.contains(part), "no {part:?} in {told}");
        }
    }
}
