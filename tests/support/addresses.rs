//! Loopback networks, one for each test.
//!
//! Some ports, such as 15003 and 15000, are fixed by the design, so the system cannot choose them
//! all. All of 127.0.0.0/8 is on the loopback interface. Each test therefore claims a network of
//! its own and uses the fixed ports there.

use std::net::{IpAddr, SocketAddr, TcpListener};

use uuid::Uuid;

/// One network 127.A.B.0/24, claimed for as long as this value lives.
#[derive(Debug)]
pub struct Loopback {
    network: [u8; 3],
    /// The claim: a second test fails to listen on the same address. The system releases it even if
    /// this process is killed.
    _claim: Option<TcpListener>,
}

impl Loopback {
    /// Claims a network that no other test on this machine holds.
    pub fn claim() -> Self {
        for _ in 0..1000 {
            let [first, second, ..] = *Uuid::new_v4().as_bytes();
            let network = [127, FIRST + first % (LAST - FIRST + 1), second];
            if let Ok(claim) = TcpListener::bind((address(network, CLAIM_HOST), CLAIM_PORT)) {
                return Self { network, _claim: Some(claim) };
            }
        }
        panic!("no free network found in 127.{FIRST}.0.0 to 127.{LAST}.255.0");
    }

    /// The network A.B.C.0/24 of network namespaces that the test has to itself. It needs no claim.
    pub fn in_namespaces(network: [u8; 3]) -> Self {
        Self { network, _claim: None }
    }

    /// The address of host `n` of the network, 1 to 253.
    pub fn host(&self, n: u8) -> IpAddr {
        address(self.network, n)
    }

    /// Port `port` at host `n`.
    pub fn socket(&self, n: u8, port: u16) -> SocketAddr {
        SocketAddr::new(self.host(n), port)
    }
}

fn address([a, b, c]: [u8; 3], n: u8) -> IpAddr {
    IpAddr::from([a, b, c, n])
}

/// Networks below this one are left for manual use.
const FIRST: u8 = 64;
const LAST: u8 = 250;
const CLAIM_HOST: u8 = 254;
/// Not below 1024, so that an unprivileged user may bind it.
const CLAIM_PORT: u16 = 61000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_claims_never_share_a_network() {
        let held: Vec<Loopback> = (0..20).map(|_| Loopback::claim()).collect();
        for (index, one) in held.iter().enumerate() {
            assert!(held.iter().skip(index + 1).all(|other| other.network != one.network));
            assert!(TcpListener::bind((one.host(CLAIM_HOST), CLAIM_PORT)).is_err());
            assert!(TcpListener::bind(one.socket(1, 15003)).is_ok());
        }
    }
}
