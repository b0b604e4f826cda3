//! The join of the running agent, repeated until the machine is enrolled.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use ironmesh_catalog::backoff::Backoff;
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{ProxyName, Secret};
use ironmesh_enrollment::MetadataService;
use ironmesh_sidecar::Admin;
use jiff::Timestamp;
use tokio::time::sleep;

use crate::activity::{AgentPhase, AgentState};
use crate::error::AgentError;
use crate::join::{JoinProof, MachineJoin, join as join_once};
use crate::settings::AgentSettings;

/// The most bytes that are read of a token file: more than any token has.
const MAX_TOKEN_FILE: u64 = 4096;

/// The interval in which the agent looks for a new token.
const TOKEN_INTERVAL: Duration = Duration::from_secs(5);

/// The waits between two joins.
const LEAST_WAIT: Duration = Duration::from_secs(2);
const MOST_WAIT: Duration = Duration::from_secs(60);

/// Where the proof of each attempt comes from.
#[derive(Debug, Clone, Copy)]
enum ProofSource<'a> {
    TokenFile(&'a Path),
    Azure(MetadataService),
}

impl ProofSource<'_> {
    fn proof(self) -> Result<JoinProof, AgentError> {
        match self {
            Self::TokenFile(file) => read_token(file).map(JoinProof::Token),
            Self::Azure(service) => Ok(JoinProof::Azure(service)),
        }
    }
}

/// Enrolls the machine. Returns when the folder of the proxy exists.
///
/// A control plane that cannot be reached, or is not the expected one, is tried again. After a rejected token the
/// agent waits until the file has another one: the same token again would raise an alarm.
pub(super) async fn join(
    settings: &AgentSettings,
    token_file: Option<&Path>,
    state: &AgentState,
) -> Result<(), AgentError> {
    let missing = |key| AgentError::NotConfigured { folder: settings.folder.clone(), key };
    if settings.control_plane.is_empty() {
        return Err(missing("control_plane"));
    }
    if settings.ca_hashes.is_empty() {
        return Err(missing("ca_hash"));
    }
    let source = match (settings.azure, token_file) {
        (Some(service), _) => ProofSource::Azure(service),
        (None, Some(file)) => ProofSource::TokenFile(file),
        (None, None) => return Err(missing("token_file")),
    };
    let metadata = settings.listeners.node_metadata()?;
    let mut backoff = Backoff::new(LEAST_WAIT, MOST_WAIT);
    let mut rejected: Option<Secret> = None;
    while !settings.folder.exists() {
        let proof = match source.proof() {
            Ok(JoinProof::Token(token)) if rejected.as_ref() == Some(&token) => {
                sleep(TOKEN_INTERVAL).await;
                continue;
            }
            Ok(proof) => proof,
            Err(error) => {
                state.enter(AgentPhase::WaitingForToken);
                report(&error, state);
                sleep(TOKEN_INTERVAL).await;
                continue;
            }
        };
        state.enter(AgentPhase::Joining);
        let request = MachineJoin {
            addresses: settings.control_plane.clone(),
            ca_hashes: settings.ca_hashes.clone(),
            proof: proof.clone(),
            address: settings.address,
            name: settings.name.clone().or_else(hostname),
            metadata: &metadata,
            admin: if settings.admin_tcp == Some(true) { Admin::Tcp } else { Admin::Socket },
            out: &settings.folder,
            retry_notice: |error, _| tracing::warn!(reason = error.brief(), "trying again"),
        };
        match Box::pin(join_once(request)).await {
            Ok(machine) => {
                state.succeeded();
                tracing::info!(proxy = %machine.name, id = %machine.id, service = %machine.service, "the machine is enrolled");
                for note in machine.notes {
                    tracing::info!(note, "note of the control plane");
                }
            }
            Err(error) if error.is_rejected_token() => {
                state.enter(AgentPhase::WaitingForToken);
                report(&error, state);
                if let JoinProof::Token(token) = proof {
                    rejected = Some(token);
                }
            }
            Err(error) => {
                report(&error, state);
                sleep(backoff.step()).await;
            }
        }
    }
    Ok(())
}

/// The hostname as a name; none if it has characters that a name has not.
fn hostname() -> Option<ProxyName> {
    let system = rustix::system::uname();
    system.nodename().to_str().ok()?.to_lowercase().parse().ok()
}

/// Notes and logs an error, once while it stays the same.
fn report(error: &AgentError, state: &AgentState) {
    let text = chain(error);
    let is_known = state.activity().errors.back().is_some_and(|last| last.error == text);
    state.failed(&text, Timestamp::now());
    if !is_known {
        tracing::error!(error = text, "the machine is not enrolled yet");
    }
}

fn read_token(file: &Path) -> Result<Secret, AgentError> {
    let mut text = String::new();
    let read = fs_err::File::open(file)
        .and_then(|file| file.take(MAX_TOKEN_FILE).read_to_string(&mut text));
    let secret = Secret::new(text);
    match read {
        Ok(_) if secret.expose().trim().is_empty() => {
            Err(AgentError::NoToken { file: file.to_owned() })
        }
        Ok(_) => Ok(secret),
        Err(source) => {
            Err(AgentError::File { action: "read the token", path: file.to_owned(), source })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// systemd passes an empty credential if there is no file.
    #[test]
    fn empty_token_file_is_reported_as_such() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("token");
        for (text, is_token) in [("", false), (" \n", false), ("token\n", true)] {
            fs_err::write(&file, text).unwrap();
            let read = read_token(&file);
            let is_none =
                matches!(&read, Err(AgentError::NoToken { file: named }) if *named == file);
            assert_eq!((read.is_ok(), is_none), (is_token, !is_token), "{text:?}");
        }
    }
}
