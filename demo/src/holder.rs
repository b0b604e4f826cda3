//! The process that listens on a port, as far as this user may see it.

use std::net::{IpAddr, SocketAddr};

use procfs::net::{TcpNetEntry, TcpState, tcp, tcp6};
use procfs::process::{FDTarget, all_processes};

/// The holder of a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PortHolder {
    /// Whether it listens on all addresses, not only on the given one.
    pub(crate) is_at_all_addresses: bool,
    /// The process; `None` if it belongs to a different user.
    pub(crate) process: Option<HoldingProcess>,
}

/// A listening process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HoldingProcess {
    pub(crate) id: i32,
    pub(crate) command: String,
}

/// The holder of `address`; `None` if the address is free, or `/proc` does not show it.
pub(crate) fn holder_of(address: SocketAddr) -> Option<PortHolder> {
    let entries = [tcp().unwrap_or_default(), tcp6().unwrap_or_default()].concat();
    let listening = |entry: &&TcpNetEntry| {
        entry.state == TcpState::Listen && entry.local_address.port() == address.port()
    };
    let at = |ip: IpAddr| entries.iter().filter(listening).find(|entry| plain(entry) == ip);
    let (entry, is_at_all_addresses) = match at(address.ip()) {
        Some(entry) => (entry, false),
        None => {
            (entries.iter().filter(listening).find(|entry| plain(entry).is_unspecified())?, true)
        }
    };
    Some(PortHolder { is_at_all_addresses, process: process_with(entry.inode) })
}

/// The address of a socket, with an IPv4-mapped address as IPv4.
fn plain(entry: &TcpNetEntry) -> IpAddr {
    entry.local_address.ip().to_canonical()
}

/// The process that has the socket with this inode open.
fn process_with(inode: u64) -> Option<HoldingProcess> {
    all_processes().ok()?.filter_map(Result::ok).find_map(|process| {
        let mut open = process.fd().ok()?.filter_map(Result::ok);
        open.find(|file| matches!(&file.target, FDTarget::Socket(found) if *found == inode))?;
        // Some processes have an empty command line; they have a short name.
        let command = process.cmdline().unwrap_or_default().join(" ");
        let command = match command.trim() {
            "" => process.stat().ok()?.comm,
            command => command.to_owned(),
        };
        Some(HoldingProcess { id: process.pid, command: shortened(&command) })
    })
}

/// The beginning of a command line, without control characters.
fn shortened(command: &str) -> String {
    let text: String =
        command.chars().filter(|c| !c.is_control()).take(MOST_CHARACTERS + 1).collect();
    match text.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

const MOST_CHARACTERS: usize = 80;

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn own_process_is_found_as_the_holder_of_its_port() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let holder = holder_of(address).unwrap();
        assert!(!holder.is_at_all_addresses);
        assert_eq!(holder.process.unwrap().id, i32::try_from(std::process::id()).unwrap());
        drop(listener);
        assert_eq!(holder_of(address), None);
    }

    #[test]
    fn wildcard_listener_is_found_as_the_holder_of_any_address() {
        for all in ["0.0.0.0:0", "[::]:0"] {
            // A machine may be without IPv6.
            let Ok(listener) = TcpListener::bind(all) else { continue };
            let port = listener.local_addr().unwrap().port();
            let holder = holder_of(SocketAddr::from(([127, 0, 0, 9], port))).unwrap();
            assert!(holder.is_at_all_addresses, "{all}");
            assert!(holder.process.is_some(), "{all}");
        }
    }

    #[test]
    fn long_command_is_shortened_without_control_characters() {
        assert_eq!(shortened("nc -l\u{1b}[2J"), "nc -l[2J");
        assert_eq!(shortened(&"é".repeat(100)).chars().count(), MOST_CHARACTERS + 1);
    }
}
