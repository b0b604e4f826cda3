//! `ironmesh policy wait`: waits until every proxy that a policy revision touches has ACKed it.

use anyhow::{Context as _, bail};
use ironmesh_admin::{Client, ClientError};
use ironmesh_api::{LaggardView, SyncState, WaitAnswer, WaitOutcome, WaitRequest};
use ironmesh_catalog::PolicyRevision;
use ironmesh_command_line::{Output, WaitArguments, WaitLimits, WaitOption};
use ironmesh_config_settings::PolicyLocation;
use ironmesh_config_sources::load_folder;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};
use ironmesh_views::proxies::nacked;

/// Waits for a revision.
pub(super) async fn wait(arguments: WaitArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    let client = resolved.client();
    let is_to_come = arguments.revision.as_deref().is_some_and(|one| is_in_folder(&resolved, one));
    let request = WaitRequest {
        revision: arguments.revision,
        may_become_active: is_to_come,
        ..WaitRequest::default()
    };
    let answer = until_synced(&client, request, arguments.limits).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&answer)?)?,
        Output::Text => print_answer(&answer)?,
    }
    fail_unless_synced(&answer, arguments.limits)
}

/// Whether the policy folder holds this revision: the control plane may not have read it yet.
fn is_in_folder(resolved: &ResolvedSettings, revision: &str) -> bool {
    // (The folder of a remote control plane is not here.)
    let PolicyLocation::Folder(folder) = &resolved.policy else { return false };
    if resolved.is_remote() {
        return false;
    }
    let loaded = load_folder(folder);
    loaded.is_ok_and(|loaded| loaded.revision.0.starts_with(revision))
}

/// The result of the wait after a change; `None` without a wait.
pub(super) type Waited = Option<Result<WaitAnswer, ClientError>>;

/// What a command has done with a revision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Nothing: the policy is rejected.
    Rejected,
    /// It was pushed to etcd, which the control plane follows.
    Pushed,
    /// The control plane activated it before its answer.
    Activated,
}

impl Change {
    /// A push, if the policy is accepted.
    pub(super) fn pushed(is_accepted: bool) -> Self {
        if is_accepted { Self::Pushed } else { Self::Rejected }
    }
}

/// Waits for a revision that a command has made the active one, if `option` says so.
pub(super) async fn after_change(
    client: &Client,
    revision: &PolicyRevision,
    option: WaitOption,
    change: Change,
) -> Waited {
    let limits = option.limits().filter(|_| change != Change::Rejected)?;
    let request = WaitRequest {
        revision: Some(revision.to_string()),
        may_become_active: change == Change::Pushed,
        was_active: change == Change::Activated,
        ..WaitRequest::default()
    };
    Some(until_synced(client, request, limits).await)
}

/// The answer in JSON; `null` without one.
pub(super) fn answer(waited: &Waited) -> Option<&WaitAnswer> {
    waited.as_ref()?.as_ref().ok()
}

/// Prints the outcome of a wait, and fails unless the revision is synced.
pub(super) fn finish(waited: Waited, option: WaitOption, output: Output) -> anyhow::Result<()> {
    let Some((answer, limits)) = waited.zip(option.limits()) else { return Ok(()) };
    let answer = answer.context("the change is made, and the wait for it failed")?;
    if output == Output::Text {
        print_answer(&answer)?;
    }
    fail_unless_synced(&answer, limits)
}

/// Waits for the revision of the request, and tells the operator so.
async fn until_synced(
    client: &Client,
    mut request: WaitRequest,
    limits: WaitLimits,
) -> Result<WaitAnswer, ClientError> {
    request.include_disconnected = limits.include_disconnected;
    client.wait_until_synced(request, limits.timeout, announce).await
}

