//! Requests and renewals of the certificate of one secret.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::ServiceSecret;
use ironmesh_catalog::backoff::Backoff;
use ironmesh_catalog::text::chain;
use ironmesh_cert::generate_proxy_key_and_csr;
use ironmesh_enrollment::{EnrollmentClient, ServiceCertificateRequest};
use jiff::Timestamp;
use tokio::time::sleep;

use super::table::CertificateTable;
use super::workload_identity::WorkloadIdentity;
use crate::error::AgentError;
use crate::machine_folder::ProxyFiles;
use crate::settings::AgentSettings;

/// The waits after failures. The control plane blocks an address after 20 rejected requests in a minute.
const LEAST_WAIT: Duration = Duration::from_secs(2);
const MOST_WAIT: Duration = Duration::from_secs(300);

/// The longest wait while Envoy has no certificate, or one that has expired.
const MOST_URGENT_WAIT: Duration = Duration::from_secs(30);

/// The longest sleep: the wall clock may be set.
const MOST_SLEEP: Duration = Duration::from_secs(60);

/// The time limit of a request.
const REQUEST_LIMIT: Duration = Duration::from_secs(20);

/// Keeps the certificate of a secret valid while a stream asks for it.
pub(super) async fn renew_while_requested(
    secret: ServiceSecret,
    settings: AgentSettings,
    table: Arc<CertificateTable>,
) {
    let mut backoff = Backoff::new(LEAST_WAIT, MOST_WAIT);
    let mut own_account = table.own_account();
    let mut has_other_account = false;
    while table.continue_renewal(&secret) {
        let now = Timestamp::now();
        let held = table.held(&secret);
        let due_in = held.as_ref().map(|held| held.renew_at().duration_since(now));
        let due_in = due_in.and_then(|until| Duration::try_from(until).ok());
        // One success for each account that is stated: the control plane decides which one a request gets.
        if secret == ServiceSecret::Own && own_account.has_changed().unwrap_or_default() {
            let stated = own_account.borrow_and_update();
            let both = held.as_ref().zip(stated.as_ref());
            has_other_account = both.is_some_and(|(held, stated)| held.account != *stated);
        }
        if let Some(due_in) = due_in.filter(|until| !until.is_zero() && !has_other_account) {
            tokio::select! {
                () = sleep(due_in.min(MOST_SLEEP)) => {}
                Ok(()) = own_account.changed(), if secret == ServiceSecret::Own => own_account.mark_changed(),
            }
            continue;
        }
        match request(&secret, &settings, now).await {
            Ok(new) => {
                backoff.reset();
                has_other_account = false;
                let (account, expires_at) = (&new.account, new.leaf.not_after);
                tracing::info!(%secret, %account, %expires_at, "service certificate issued");
                table.replace(new);
            }
            Err(error) => {
                let is_urgent = held.is_none_or(|held| held.leaf.not_after <= now);
                let most = if is_urgent { MOST_URGENT_WAIT } else { MOST_WAIT };
                let (wait, text) = (backoff.step().min(most), chain(&error));
                tracing::error!(%secret, error = text, retry_in = ?wait, "cannot get a service certificate");
                table.failed(&format!("{secret}: {text}"), now);
                sleep(wait).await;
            }
        }
    }
}

/// Requests a certificate for a new key, which stays in this process until the certificate has passed its check.
async fn request(
    secret: &ServiceSecret,
    settings: &AgentSettings,
    now: Timestamp,
) -> Result<WorkloadIdentity, AgentError> {
    let files = ProxyFiles::read(&settings.folder)?;
    let (addresses, _) = files.enrollment(&settings.control_plane)?;
    let action = "get a service certificate";
    let failed = |source| AgentError::ControlPlane { action, source };
    let client = EnrollmentClient::new(addresses, files.trust()).map_err(failed)?;
    let client = client.without_retries().with_time_limit(REQUEST_LIMIT);
    let (key, csr) = generate_proxy_key_and_csr().map_err(|error| failed(error.into()))?;
    let request = ServiceCertificateRequest { secret: secret.to_string(), csr };
    let issued = client.issue_service_certificate(&files.identity, &request).await;
    let issued = issued.map_err(failed)?;
    let held = WorkloadIdentity::verify(
        secret.clone(),
        issued.account,
        issued.chain,
        key,
        now,
        &files,
        Timestamp::now(),
    );
    held.map_err(|source| AgentError::UnusableServiceCertificate { secret: secret.clone(), source })
}
