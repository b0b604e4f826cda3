//! `--watch`: reads a result each second. A terminal shows the current state in place; other output gets each change.

use std::env::args_os;
use std::ffi::OsStr;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use ironmesh_admin::ClientError;
use ironmesh_catalog::text::{chain, escape_output};
use ironmesh_command_line::Output;
use ironmesh_terminal::redraw::{Picture, Screen};
use ironmesh_terminal::stdout::write_if_open;
use ironmesh_terminal::table::age;
use jiff::Timestamp;
use rustix::process::{Signal, getpid, kill_process};
use serde_json::Value;
use tokio::signal::unix::{Signal as Handler, SignalKind, signal};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use crate::exit::ExitWith;

/// The poll interval, and that of the time in the header.
const INTERVAL: Duration = Duration::from_secs(1);

/// After this time without an answer, the shown state is outdated.
const OUTDATED_AFTER: Duration = Duration::from_secs(3);

/// A result that a command can watch.
pub(crate) trait Watched {
    /// What is read at once.
    type State;

    /// Reads the state.
    fn read(&self) -> impl Future<Output = anyhow::Result<Self::State>>;

    /// The state as JSON.
    fn json(&self, state: &Self::State, now: Timestamp) -> serde_json::Result<Value>;

    /// The state as text.
    fn text(&self, state: &Self::State, now: Timestamp) -> String;

    /// What differs between two states, if anything does. Values that follow from the time of day alone are no part of it.
    fn identity(&self, state: &Self::State, now: Timestamp) -> serde_json::Result<Value> {
        self.json(state, now)
    }

    /// The text of a new state for output that is no terminal: the time, and the whole state.
    fn changes(
        &self,
        _before: Option<&Self::State>,
        state: &Self::State,
        now: Timestamp,
    ) -> String {
        format!("{now:.0}\n{}\n", self.text(state, now))
    }
}

/// Shows the states of a result until stdout closes, or a signal ends the command.
///
/// After a first answer, a control plane that does not answer is polled further: it may be restarting.
pub(crate) async fn watch(watched: &impl Watched, output: Output) -> anyhow::Result<()> {
    match Screen::of_stdout().filter(|_| output == Output::Text) {
        Some(screen) => redraw(watched, screen).await,
        None => print_changes(watched, output).await,
    }
}

/// Prints each state that differs from the one before.
async fn print_changes(watched: &impl Watched, output: Output) -> anyhow::Result<()> {
    let mut shown = None;
    let mut is_unreachable = false;
    let mut polls = seconds();
    loop {
        polls.tick().await;
        let state = match watched.read().await {
            Ok(state) => state,
            Err(error) if shown.is_none() || is_rejection(&error) => return Err(error),
            Err(error) => {
                if !is_unreachable {
                    print_retry(&chain(error.as_ref()));
                }
                is_unreachable = true;
                continue;
            }
        };
        is_unreachable = false;
        let now = Timestamp::now();
        let identity = watched.identity(&state, now)?;
        let before = shown.as_ref();
        if before.is_some_and(|(before, _)| *before == identity) {
            continue;
        }
        let text = match output {
            Output::Json => format!("{}\n", watched.json(&state, now)?),
            Output::Text => watched.changes(before.map(|(_, before)| before), &state, now),
        };
        if !text.is_empty() && !write_if_open(format_args!("{text}"))? {
            return Ok(());
        }
        shown = Some((identity, state));
    }
}

#[expect(clippy::print_stderr, reason = "a notice beside the results")]
fn print_retry(error: &str) {
    eprintln!("ironmesh: {}; retrying", escape_output(error));
}

