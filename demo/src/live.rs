//! `ironmesh demo`: the bookstore runs continuously, and users edit its policy.

mod actors;
mod events;
mod facts;
mod hints;
mod lines;
mod machine;
mod picture;
#[cfg(test)]
mod samples;
mod screen;
mod table;

use std::io::{IsTerminal as _, stdout};
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::error::{DemoError, Problem};
use crate::options::{DemoOptions, DemoOutput};
use crate::printer::{Printer, StdoutClosed, print_progress};
use crate::signals::Signals;
use crate::stage::Stage;
use crate::startup::start_mesh;
use actors::Actors;
use events::{Event, Watch};
use facts::{DemoSetup, Facts};
use screen::Screen;

/// Runs until a signal ends it, or until stdout closes.
pub(crate) async fn run(
    options: &DemoOptions,
    stage: &mut Stage,
    signals: &mut Signals,
) -> Result<(), DemoError> {
    tokio::select! {
        biased;
        () = signals.wait() => return Ok(()),
        started = Box::pin(start_mesh(stage, print_progress)) => {
            started.map_err(|Problem(problem)| DemoError::NotUp { problem })?;
        }
    }
    let printer = Printer::start();
    let result = tokio::select! {
        biased;
        () = signals.wait() => Ok(()),
        shown = Box::pin(show(options, stage, &printer)) => shown,
    };
    if stdout().is_terminal() {
        // A line break after the `^C` of the terminal.
        let _ = printer.picture("\n".to_owned());
    }
    printer.finish().await;
    result
}

/// Shows what happens, until stdout closes.
async fn show(options: &DemoOptions, stage: &Stage, printer: &Printer) -> Result<(), DemoError> {
    let setup = DemoSetup {
        policy_folder: stage.policy.path().to_owned(),
        admin: stage.admin(),
        envoy: stage.envoy.version,
    };
    let mut presentation = Presentation::new(options);
    let actors = Actors::start(stage);
    let mut watch = Watch::default();
    let mut ticks = interval(REFRESH_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut summary = Instant::now() + SUMMARY_EVERY;
    if presentation.begin(&setup, options, printer).await.is_err() {
        return Ok(());
    }
    loop {
        tokio::select! {
            // A closed stdout is a normal end.
            () = printer.closed() => return Ok(()),
            _ = ticks.tick() => {}
        }
        stage.assert_running()?;
        let facts = actors.facts();
        if facts.policy.revision.is_none() {
            // The control plane has not answered yet.
            continue;
        }
        let events = watch.observe(&facts, &(options.now)());
        let is_due = Instant::now() >= summary;
        if is_due {
            summary = Instant::now() + SUMMARY_EVERY;
        }
        let shown = presentation.show(&setup, &facts, &events, is_due, options, printer).await;
        if shown == Err(StdoutClosed) {
            return Ok(());
        }
    }
}

/// The form of the output.
#[derive(Debug)]
enum Presentation {
    /// A picture that is redrawn in place.
    Screen(Box<Screen>),
    /// Lines for people.
    Lines,
    /// JSON lines for scripts.
    Machine,
}

impl Presentation {
    fn new(options: &DemoOptions) -> Self {
        match options.output {
            DemoOutput::Json => Self::Machine,
            DemoOutput::Text if options.is_screen => {
                Self::Screen(Box::new(Screen::new(!options.is_colorless)))
            }
            DemoOutput::Text => Self::Lines,
        }
    }

    /// Prints the introduction.
    async fn begin(
        &self,
        setup: &DemoSetup,
        options: &DemoOptions,
        printer: &Printer,
    ) -> Result<(), StdoutClosed> {
        match self {
            // The picture contains it.
            Self::Screen(_) => Ok(()),
            Self::Lines => printer.print(lines::begin(setup)).await,
            Self::Machine => printer.print(machine::begin(setup, &(options.now)())).await,
        }
    }

    /// Shows the events, and a summary if one is due.
    async fn show(
        &mut self,
        setup: &DemoSetup,
        facts: &Facts,
        events: &[Event],
        is_summary_due: bool,
        options: &DemoOptions,
        printer: &Printer,
    ) -> Result<(), StdoutClosed> {
        let now = (options.now)();
        let text: String = match self {
            Self::Screen(screen) => {
                let summary = is_summary_due.then(|| lines::summary(facts, &now));
                return screen.show(setup, facts, events, summary, printer).await;
            }
            Self::Lines => {
                let summary = is_summary_due.then(|| lines::summary(facts, &now));
                events.iter().map(lines::event).chain(summary).collect()
            }
            Self::Machine => {
                let summary = is_summary_due.then(|| machine::summary(facts, &now));
                events.iter().map(machine::event).chain(summary).collect()
            }
        };
        if text.is_empty() { Ok(()) } else { printer.print(text).await }
    }
}

/// The interval between two observations.
const REFRESH_INTERVAL: Duration = Duration::from_millis(250);
const SUMMARY_EVERY: Duration = Duration::from_secs(5);
