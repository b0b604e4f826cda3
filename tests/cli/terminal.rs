//! A program on a terminal of its own.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command};

use fs_err as fs;
use ironmesh_tests::eventually;
use rustix::io::{Errno, ioctl_fionbio, read};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The begin and the end of a picture that is redrawn in place.
const BEGIN: &str = "\x1b[?2026h";
const END: &str = "\x1b[?2026l";

/// A program on its own terminal. Dropping this value ends it.
pub(crate) struct TerminalProgram {
    master: OwnedFd,
    pub(crate) process: Child,
    text: String,
}

impl TerminalProgram {
    pub(crate) fn start(mut command: Command, environment: &[(&str, &str)]) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        ioctl_fionbio(&master, true).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let name = Path::new(name.to_str().unwrap());
        let slave = fs::OpenOptions::new().read(true).write(true).open(name).unwrap();
        let slave = || slave.file().try_clone().unwrap();
        command.stdin(slave()).stdout(slave()).stderr(slave());
        command.env_remove("NO_COLOR").envs(environment.iter().copied());
        Self { process: command.spawn().unwrap(), master, text: String::new() }
    }

    /// All output so far.
    pub(crate) fn text(&mut self) -> &str {
        let mut part = [0; 4096];
        loop {
            match read(&self.master, &mut part) {
                Ok(count @ 1..) => self.text.push_str(&String::from_utf8_lossy(&part[..count])),
                Err(Errno::INTR) => {}
                Ok(_) | Err(_) => return &self.text,
            }
        }
    }

    /// Waits until the output has `words`.
    pub(crate) async fn shows(&mut self, words: &str) -> String {
        eventually(&format!("{words:?} on the terminal"), async || {
            let text = self.text();
            if text.contains(words) { Ok(text.to_owned()) } else { Err(text.to_owned()) }
        })
        .await
    }

    /// The rows of the last whole picture, without escape sequences.
    pub(crate) fn picture(&mut self) -> Vec<String> {
        let Some((pictures, _)) = self.text().rsplit_once(END) else { return Vec::new() };
        let Some((_, picture)) = pictures.rsplit_once(BEGIN) else { return Vec::new() };
        let mut parts = picture.split('\x1b');
        let mut text = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part.find(|c: char| c.is_ascii_alphabetic()).unwrap();
            text.push_str(&part[end + 1..]);
        }
        text.lines().map(str::to_owned).collect()
    }

    /// Waits for a picture in which `is_expected` holds, and returns it.
    pub(crate) async fn picture_with(
        &mut self,
        what: &str,
        is_expected: impl Fn(&[String]) -> bool,
    ) -> Vec<String> {
        eventually(what, async || {
            let picture = self.picture();
            if is_expected(&picture) { Ok(picture) } else { Err(picture.join("\n")) }
        })
        .await
    }

    /// Changes the size of the terminal.
    pub(crate) fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.master, size).unwrap();
        // (The terminal is not the one that controls the process, so the kernel sends no signal.)
        self.signal(Signal::WINCH);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    /// Waits until the program ends, and returns its exit code.
    pub(crate) async fn end(&mut self) -> Option<i32> {
        let status = eventually("the end", async || {
            let text = self.text().to_owned();
            self.process.try_wait().unwrap().ok_or(text)
        })
        .await;
        status.code()
    }
}

impl Drop for TerminalProgram {
    fn drop(&mut self) {
        let pid = Pid::from_child(&self.process);
        // It may have ended by itself.
        let _ = kill_process(pid, Signal::KILL);
        let _ = self.process.wait();
    }
}
