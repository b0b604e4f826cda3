//! The service certificates of a machine: their keys are created here, and a local Envoy gets them by SDS.
//!
//! This module owns the workload keys, the requests and renewals of their certificates, the file that keeps both, and the
//! socket on which Envoy asks for them. It never sends a key to anyone but a process of its own user or root on this
//! machine, never answers without a certificate, and never takes one away: Envoy keeps what it has.
//!
//! ```text
//! Envoy ─► socket (own user) ─► SecretStream ◄── CertificateTable ◄── renewal, one task per secret ─► control plane
//!                                                     └──► certificate file (0600)
//! ```
//!
//! Three rules of Envoy (tried on 1.40) decide what a stream sends: an empty answer ends the warming of a listener without
//! a certificate, so silence is the only answer while there is none; a removal is ignored, so none is sent; a NACKed
//! secret leaves the earlier one in use.

mod certificate_file;
mod renewal;
mod sds_server;
mod sds_socket;
mod secret_stream;
mod table;
#[cfg(test)]
mod tests;
mod workload_identity;

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::activity::AgentState;
use crate::error::AgentError;
use crate::machine_folder::ProxyFiles;
use crate::serving::report_ports;
use crate::settings::AgentSettings;
use certificate_file::CertificateFile;
pub(crate) use table::CertificateTable;
use table::MAX_SECRETS;

/// Serves the service certificates of the enrolled proxy, and reports the ports that present them, until it is dropped,
/// which ends all streams.
///
/// # Errors
///
/// Fails if the socket cannot be bound or served. A control plane that does not answer is tried again.
pub(crate) async fn serve(settings: &AgentSettings, state: &AgentState) -> Result<(), AgentError> {
    let folder = &*settings.folder;
    let listener = sds_socket::bind(folder)?;
    let (wanted, mut requested) = mpsc::channel(MAX_SECRETS);
    let file = CertificateFile::of(folder);
    let kept = read_kept(folder, &file);
    let table = Arc::new(CertificateTable::new(kept, file, state.clone(), wanted));
    let stop = CancellationToken::new();
    // The streams of this enrollment end with it.
    let _stopped = stop.clone().drop_guard();
    let server = sds_server::serve(listener, folder, Arc::clone(&table), stop);
    let reports = report_ports(settings, &table, state);
    tokio::pin!(server, reports);
    let mut renewals = JoinSet::new();
    loop {
        tokio::select! {
            served = &mut server => return served,
            () = &mut reports => {}
            Some(secret) = requested.recv() => {
                renewals.spawn(renewal::renew_while_requested(secret, settings.clone(), Arc::clone(&table)));
            }
            Some(ended) = renewals.join_next() => {
                if let Err(error) = ended {
                    tracing::error!(%error, "renewal of a service certificate ended");
                }
            }
        }
    }
}

/// The kept certificates that peers still accept. Without the file, the machine requests new ones.
fn read_kept(folder: &Path, file: &CertificateFile) -> Vec<workload_identity::WorkloadIdentity> {
    let proxy = match ProxyFiles::read(folder) {
        Ok(files) => files,
        Err(error) => {
            tracing::warn!(reason = %error, "kept service certificates are not used");
            return Vec::new();
        }
    };
    file.read(&proxy, Timestamp::now())
}
