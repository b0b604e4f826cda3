//! Renewal of a proxy's certificate, with the same key.

use std::path::Path;

use ironmesh_catalog::{ProxyId, ProxyName};
use ironmesh_cert::proxy_csr;
use ironmesh_enrollment::{
    CaHash, ControlPlaneAddress, Enrolled, EnrollmentClient, RenewRequest, RetryNotice,
};
use ironmesh_sidecar::Workload;
use ironmesh_sidecar::envoy;
use ironmesh_sidecar_folder::{ENROLLMENT, EnrollmentState, WORKLOAD, read_workload};
use jiff::Timestamp;
use serde_json::json;

use crate::due::due_at;
use crate::error::AgentError;
use crate::machine_folder::{MachineFolder, ProxyFiles};
use crate::mesh_check::ca_hashes;

/// When a run renews.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenewWhen {
    /// When the renewal is due: see [`due_at`].
    Due,
    /// At once.
    Now,
}

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RenewOutcome {
    /// The certificate is renewed later.
    NotDue {
        /// The proxy.
        id: ProxyId,
        /// From when on it is renewed.
        due_at: Timestamp,
        /// When it expires.
        expires_at: Timestamp,
    },
    /// The certificate is renewed.
    Renewed {
        /// The proxy.
        id: ProxyId,
        /// Its name.
        name: ProxyName,
        /// When the new certificate expires.
        expires_at: Timestamp,
        /// Whether the mesh has other roots than before, which were replaced, too.
        has_new_roots: bool,
    },
}

/// Renews the certificate in the folder of a proxy, if `when` says so.
///
/// A valid certificate renews itself. An expired one is renewed by proof of possession, for which the control plane
/// sets a limit. After a failure all files are as before. The addresses of the control plane are those in the folder,
/// unless `addresses` has some: they replace those in the folder, and a renewal is due if they differ. `retry_notice` is called once for each kind of request whose first attempt fails, if
/// others follow.
pub async fn renew(
    folder: &Path,
    when: RenewWhen,
    now: Timestamp,
    addresses: &[ControlPlaneAddress],
    retry_notice: RetryNotice,
) -> Result<RenewOutcome, AgentError> {
    let machine = MachineFolder::open(folder)?;
    let files = &machine.files;
    let (id, expires_at) = (files.proxy.identity.proxy, files.proxy.not_after);
    let (known, state) = files.enrollment(addresses)?;
    let due_at = due_at(&files.proxy, state.issued_at);
    let given: Vec<_> = addresses.iter().map(|one| (one.host.clone(), one.port)).collect();
    let given = EnrollmentState::new(&given, None).addresses;
    // The response has the addresses of xDS, which have changed as well if control planes were added or removed.
    let has_new_addresses = !given.is_empty() && given != state.addresses;
    if when == RenewWhen::Due && now < due_at && !has_new_addresses {
        return Ok(RenewOutcome::NotDue { id, due_at, expires_at });
    }
    let enrolled = request(files, known, folder, now, retry_notice).await?;
    if enrolled.id != id {
        let folder = folder.to_owned();
        return Err(AgentError::OtherProxy { folder, own: id, issued: enrolled.id });
    }
    let has_new_roots = enrolled.roots != files.roots.roots;
    let mut known_hashes = state.ca_hashes;
    known_hashes.extend(ca_hashes(&files.roots.roots));
    known_hashes.extend(ca_hashes(&enrolled.roots));
    known_hashes.sort();
    known_hashes.dedup();
    let state = EnrollmentState {
        issued_at: Some(enrolled.issued_at),
        ca_hashes: known_hashes,
        addresses: if has_new_addresses { given } else { state.addresses },
    };
    let state = state.to_json();
    let workload = updated_workload(folder, &enrolled)?;
    let mut files = vec![(ENROLLMENT, &*state)];
    if let Some(workload) = &workload {
        files.push((WORKLOAD, workload));
    }
    if has_new_roots {
        // Without roots Envoy would reject every control plane.
        CaHash::of_roots(&enrolled.roots).map_err(|error| AgentError::Content {
            path: folder.join(envoy::ROOTS),
            problem: format!("the control plane sent other roots, and its {error}"),
        })?;
        files.push((envoy::ROOTS, &enrolled.roots));
    }
    files.push((envoy::CERTIFICATE, &enrolled.certificate));
    machine.replace(&files)?;
    let Enrolled { name, expires_at, .. } = enrolled;
    Ok(RenewOutcome::Renewed { id, name, expires_at, has_new_roots })
}

/// The record of the workload with what the control plane says now, which the next start of the sidecar uses. None if it
/// says the same as before, or in a folder of an earlier version.
fn updated_workload(folder: &Path, enrolled: &Enrolled) -> Result<Option<String>, AgentError> {
    let Some(known) = read_workload(folder)? else { return Ok(None) };
    let (service, more_services) = match enrolled.services.split_first() {
        Some((first, more)) => (first.clone(), more.to_vec()),
        None => (known.service.clone(), known.more_services.clone()),
    };
    let updated = Workload {
        name: enrolled.name.clone(),
        service,
        more_services,
        control_plane: enrolled.control_plane.clone(),
        ..known.clone()
    };
    Ok((updated != known).then(|| format!("{:#}\n", json!(updated))))
}

/// Requests the new certificate.
async fn request(
    machine: &ProxyFiles,
    addresses: Vec<ControlPlaneAddress>,
    folder: &Path,
    now: Timestamp,
    retry_notice: RetryNotice,
) -> Result<Enrolled, AgentError> {
    let certificate_request = proxy_csr(&machine.identity.key)
        .map_err(|source| AgentError::Key { path: folder.join(envoy::KEY), source })?;
    let expires_at = machine.proxy.not_after;
    let failed = |source| AgentError::Renew { folder: folder.to_owned(), expires_at, source };
    let client = EnrollmentClient::new(addresses, machine.trust()).map_err(failed)?;
    let client = client.with_retry_notice(retry_notice);
    if now < expires_at {
        let request = RenewRequest { certificate_request: certificate_request.clone() };
        match client.renew(&machine.identity, &request).await {
            // The clock of this machine is late, or the certificate has expired by now.
            Err(error) if error.is_expired_certificate() => {}
            renewed => return renewed.map_err(failed),
        }
    }
    client.renew_expired(&machine.identity, &certificate_request).await.map_err(failed)
}
