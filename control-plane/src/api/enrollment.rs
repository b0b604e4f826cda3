//! The enrollment of proxies: checks the request against policy, issues the certificates and stores the join records, of
//! all proxies or of none.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_admin::ApiError;
use ironmesh_api::{BootstrapRequest, BootstrapResponse, EnrolledProxy, MAX_ENROLLMENTS};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    Finding, JoinRecord, ProxyCredentials, ProxyId, ProxyName, StoreError, reserved_ports,
};
use ironmesh_cert::PROXY_LIFETIME;
use jiff::Timestamp;
use uuid::Uuid;

use super::RunningControlPlane;
use crate::enrollment::{check_address, check_known_as, check_services};
use crate::proxy_names::{default_names, free_name, with_unnamed};
use crate::sidecars;
use crate::state_watch::unknown_authority;

impl RunningControlPlane {
    /// Enrolls the proxies of a request. Blocks on the store.
    pub(super) fn enroll(&self, request: &BootstrapRequest) -> Result<BootstrapResponse, ApiError> {
        self.check_enrollment(request)?;
        self.check_authority(request.new_authority)?;
        let driver = sidecars::choose(request.driver.as_ref(), &self.sidecar_class)
            .map_err(|unknown| ApiError::BadRequest(unknown.to_string()))?;
        let now = Timestamp::now();
        // Checked again under the register's lock; here, before certificates are issued in vain.
        if let Some(name) = &request.name {
            free_name(name, &self.register.all_records(), now).map_err(ApiError::BadRequest)?;
        }
        let mut neighbours: BTreeMap<SocketAddr, Vec<Arc<JoinRecord>>> = BTreeMap::new();
        let (mut enrolled, mut records, mut notes) = (Vec::new(), Vec::new(), BTreeSet::new());
        for record in self.register.records().values() {
            neighbours.entry(record.mesh_address).or_default().push(Arc::clone(record));
            let is_here = request.proxies.iter().any(|one| one.address == record.mesh_address.ip());
            if record.machine.is_some() && record.machine == request.machine && !is_here {
                let serves_too = record.services.iter().any(|one| request.services.contains(one));
                notes.extend(serves_too.then(|| {
                    format!(
                        "proxy {} is enrolled for the same machine, at {}: until one of the two is revoked, the control plane cannot determine which of them serves the endpoints there",
                        record.display_name(), record.mesh_address
                    )
                }));
            }
        }
        let mut control_plane = Vec::new();
        for enrollment in &request.proxies {
            let id = ProxyId(Uuid::new_v4());
            // Locked for one proxy at a time: other signing does not wait for all of them.
            let certificate = self.authority.lock().issue_proxy_certificate(
                &enrollment.certificate_request,
                id,
                &request.services,
                PROXY_LIFETIME,
                now,
            );
            let certificate = certificate.map_err(|error| ApiError::BadRequest(chain(&error)))?;
            let mesh_address = SocketAddr::new(enrollment.address, reserved_ports::MESH);
            let credentials =
                ProxyCredentials::new(certificate.key.clone(), certificate.issued(now));
            records.push(JoinRecord {
                credentials: Some(credentials),
                addresses: request.known_as.clone(),
                machine: request.machine,
                labels: request.labels.clone(),
                locality: request.locality.clone(),
                driver: driver.clone(),
                ..JoinRecord::new(
                    id,
                    request.services.clone(),
                    mesh_address,
                    now,
                    certificate.not_after,
                )
            });
            let expires_at = certificate.not_after;
            enrolled.push((id, certificate.chain, expires_at));
            let (control_plane_addresses, note) =
                self.xds_addresses.for_proxy_at(enrollment.address);
            control_plane = control_plane_addresses;
            notes.extend(note);
            notes.extend(neighbours.get(&mesh_address).into_iter().flatten().map(|neighbour| {
                let services: Vec<_> = neighbour.services.iter().map(ToString::to_string).collect();
                format!(
                    "proxy {} is already enrolled at this address, for {}: only one of the two can run there",
                    neighbour.display_name(),
                    services.join(", ")
                )
            }));
        }
        let roots = self.authority.lock().trust_bundle().roots;
        let names = self.add_records(request, &records, now)?;
        let proxies =
            enrolled.into_iter().zip(names).map(|((id, certificate, expires_at), name)| {
                EnrolledProxy { id, name, certificate, expires_at }
            });
        Ok(BootstrapResponse {
            proxies: proxies.collect(),
            roots,
            control_plane,
            control_plane_id: self.mesh.trust_domain.control_plane().0.to_string(),
            driver,
            issued_at: Some(now),
            enrollment: self.xds_addresses.of_enrollment(self.enrollment_address),
            notes: notes.into_iter().collect(),
        })
    }

