//! `ironmesh demo --check`: the whole story, each step of it seen in real responses.

mod control_plane;
mod load;
mod policy;
mod report;
mod sample;
mod split;
mod tcp;
mod thief;

use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use crate::error::{DemoError, Problem, chain};
use crate::options::{Options, Output};
use crate::printer::{Printer, tell};
use crate::rise::rise;
use crate::sidecars::listeners;
use crate::signals::Signals;
use crate::stage::Stage;
use crate::waiting::{ensure, milliseconds};
use report::{Report, Seen};

/// One step of the story.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    MeshUp,
    SplitAsShipped,
    SplitMoved,
    ThiefDenied,
    ThiefAllowed,
    ThiefDeniedOnKeptConnection,
    Tcp,
    BadPolicyRefused,
    ControlPlaneKilled,
    NothingLeft,
}

/// The steps, in their order.
const STORY: [Step; 10] = [
    Step::MeshUp,
    Step::SplitAsShipped,
    Step::SplitMoved,
    Step::ThiefDenied,
    Step::ThiefAllowed,
    Step::ThiefDeniedOnKeptConnection,
    Step::Tcp,
    Step::BadPolicyRefused,
    Step::ControlPlaneKilled,
    Step::NothingLeft,
];

impl Step {
    fn name(self) -> &'static str {
        match self {
            Self::MeshUp => "mesh up",
            Self::SplitAsShipped => "split 90/10",
            Self::SplitMoved => "split 50/50",
            Self::ThiefDenied => "thief denied",
            Self::ThiefAllowed => "thief allowed",
            Self::ThiefDeniedOnKeptConnection => "thief denied on a kept connection",
            Self::Tcp => "TCP allowed and denied",
            Self::BadPolicyRefused => "bad policy refused",
            Self::ControlPlaneKilled => "control plane killed under traffic",
            Self::NothingLeft => "nothing left",
        }
    }

    async fn play(self, stage: &mut Stage) -> Result<Seen, Problem> {
        match self {
            Self::MeshUp => mesh_up(stage).await,
            Self::SplitAsShipped => split::as_shipped(stage).await,
            Self::SplitMoved => split::moved(stage).await,
            Self::ThiefDenied => thief::denied(stage).await,
            Self::ThiefAllowed => thief::allowed(stage).await,
            Self::ThiefDeniedOnKeptConnection => thief::denied_on_a_kept_connection(stage).await,
            Self::Tcp => tcp::allowed_and_denied(stage).await,
            Self::BadPolicyRefused => policy::bad_policy_refused(stage).await,
            Self::ControlPlaneKilled => Box::pin(control_plane::killed_under_traffic(stage)).await,
            Self::NothingLeft => nothing_left(stage).await,
        }
    }
}

/// Tells the story until it is over, or a step was not as it should be.
pub(crate) async fn run(
    options: &Options,
    stage: &mut Stage,
    signals: &mut Signals,
) -> Result<(), DemoError> {
    let printer = Printer::start();
    let mut report = Report::new(stage.envoy.version, stage.policy.path());
    let begin = Instant::now();
    let result = tokio::select! {
        biased;
        () = signals.wait() => Err(DemoError::Interrupted),
        told = Box::pin(tell_story(options, stage, &mut report, &printer)) => told,
    };
    skip_the_rest(&mut report);
    let problem = result.as_ref().err().map(|error| chain(error));
    let last = match options.output {
        Output::Text => report.summary(milliseconds(begin)),
        Output::Json => report.document(problem.as_deref()),
    };
    // That nobody reads it does not change what is true.
    let _ = printer.print(last).await;
    printer.finish().await;
    result
}

/// Tells machines that the story could not begin. People are told why on stderr alone.
pub(crate) async fn tell_unbegun(options: &Options, error: &DemoError) {
    if options.output == Output::Json {
        let mut report = Report::default();
        skip_the_rest(&mut report);
        let printer = Printer::start();
        let _ = printer.print(report.document(Some(&chain(error)))).await;
        printer.finish().await;
    }
}

async fn tell_story(
    options: &Options,
    stage: &mut Stage,
    report: &mut Report,
    printer: &Printer,
) -> Result<(), DemoError> {
    for step in STORY {
        if options.output == Output::Json {
            tell(step.name());
        }
        let begin = Instant::now();
        let played = step.play(stage).await;
        let line = report.add(step.name(), milliseconds(begin), &played);
        if options.output == Output::Text {
            let _ = printer.print(line).await;
        }
        if let Err(Problem(problem)) = played {
            return Err(DemoError::NotPassed { step: step.name().to_owned(), problem });
        }
    }
    Ok(())
}

/// Tells of each step that has not been told of.
fn skip_the_rest(report: &mut Report) {
    for step in STORY.iter().skip(report.steps()) {
        report.skip(step.name());
    }
}

async fn mesh_up(stage: &mut Stage) -> Result<Seen, Problem> {
    let risen = rise(stage, tell).await?;
    let line =
        format!("5 proxies joined, the buyer's first answer came after {} ms", risen.first_answer);
    Ok(Seen::new(line, json!({ "proxies": 5, "first_answer_ms": risen.first_answer })))
}

/// Ends everything, and looks for it: whoever listened anywhere would be in our way there, and the
/// folder would be seen.
async fn nothing_left(stage: &mut Stage) -> Result<Seen, Problem> {
    let programs = stage.programs();
    stage.end().await;
    stage.close();
    let addresses = listeners();
    let begin = Instant::now();
    // Our own applications let go of theirs in a moment.
    while let Some(address) = stage.network.in_use(&addresses)? {
        ensure(begin.elapsed() < MOMENT, || format!("somebody listens on {address} still"))?;
        sleep(PAUSE).await;
    }
    let folder = stage.folder();
    let is_removed = folder.remove().await;
    ensure(is_removed, || format!("{} is there still", folder.path().display()))?;
    let line = format!(
        "{programs} programs ended, nobody listens on any of {} addresses, and the working folder \
         is gone",
        addresses.len()
    );
    let figures = json!({
        "programs": programs,
        "addresses_free": addresses.len(),
        "folder_removed": is_removed,
    });
    Ok(Seen::new(line, figures))
}

const MOMENT: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);
