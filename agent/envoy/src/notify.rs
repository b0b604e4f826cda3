//! Messages to systemd (`sd_notify(3)`): readiness, status text, and signs of life.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The socket of systemd, if it started this process and wants messages.
#[derive(Debug)]
pub struct Notifier {
    socket: Option<UnixDatagram>,
    watchdog: Option<Duration>,
}

impl Notifier {
    /// Reads `NOTIFY_SOCKET`, and `WATCHDOG_USEC` if it is meant for this process.
    pub fn from_environment() -> Self {
        let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_own = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|_| is_own).map(Duration::from_micros);
        let path = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty());
        let socket = path.and_then(|path| {
            let connected = connect(path.as_bytes());
            connected
                .inspect_err(|error| tracing::warn!(reason = %error, "cannot reach systemd"))
                .ok()
        });
        Self { socket, watchdog }
    }

    /// Half of the time after which systemd kills a process without a sign of life.
    pub fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.filter(|_| self.socket.is_some()).map(|limit| limit / 2)
    }

    /// The process has started.
    pub fn ready(&self) {
        self.send("READY=1");
    }

    /// The process ends.
    pub fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// The process reads its settings again; [`Self::ready`] follows.
    pub fn reloading(&self) {
        self.send("RELOADING=1");
    }

    /// A sign of life, for the watchdog.
    pub fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    /// Sets the line that `systemctl status` shows.
    pub fn status(&self, text: &str) {
        self.send(&format!("STATUS={}", text.replace('\n', " ")));
    }

    fn send(&self, message: &str) {
        // systemd may restart: a lost message is no failure of Envoy.
        let _ = self.socket.as_ref().map(|socket| socket.send(message.as_bytes()));
    }
}

fn connect(path: &[u8]) -> io::Result<UnixDatagram> {
    let address = match path.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(path))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    // A full queue of systemd must not block the supervisor.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_reach_a_socket_of_either_kind() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let name = format!("ironmesh-notify-{}", std::process::id());
        let abstract_address = SocketAddr::from_abstract_name(&name).unwrap();
        for (systemd, path) in [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().as_bytes().to_vec()),
            (UnixDatagram::bind_addr(&abstract_address).unwrap(), format!("@{name}").into_bytes()),
        ] {
            let notifier = Notifier { socket: Some(connect(&path).unwrap()), watchdog: None };
            notifier.ready();
            notifier.status("two\nlines");
            let mut message = [0; 64];
            let length = systemd.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"READY=1");
            let length = systemd.recv(&mut message).unwrap();
            assert_eq!(&message[..length], b"STATUS=two lines");
        }
    }
}
