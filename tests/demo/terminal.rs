//! A pseudoterminal with a demo in its own session and foreground group.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::ExitStatus;

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::eventually::patience;
use rustix::io::{Errno, ioctl_fionbio, read, write};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::process::Child;
use tokio::time::timeout;

use crate::workspace::Workspace;

/// A terminal. Dropping this value closes it.
#[derive(Debug)]
pub(crate) struct Terminal {
    master: OwnedFd,
    bytes: Vec<u8>,
}

impl Terminal {
    /// A terminal of this size with `ironmesh demo` on it.
    pub(crate) fn open(workspace: &Workspace, columns: u16, lines: u16) -> (Self, Child) {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        // A blocking read would keep the terminal open when it should close.
        ioctl_fionbio(&master, true).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let name = Path::new(name.to_str().unwrap());
        let slave = fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
        let terminal = Self { master, bytes: Vec::new() };
        terminal.resize(columns, lines);
        // A session of its own, so that Ctrl-C and a hang-up reach the demo, even under `nohup`.
        let through = ["setsid", "--ctty", "env", "--default-signal=HUP"];
        let mut command = workspace.command_through(&through, &["demo"]);
        let slave = || slave.file().try_clone().unwrap();
        command.stdin(slave()).stdout(slave()).stderr(slave());
        let process = command.spawn().unwrap();
        (terminal, process)
    }

    /// Resizes the terminal.
    pub(crate) fn resize(&self, columns: u16, lines: u16) {
        let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).unwrap();
    }

    /// Types keys.
    pub(crate) fn enter(&self, keys: &[u8]) {
        assert_eq!(write(&self.master, keys), Ok(keys.len()));
    }

    /// All raw output so far.
    pub(crate) fn text(&mut self) -> String {
        let mut part = [0; 4096];
        loop {
            match read(&self.master, &mut part) {
                Ok(0) | Err(Errno::AGAIN | Errno::IO) => break,
                Ok(count) => self.bytes.extend(&part[..count]),
                Err(Errno::INTR) => {}
                Err(error) => panic!("the terminal cannot be read: {error}"),
            }
        }
        String::from_utf8_lossy(&self.bytes).into_owned()
    }

    /// Waits until `find` finds something in the output.
    pub(crate) async fn shows<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        eventually(what, async || {
            let text = self.text();
            find(&text).ok_or_else(|| format!("{text:?}"))
        })
        .await
    }

    /// Waits for the end of the process, and reads on as a terminal does.
    pub(crate) async fn end_of(&mut self, process: &mut Child) -> ExitStatus {
        eventually("the demo to end", async || {
            let text = self.text();
            process.try_wait().unwrap().ok_or(text)
        })
        .await
    }
}

/// Waits for the end of a demo without a terminal.
pub(crate) async fn end_of(process: &mut Child) -> ExitStatus {
    timeout(patience(), process.wait()).await.expect("it does not end").unwrap()
}
