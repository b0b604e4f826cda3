//! `ironmesh demo --check`: the whole story, with each step verified in real responses.

mod control_plane;
mod load;
mod policy;
mod report;
mod sample;
mod split;
mod tcp;
mod thief;

use ironmesh_catalog::text::chain;
use serde_json::json;
use tokio::time::{Duration, Instant, sleep};

use crate::error::{DemoError, Problem};
use crate::options::{DemoOptions, DemoOutput};
use crate::printer::{Printer, print_progress};
use crate::sidecars::listeners;
use crate::signals::Signals;
use crate::stage::Stage;
use crate::startup::start_mesh;
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
    BadPolicyRejected,
    ControlPlaneKilled,
    NothingLeft,
}

/// All steps, in order.
const STORY: [Step; 10] = [
    Step::MeshUp,
    Step::SplitAsShipped,
    Step::SplitMoved,
    Step::ThiefDenied,
    Step::ThiefAllowed,
    Step::ThiefDeniedOnKeptConnection,
    Step::Tcp,
    Step::BadPolicyRejected,
    Step::ControlPlaneKilled,
    Step::NothingLeft,
];

impl Step {
    /// The name in reports.
    fn name(self) -> &'static str {
        match self {
            Self::MeshUp => "mesh up",
            Self::SplitAsShipped => "split 90/10",
            Self::SplitMoved => "split 50/50",
            Self::ThiefDenied => "thief denied",
            Self::ThiefAllowed => "thief allowed",
            Self::ThiefDeniedOnKeptConnection => "thief denied on a kept connection",
            Self::Tcp => "TCP allowed and denied",
            Self::BadPolicyRejected => "bad policy rejected",
            Self::ControlPlaneKilled => "control plane killed under traffic",
            Self::NothingLeft => "nothing left",
        }
    }

    /// Runs the step.
    async fn play(self, stage: &mut Stage) -> Result<Seen, Problem> {
        match self {
            Self::MeshUp => mesh_up(stage).await,
            Self::SplitAsShipped => split::shipped_weights(stage).await,
            Self::SplitMoved => split::moved(stage).await,
            Self::ThiefDenied => thief::denied(stage).await,
            Self::ThiefAllowed => thief::allowed(stage).await,
            Self::ThiefDeniedOnKeptConnection => thief::denied_on_a_kept_connection(stage).await,
            Self::Tcp => tcp::allowed_and_denied(stage).await,
            Self::BadPolicyRejected => policy::bad_policy_rejected(stage).await,
            Self::ControlPlaneKilled => Box::pin(control_plane::killed_under_traffic(stage)).await,
            Self::NothingLeft => nothing_left(stage).await,
        }
    }
}

/// Plays the story until it is complete or a step fails.
pub(crate) async fn run(
    options: &DemoOptions,
    stage: &mut Stage,
    signals: &mut Signals,
) -> Result<(), DemoError> {
    let printer = Printer::start();
    let mut report = Report::new(stage.envoy.version, stage.policy.path());
    let begin = Instant::now();
    let result = tokio::select! {
        biased;
        () = signals.wait() => Err(DemoError::Interrupted),
        played = Box::pin(play_story(options, stage, &mut report, &printer)) => played,
    };
    skip_the_rest(&mut report);
    let problem = result.as_ref().err().map(|error| chain(error));
    let last = match options.output {
        DemoOutput::Text => report.summary(milliseconds(begin)),
        DemoOutput::Json => report.document(problem.as_deref()),
    };
    // A closed stdout does not change the result.
    let _ = printer.print(last).await;
    printer.finish().await;
    result
}

/// Prints the JSON report of a check that could not start. In text mode, stderr alone has the reason.
pub(crate) async fn report_not_started(options: &DemoOptions, error: &DemoError) {
    if options.output == DemoOutput::Json {
        let mut report = Report::default();
        skip_the_rest(&mut report);
        let printer = Printer::start();
        let _ = printer.print(report.document(Some(&chain(error)))).await;
        printer.finish().await;
    }
}

async fn play_story(
    options: &DemoOptions,
    stage: &mut Stage,
    report: &mut Report,
    printer: &Printer,
) -> Result<(), DemoError> {
    for step in STORY {
        if options.output == DemoOutput::Json {
            print_progress(step.name());
        }
        let begin = Instant::now();
        let played = step.play(stage).await;
        let line = report.add(step.name(), milliseconds(begin), &played);
        if options.output == DemoOutput::Text {
            let _ = printer.print(line).await;
        }
        if let Err(Problem(problem)) = played {
            return Err(DemoError::NotPassed { step: step.name().to_owned(), problem });
        }
    }
    Ok(())
}

/// Reports all remaining steps as not run.
fn skip_the_rest(report: &mut Report) {
    for step in STORY.iter().skip(report.steps()) {
        report.skip(step.name());
    }
}

async fn mesh_up(stage: &mut Stage) -> Result<Seen, Problem> {
    let startup = start_mesh(stage, print_progress).await?;
    let line =
        format!("5 proxies enrolled, first answer to the buyer after {} ms", startup.first_answer);
    Ok(Seen::new(line, json!({ "proxies": 5, "first_answer_ms": startup.first_answer })))
}

/// Ends all parts, and verifies that every address is free and the folder is gone.
async fn nothing_left(stage: &mut Stage) -> Result<Seen, Problem> {
    let programs = stage.programs();
    stage.end().await;
    stage.close();
    let addresses = listeners();
    let begin = Instant::now();
    // The demo's own applications release their addresses after a moment.
    while let Some(address) = stage.network.in_use(&addresses)? {
        ensure(begin.elapsed() < MOMENT, || format!("{address} is still in use"))?;
        sleep(PAUSE).await;
    }
    let folder = stage.folder();
    let is_removed = folder.remove().await;
    ensure(is_removed, || format!("{} still exists", folder.path().display()))?;
    let line = format!(
        "{programs} programs ended, all {} addresses are free, and the working folder is removed",
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