/// Redraws the current state on a terminal.
async fn redraw(watched: &impl Watched, screen: Screen) -> anyhow::Result<()> {
    let mut signals = Signals::install()?;
    let (mut polls, mut redraws) = (seconds(), seconds());
    let mut view = View { watched, screen, command: command(), shown: None, problem: None };
    loop {
        let mut poll = pin!(async {
            polls.tick().await;
            watched.read().await
        });
        let read = loop {
            let is_open = tokio::select! {
                read = &mut poll => break read,
                // The age of the shown state advances without an answer, too.
                _ = redraws.tick() => view.show()?,
                event = signals.next() => match event {
                    Event::End(signal) => {
                        let code = u8::try_from(128 + signal.as_raw()).unwrap_or(u8::MAX);
                        return Err(ExitWith(code).into());
                    }
                    Event::Suspend => {
                        view.screen.leave();
                        // Unlike SIGSTOP, the kernel drops this one where no shell could continue the process.
                        kill_process(getpid(), Signal::TTOU)?;
                        true
                    }
                    Event::Resize => view.show()?,
                },
            };
            if !is_open {
                return Ok(());
            }
        };
        match read {
            Ok(state) => {
                view.problem = None;
                view.shown = Some(Shown { state, at: Timestamp::now(), since: Instant::now() });
            }
            Err(error) if view.shown.is_none() || is_rejection(&error) => return Err(error),
            Err(error) => view.problem = Some(chain(error.as_ref())),
        }
        if !view.show()? {
            return Ok(());
        }
    }
}

/// What a terminal shows.
struct View<'a, W: Watched> {
    watched: &'a W,
    screen: Screen,
    command: String,
    shown: Option<Shown<W::State>>,
    /// Why the last poll got no answer.
    problem: Option<String>,
}

/// The last state, and when it was read.
struct Shown<S> {
    state: S,
    at: Timestamp,
    since: Instant,
}

impl<W: Watched> View<'_, W> {
    /// Shows the last state. Returns whether stdout is open.
    fn show(&mut self) -> anyhow::Result<bool> {
        let Some(Shown { state, at, since }) = &self.shown else { return Ok(true) };
        let now = Timestamp::now();
        let warning = match &self.problem {
            Some(problem) => Some(format!(": {problem}")),
            None => (since.elapsed() >= OUTDATED_AFTER).then(String::new),
        };
        let warning = warning.map(|problem| {
            format!("NO ANSWER since {at:.0} ({}), below is the last state{problem}", age(*at, now))
        });
        let header = format!("{now:.0}  every {}s: {}", INTERVAL.as_secs(), self.command);
        let text = self.watched.text(state, now);
        let (warning, text) = (warning.as_deref(), &*text);
        Ok(self.screen.show(Picture { header: &header, warning, text })?)
    }
}

/// The command line of this process.
fn command() -> String {
    let mut words = args_os();
    let program = words.next().unwrap_or_default();
    let program =
        Path::new(&program).file_name().unwrap_or_else(|| OsStr::new("ironmesh")).to_owned();
    let words = std::iter::once(program).chain(words);
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Whether the control plane answered, and does not give this result. A later answer would be the same.
fn is_rejection(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(ClientError::Rejected(_)))
}

fn seconds() -> Interval {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// What a signal means for a terminal that shows a picture.
enum Event {
    /// Restore the terminal, and exit as if this signal had ended the process.
    End(Signal),
    /// Restore the terminal, and stop until the shell continues the process.
    Suspend,
    /// Draw again, in the new size.
    Resize,
}

/// The handlers of the signals that a terminal sends.
struct Signals {
    interrupt: Handler,
    terminate: Handler,
    hangup: Handler,
    quit: Handler,
    suspend: Handler,
    resize: Handler,
}

impl Signals {
    fn install() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
            suspend: signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?,
            resize: signal(SignalKind::window_change())?,
        })
    }

    async fn next(&mut self) -> Event {
        tokio::select! {
            _ = self.interrupt.recv() => Event::End(Signal::INT),
            _ = self.terminate.recv() => Event::End(Signal::TERM),
            _ = self.hangup.recv() => Event::End(Signal::HUP),
            _ = self.quit.recv() => Event::End(Signal::QUIT),
            _ = self.suspend.recv() => Event::Suspend,
            _ = self.resize.recv() => Event::Resize,
        }
    }
}
