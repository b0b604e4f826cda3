//! A DNS server for names and IPv4 addresses that a test sets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

/// A DNS server on UDP that runs for as long as this value lives.
#[derive(Debug)]
pub struct NameServer {
    names: Arc<Mutex<BTreeMap<String, Vec<IpAddr>>>>,
    task: JoinHandle<()>,
}

impl NameServer {
    /// Starts a server without names.
    pub async fn start(address: SocketAddr) -> Self {
        let socket = UdpSocket::bind(address).await.unwrap();
        let names = Arc::new(Mutex::new(BTreeMap::new()));
        let task = tokio::spawn(serve(socket, Arc::clone(&names)));
        Self { names, task }
    }

    /// Sets the address of a name.
    pub fn set(&self, name: &str, address: IpAddr) {
        self.set_all(name, &[address]);
    }

    /// Sets several addresses of a name, answered in this order.
    pub fn set_all(&self, name: &str, addresses: &[IpAddr]) {
        self.names.lock().insert(name.to_owned(), addresses.to_vec());
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(socket: UdpSocket, names: Arc<Mutex<BTreeMap<String, Vec<IpAddr>>>>) {
    let mut query = [0; 512];
    loop {
        let Ok((length, from)) = socket.recv_from(&mut query).await else { continue };
        let answer = query.get(..length).and_then(|query| answer(query, &names.lock()));
        if let Some(answer) = answer {
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// The answer to a query (RFC 1035, section 4): A records with a TTL of one second, no record for
/// other types, or NXDOMAIN. `None` for bytes that are no query.
fn answer(query: &[u8], names: &BTreeMap<String, Vec<IpAddr>>) -> Option<Vec<u8>> {
    let (header, mut rest) = query.split_at_checked(12)?;
    let mut labels = Vec::new();
    let question = loop {
        let (length, behind) = rest.split_first()?;
        if *length == 0 {
            break behind.get(..4)?;
        }
        let (label, behind) = behind.split_at_checked(usize::from(*length))?;
        labels.push(String::from_utf8(label.to_ascii_lowercase()).ok()?);
        rest = behind;
    };
    let end = query.len() - rest.len() + 5;
    let known = names.get(&labels.join("."));
    let wants_ipv4 = question.get(..2)? == [0, 1];
    let addresses = known.filter(|_| wants_ipv4).map_or(&[][..], Vec::as_slice);
    let addresses: Vec<_> = addresses
        .iter()
        .filter_map(|address| match address {
            IpAddr::V4(address) => Some(address.octets()),
            IpAddr::V6(_) => None,
        })
        .collect();
    let count = u8::try_from(addresses.len()).ok()?;
    let code = if known.is_some() { 0 } else { 3 };
    let mut answer = header.get(..2)?.to_vec();
    answer.extend([0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0]);
    answer.extend(query.get(12..end)?);
    for address in addresses {
        // The name is a pointer to the question; type A, class IN, TTL 1 s, four bytes.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
        answer.extend(address);
    }
    Some(answer)
}