    /// Stores the records of new proxies with the name of the request, or with default names; returns the names.
    fn add_records(
        &self,
        request: &BootstrapRequest,
        records: &[JoinRecord],
        now: Timestamp,
    ) -> Result<Vec<ProxyName>, ApiError> {
        let Some(first) = request.services.first() else { return Ok(Vec::new()) };
        let mut names = Vec::new();
        // Two requests at once never get one name, at different control planes either: the register stores names with a
        // condition, and calls this again.
        let added = self.register.enroll(|present| {
            names = if let Some(name) = &request.name {
                vec![free_name(name, present, now).map_err(EnrollError::Name)?]
            } else {
                default_names(first, records.len(), present).map_err(EnrollError::Name)?
            };
            let named = records.iter().cloned().zip(names.iter().cloned());
            let new = named.map(|(record, name)| JoinRecord { name: Some(name), ..record });
            Ok(with_unnamed(new.collect(), present, now))
        });
        added.map_err(|error| match error {
            EnrollError::Name(reason) => ApiError::BadRequest(reason),
            EnrollError::Store(error) => ApiError::Internal(chain(&error)),
        })?;
        Ok(names)
    }

    /// Rejects an enrollment after a loss of the state, which it would make permanent, proxy by proxy.
    pub(super) fn check_authority(&self, new_authority: bool) -> Result<(), ApiError> {
        let finding = unknown_authority(&self.hub).filter(Finding::is_error);
        match finding.filter(|_| !new_authority) {
            None => Ok(()),
            Some(finding) => {
                let help = finding.help.unwrap_or_default();
                Err(ApiError::BadRequest(format!("{}: {}\n{help}", finding.code, finding.message)))
            }
        }
    }

    /// Rejects a request for what policy does not define, or for what no machine has.
    fn check_enrollment(&self, request: &BootstrapRequest) -> Result<(), ApiError> {
        let reject = |reason: String| Err(ApiError::BadRequest(reason));
        let mut addresses = request.proxies.iter().map(|enrollment| enrollment.address);
        addresses.try_for_each(check_address).map_err(ApiError::BadRequest)?;
        check_known_as(&request.known_as, request.machine, request.proxies.len())
            .map_err(ApiError::BadRequest)?;
        if request.proxies.len() > 1 && request.name.is_some() {
            return reject("several proxies cannot have one name".to_owned());
        }
        if !(1..=MAX_ENROLLMENTS).contains(&request.proxies.len()) {
            return reject(format!("a request enrolls 1 to {MAX_ENROLLMENTS} proxies"));
        }
        let upstreams = request.upstreams.iter().map(|upstream| &upstream.service);
        let specification = self.policy.borrow().specification.clone();
        check_services(specification.as_deref(), &request.services, upstreams)
            .map_err(ApiError::BadRequest)
    }
}

/// Why new proxies are not added.
enum EnrollError {
    /// The requested name is in use, or no name.
    Name(String),
    Store(StoreError),
}

impl From<StoreError> for EnrollError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
