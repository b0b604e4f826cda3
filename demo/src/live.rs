//! `ironmesh demo`: the bookstore goes about its business, and people change its policy.

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
use crate::options::{Options, Output};
use crate::printer::{Printer, StdoutClosed, tell};
use crate::rise::rise;
use crate::signals::Signals;
use crate::stage::Stage;
use actors::Actors;
use events::{Event, Watch};
use facts::{Facts, Ground};
use screen::Screen;

/// Runs until it is told to end, or until nobody looks any more.
pub(crate) async fn run(
    options: &Options,
    stage: &mut Stage,
    signals: &mut Signals,
) -> Result<(), DemoError> {
    tokio::select! {
        biased;
        () = signals.wait() => return Ok(()),
        risen = Box::pin(rise(stage, tell)) => {
            risen.map_err(|Problem(problem)| DemoError::NotUp { problem })?;
        }
    }
    let printer = Printer::start();
    let result = tokio::select! {
        biased;
        () = signals.wait() => Ok(()),
        shown = Box::pin(show(options, stage, &printer)) => shown,
    };
    if stdout().is_terminal() {
        // Behind the `^C` of the terminal.
        let _ = printer.picture("\n".to_owned());
    }
    printer.finish().await;
    result
}

/// Shows what happens, until nobody looks any more.
async fn show(options: &Options, stage: &Stage, printer: &Printer) -> Result<(), DemoError> {
    let ground = Ground {
        policy_folder: stage.policy.path().to_owned(),
        admin: stage.admin(),
        envoy: stage.envoy.version,
    };
    let mut face = Face::new(options);
    let actors = Actors::start(stage);
    let mut watch = Watch::default();
    let mut pace = interval(PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut summary = Instant::now() + SUMMARY_EVERY;
    if face.begin(&ground, options, printer).await.is_err() {
        return Ok(());
    }
    loop {
        tokio::select! {
            // Nobody looks any more, and that is a good end.
            () = printer.closed() => return Ok(()),
            _ = pace.tick() => {}
        }
        stage.assert_running()?;
        let facts = actors.facts();
        if facts.policy.revision.is_none() {
            // The first answer of the control plane is under way.
            continue;
        }
        let events = watch.observe(&facts, &(options.now)());
        let is_due = Instant::now() >= summary;
        if is_due {
            summary = Instant::now() + SUMMARY_EVERY;
        }
        let shown = face.show(&ground, &facts, &events, is_due, options, printer).await;
        if shown == Err(StdoutClosed) {
            return Ok(());
        }
    }
}

/// How it is shown.
#[derive(Debug)]
enum Face {
    /// A picture that is drawn again and again.
    Screen(Box<Screen>),
    /// Lines for people.
    Lines,
    /// Lines for machines.
    Machine,
}

impl Face {
    fn new(options: &Options) -> Self {
        match options.output {
            Output::Json => Self::Machine,
            Output::Text if options.is_screen => {
                Self::Screen(Box::new(Screen::new(!options.is_colourless)))
            }
            Output::Text => Self::Lines,
        }
    }

    /// What is told before anything happens.
    async fn begin(
        &self,
        ground: &Ground,
        options: &Options,
        printer: &Printer,
    ) -> Result<(), StdoutClosed> {
        match self {
            // It is all in the picture.
            Self::Screen(_) => Ok(()),
            Self::Lines => printer.print(lines::begin(ground)).await,
            Self::Machine => printer.print(machine::begin(ground, &(options.now)())).await,
        }
    }

    async fn show(
        &mut self,
        ground: &Ground,
        facts: &Facts,
        events: &[Event],
        is_summary_due: bool,
        options: &Options,
        printer: &Printer,
    ) -> Result<(), StdoutClosed> {
        let now = (options.now)();
        let text: String = match self {
            Self::Screen(screen) => {
                let summary = is_summary_due.then(|| lines::summary(facts, &now));
                return screen.show(ground, facts, events, summary, printer).await;
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

/// How often is looked.
const PACE: Duration = Duration::from_millis(250);
const SUMMARY_EVERY: Duration = Duration::from_secs(5);