/// Tells the operator what the wait is for.
#[expect(clippy::print_stderr, reason = "a notice beside the result")]
fn announce(answer: &WaitAnswer) {
    let WaitAnswer { outcome, revision, pending, .. } = answer;
    match outcome {
        WaitOutcome::NotActive if revision.is_empty() => {
            eprintln!("ironmesh: no policy is active yet");
        }
        WaitOutcome::NotActive => eprintln!("ironmesh: revision {revision} is not active yet"),
        _ if *pending == 0 && !answer.control_planes.is_empty() => {
            let hosts = answer.control_planes.join(", ");
            eprintln!("ironmesh: waiting for the proxies of the control planes {hosts}");
        }
        _ => {
            let proxies = proxies(*pending);
            eprintln!("ironmesh: waiting for {proxies} to ACK revision {revision}");
        }
    }
}

/// Prints the outcome, and the proxies that have not ACKed the revision.
fn print_answer(answer: &WaitAnswer) -> anyhow::Result<()> {
    let WaitAnswer { outcome, revision, pending, proxies, .. } = answer;
    if *outcome == WaitOutcome::Synced {
        outln!(
            "revision {revision} is synced: every connected proxy that it touches has ACKed it"
        )?;
    }
    if proxies.is_empty() {
        return Ok(());
    }
    outln!("{:<24}  {:<12}  {:<20}  SERVICES", "NAME", "STATE", "SINCE")?;
    for proxy in proxies {
        out!("{}", row(proxy))?;
    }
    if *pending > proxies.len() {
        outln!("… and {} more", pending - proxies.len())?;
    }
    Ok(())
}

/// Fails with the reason, unless the revision is synced.
fn fail_unless_synced(answer: &WaitAnswer, limits: WaitLimits) -> anyhow::Result<()> {
    let WaitAnswer { outcome, revision, superseded_by, pending, .. } = answer;
    let time = limits.timeout.as_secs_f64();
    match outcome {
        WaitOutcome::Synced => Ok(()),
        WaitOutcome::Superseded => {
            let by = superseded_by.as_deref().unwrap_or("unknown");
            bail!("revision {revision} is superseded: revision {by} is active")
        }
        WaitOutcome::NotActive if revision.is_empty() => {
            bail!("no policy is active after {time} s: `ironmesh status` shows why")
        }
        WaitOutcome::NotActive => {
            bail!("revision {revision} is not active after {time} s: `ironmesh status` shows why")
        }
        WaitOutcome::Pending if *pending == 0 && !answer.control_planes.is_empty() => {
            bail!(
                "the proxies of other control planes did not ACK revision {revision} in {time} s: run `ironmesh policy wait` \
                 at {}",
                answer.control_planes.join(", ")
            )
        }
        WaitOutcome::Pending if *pending == 0 => {
            bail!("the control plane is not ready after {time} s: `ironmesh status` shows why")
        }
        WaitOutcome::Pending => {
            bail!(
                "{} did not ACK revision {revision} in {time} s; it stays active: `ironmesh proxy show NAME` shows what \
                 a proxy lacks, and `ironmesh policy rollback REVISION` goes back",
                proxies(*pending)
            )
        }
    }
}

fn proxies(count: usize) -> String {
    if count == 1 { "1 proxy".to_owned() } else { format!("{count} proxies") }
}

/// The row of a proxy, followed by its NACKs.
fn row(proxy: &LaggardView) -> String {
    let services: Vec<_> = proxy.services.iter().map(ToString::to_string).collect();
    let state = match proxy.state {
        SyncState::Synced => "synced",
        SyncState::Updating => "updating",
        SyncState::Nacked => "NACK",
        SyncState::Held => "held",
        SyncState::Disconnected => "disconnected",
        SyncState::Reconnecting => "reconnecting",
    };
    let since = proxy.since.map_or_else(|| "-".to_owned(), |since| format!("{since:.0}"));
    let name = &proxy.name;
    let row = format!("{name:<24}  {state:<12}  {since:<20}  {}\n", services.join(", "));
    let lost = match (&proxy.state, &proxy.acked_revision) {
        (SyncState::Disconnected, Some(acked)) => {
            format!(
                "  its xDS stream ended before its ACK; the last revision that it ACKed is {acked}\n"
            )
        }
        (SyncState::Disconnected, None) => "  its xDS stream ended before its ACK\n".to_owned(),
        _ => String::new(),
    };
    proxy.nacks.iter().map(nacked).fold(row + &lost, |text, lines| text + &lines)
}
