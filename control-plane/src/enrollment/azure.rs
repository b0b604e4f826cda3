//! Enrollment by Azure's attested document: the first use binds the machine's `vmId`.
//!
//! The document proves the `vmId` alone. All else comes from the machine as the provider shows it, and from policy:
//! never from the words of the machine.

use std::collections::BTreeSet;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    Actor, AzureBinding, DriverName, JoinRecord, JournalKind, JournalSubject, KeyHash,
    Participation, ProxyId, Records, Revocation, reserved_ports,
};
use ironmesh_cert::AttestedMachine;
use ironmesh_enrollment::{AzureAnswer, AzureEnrollment, EnrollmentError};
use ironmesh_providers::azure::{Azure, KnownMachine, LookUpError};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;
use uuid::Uuid;

use super::attestation::AttestationTrust;
use super::join::Rejection;
use super::{CertificateAlarm, ChangeError, MachineEnrollment, check_services, subject};
use crate::journal::few;

/// How old the list may be that shows a machine. A reimage takes longer, so the machine that asks is the one that the
/// list shows.
const MAX_AGE: Duration = Duration::from_secs(60);

/// How long the same key gets the same certificate, as with tokens.
const REPEAT: SignedDuration = SignedDuration::from_mins(5);

/// What the enrollment needs of Azure.
#[derive(Debug)]
pub(crate) struct AzureJoins {
    pub(crate) machines: Arc<dyn MachineDirectory>,
    pub(crate) trust: AttestationTrust,
    /// The sidecar driver of the machines.
    pub(crate) driver: DriverName,
}

/// The machines that Azure shows.
pub(crate) trait MachineDirectory: fmt::Debug + Send + Sync {
    /// The machine in the newest list.
    fn machine(&self, vm_id: Uuid) -> Option<KnownMachine>;

    /// The subscriptions with machines that may join, in lower case.
    fn join_subscriptions(&self) -> BTreeSet<String>;

    /// Reads the list of the machine anew.
    fn look_up(
        self: Arc<Self>,
        vm_id: Uuid,
        subscription: Uuid,
        since: Instant,
    ) -> Pin<Box<dyn Future<Output = Result<(), LookUpError>> + Send>>;
}

impl MachineDirectory for Azure {
    fn machine(&self, vm_id: Uuid) -> Option<KnownMachine> {
        Self::machine(self, vm_id)
    }

    fn join_subscriptions(&self) -> BTreeSet<String> {
        Self::join_subscriptions(self)
    }

    fn look_up(
        self: Arc<Self>,
        vm_id: Uuid,
        subscription: Uuid,
        since: Instant,
    ) -> Pin<Box<dyn Future<Output = Result<(), LookUpError>> + Send>> {
        Box::pin(async move { Self::look_up(&self, vm_id, subscription, since).await.map(drop) })
    }
}

/// What was decided about a machine.
enum Decision {
    Enrolled(Box<JoinRecord>, String),
    LookUp,
}

impl MachineEnrollment {
    /// Enrolls the machine that the document attests, answers a repeated request as before, or asks for a look-up.
    pub(super) fn join_azure(
        &self,
        enrollment: &AzureEnrollment,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<AzureAnswer, EnrollmentError> {
        let verifier = self.azure.trust.verifier().map_err(|error| {
            let error = chain(&error);
            tracing::error!(error, "no attested document can be verified");
            let problem =
                "the control plane cannot verify attested documents now: its log has the reason";
            EnrollmentError::Unavailable(problem.to_owned())
        })?;
        let attested = verifier
            .verify(&enrollment.document, &enrollment.nonce, now)
            .map_err(|error| EnrollmentError::AttestationRejected(chain(&error)))?;
        self.join_attested(&attested, enrollment, peer, now)
    }

    /// The same, for a machine that Azure attests.
    pub(super) fn join_attested(
        &self,
        attested: &AttestedMachine,
        enrollment: &AzureEnrollment,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<AzureAnswer, EnrollmentError> {
        let vm_id = attested.vm_id;
        let who = Actor::Machine { token: None, vm_id: Some(vm_id) };
        match self.decide(attested, enrollment, peer, now) {
            Ok(Decision::LookUp) => Ok(AzureAnswer::LookUp(self.look_up(attested, enrollment))),
            Ok(Decision::Enrolled(record, certificate)) => {
                let response = self.response(&record, certificate);
                self.record(JournalKind::Enroll, who, peer, subject(&record), None, now);
                Ok(AzureAnswer::Enrolled(Box::new(response)))
            }
            Err(Rejection { error, reason }) => {
                if let Some(reason) = reason {
                    let known = self.azure.machines.machine(vm_id);
                    let services = known.map(|known| few(&known.services)).unwrap_or_default();
                    let about = JournalSubject { services, ..JournalSubject::default() };
                    self.record(JournalKind::Enroll, who, peer, about, Some(&reason), now);
                }
                Err(error)
            }
        }
    }

    fn look_up(
        &self,
        attested: &AttestedMachine,
        enrollment: &AzureEnrollment,
    ) -> ironmesh_enrollment::MachineLookUp {
        let machines = Arc::clone(&self.azure.machines);
        let look_up =
            machines.look_up(attested.vm_id, attested.subscription_id, enrollment.received_at);
        Box::pin(async move {
            look_up.await.map_err(|error| {
                let problem =
                    format!("the control plane cannot look the machine up in Azure: {error}");
                match error {
                    LookUpError::Busy => EnrollmentError::Busy(problem),
                    LookUpError::Silent | LookUpError::Failed(_) => {
                        EnrollmentError::Unavailable(problem)
                    }
                }
            })
        })
    }

    fn decide(
        &self,
        attested: &AttestedMachine,
        enrollment: &AzureEnrollment,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<Decision, Rejection> {
        let vm_id = attested.vm_id;
        let known = self.azure.machines.machine(vm_id);
        if let Some(closed) = known.as_ref().filter(|machine| machine.services.is_empty()) {
            return Err(rejected(join_is_off(closed)));
        }
        let subscription = attested.subscription_id.to_string();
        if !self.azure.machines.join_subscriptions().contains(&subscription) {
            // Every machine of Azure can send a document: others must not displace entries of the journal.
            return Err(Rejection { reason: None, ..rejected(unnamed(vm_id, &subscription)) });
        }
        let is_current = |machine: &KnownMachine| {
            machine.read_at + MAX_AGE >= enrollment.received_at && !machine.addresses.is_empty()
        };
        let Some(machine) = known.filter(is_current) else {
            if !enrollment.is_looked_up {
                return Ok(Decision::LookUp);
            }
            return Err(match self.azure.machines.machine(vm_id) {
                None => rejected(unnamed(vm_id, &subscription)),
                Some(_) => passing("Azure does not show the machine with an address: try again"),
            });
        };
        let policy = self.policy.borrow().specification.clone();
        check_services(policy.as_deref(), &machine.services, []).map_err(rejected)?;
        let address = address(&machine, enrollment, peer)?;
        let key = enrollment.request.key_hash();

        let _enrolling = self.enrolling.lock();
        let before = of_machine(&self.register.all_records(), vm_id);
        if let Some(bound) = before.iter().max_by_key(|record| newest(record)) {
            if let Some(again) = repeated(bound, &key, now)? {
                return Ok(again);
            }
            if !is_reimaged(bound, &machine) {
                if !enrollment.is_looked_up && machine.read_at < enrollment.received_at {
                    return Ok(Decision::LookUp);
                }
                return Err(self.bound(bound, &machine, &key, peer, now));
            }
        }
        let mesh_address = SocketAddr::new(address, reserved_ports::MESH);
        let latest = before.iter().max_by_key(|record| newest(record));
        let id = attested.proxy_id(latest.map(|record| record.id));
        let new = JoinRecord {
            machine: Some(vm_id),
            azure: Some(AzureBinding {
                resource: machine.resource,
                os_disk: machine.os_disk.as_deref().map(str::to_owned),
            }),
            locality: machine.locality,
            driver: self.azure.driver.clone(),
            ..JoinRecord::new(id, machine.services, mesh_address, now, now)
        };
        let known: BTreeSet<_> = before.iter().map(|record| record.id).collect();
        let replace = |present: &Records| replaced(present, vm_id, &known, now);
        let (request, name) = (&enrollment.request, enrollment.name.as_ref());
        let (record, certificate) = self.issue_first(new, request, name, replace, now)?;
        for old in before.iter().filter(|old| old.revoked.is_none()) {
            let reason = format!("proxy {} was revoked: {}", old.id, Revocation::REIMAGED);
            self.hub.disconnect(&old.id.to_string(), &reason);
            tracing::warn!(proxy = %old.id, reason = Revocation::REIMAGED, "proxy revoked");
            self.record(JournalKind::Revoke, Actor::ControlPlane, peer, subject(old), None, now);
        }
        Ok(Decision::Enrolled(Box::new(record), certificate))
    }

    /// The rejection of a machine that is bound to a proxy.
    fn bound(
        &self,
        bound: &JoinRecord,
        machine: &KnownMachine,
        key: &KeyHash,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Rejection {
        if machine.is_updating && bound.azure.is_some() {
            // During a reimage Azure may still show the former disk.
            return passing("Azure is changing the machine: try again when it has finished");
        }
        let (name, vm_id) = (bound.display_name(), machine.vm_id);
        let is_same_key = bound.credentials.as_ref().is_some_and(|known| known.key == *key);
        if !is_same_key {
            self.alarms.raise(bound, CertificateAlarm::MachineJoinsAgain, peer, now);
        }
        let service = machine.services.first().map(ToString::to_string).unwrap_or_default();
        rejected(format!(
            "Azure machine {vm_id} is proxy {name} already, since {:.0}, and Azure has not reimaged it: reimage it, or enroll it by a token (`ironmesh proxy token --service {service} --azure-vm-id {vm_id}`) and revoke {name}",
            bound.enrolled_at
        ))
    }
}

/// The order of a machine's proxies: the one in use is the newest, whatever the clock was at their enrollments.
fn newest(record: &JoinRecord) -> (bool, Timestamp) {
    (record.revoked.is_none(), record.enrolled_at)
}

fn rejected(problem: String) -> Rejection {
    EnrollmentError::MachineRejected(problem).into()
}

fn passing(problem: &str) -> Rejection {
    EnrollmentError::Unavailable(problem.to_owned()).into()
}

/// The error about a machine that services name without an opt-in.
fn join_is_off(machine: &KnownMachine) -> String {
    let services: Vec<_> = machine.without_join.iter().map(ToString::to_string).collect();
    let services = services.join("`, `");
    match &machine.scale_set {
        Some(set) => format!(
            "policy does not let machines of the scale set `{set}` join without a token: add `join = \"primary\"` to its `azure_scale_set` in `[service.endpoints]` of `{services}`"
        ),
        None => format!(
            "policy does not let machine {} join without a token: add `join = \"primary\"` to `azure_vm` in `[service.endpoints]` of `{services}`",
            machine.vm_id
        ),
    }
}

/// The error about a machine that no list shows.
fn unnamed(vm_id: Uuid, subscription: &str) -> String {
    format!(
        "Azure machine {vm_id} of subscription {subscription} is in no scale set that policy lets join: name its scale set in `[service.endpoints.azure_scale_set]` of the service that it runs, with `join = \"primary\"`, and see `ironmesh provider azure test`"
    )
}

/// The address at which callers connect: one that the machine has in Azure.
fn address(
    machine: &KnownMachine,
    enrollment: &AzureEnrollment,
    peer: SocketAddr,
) -> Result<IpAddr, EnrollmentError> {
    let has = |address: &IpAddr| machine.addresses.contains(address);
    match enrollment.address.map(|address| address.to_canonical()) {
        Some(stated) if has(&stated) => Ok(stated),
        Some(stated) => {
            let addresses: Vec<_> = machine.addresses.iter().map(ToString::to_string).collect();
            Err(EnrollmentError::AddressRejected(format!(
                "the machine does not have the address {stated} in Azure: state one of {} (`--address`), or none",
                addresses.join(", ")
            )))
        }
        None => {
            let from = Some(peer.ip().to_canonical()).filter(has);
            let first = || machine.addresses.first().copied();
            from.or_else(first).ok_or_else(|| {
                EnrollmentError::AddressRejected("the machine has no address in Azure".to_owned())
            })
        }
    }
}

/// The records of a machine, revoked ones too.
fn of_machine(records: &Records, vm_id: Uuid) -> Vec<Arc<JoinRecord>> {
    records.values().filter(|record| record.machine == Some(vm_id)).cloned().collect()
}

/// The earlier answer, if the machine repeats its request.
fn repeated(
    bound: &JoinRecord,
    key: &KeyHash,
    now: Timestamp,
) -> Result<Option<Decision>, Rejection> {
    // A clock that goes back must not extend it.
    let is_recent = now.duration_since(bound.enrolled_at).abs() <= REPEAT;
    let credentials = bound.credentials.as_ref().filter(|known| known.key == *key);
    let Some(credentials) = credentials.filter(|_| is_recent && bound.azure.is_some()) else {
        return Ok(None);
    };
    if let Some(revocation) = &bound.revoked {
        return Err(rejected(format!("the proxy of the machine was {revocation}")));
    }
    match &credentials.current.chain {
        Some(chain) => Ok(Some(Decision::Enrolled(Box::new(bound.clone()), chain.clone()))),
        None => Err(rejected("the certificate of the machine's proxy is in use".to_owned())),
    }
}

/// Whether Azure has reimaged the machine since it was bound. A reimage keeps the `vmId` and replaces the OS disk.
/// What is not known counts as no reimage.
fn is_reimaged(bound: &JoinRecord, machine: &KnownMachine) -> bool {
    let before = bound.azure.as_ref().and_then(|azure| azure.os_disk.as_deref());
    match (before, machine.os_disk.as_deref()) {
        (Some(before), Some(now)) => before != now,
        _ => false,
    }
}

/// The records of the machine's former proxies, revoked: their keys were on the former disk. Fails if the machine got
/// another proxy since the decision.
fn replaced(
    present: &Records,
    vm_id: Uuid,
    known: &BTreeSet<ProxyId>,
    now: Timestamp,
) -> Result<Vec<JoinRecord>, ChangeError> {
    let present = of_machine(present, vm_id);
    if present.iter().any(|record| !known.contains(&record.id)) {
        let problem = "another request of the machine is answered at this moment: try again";
        return Err(ChangeError::Rejected(EnrollmentError::Unavailable(problem.to_owned())));
    }
    let active = present.into_iter().filter(|record| record.revoked.is_none());
    let revoke = |record: Arc<JoinRecord>| JoinRecord {
        revoked: Some(Revocation::reimaged(now)),
        participation: Participation::default(),
        ports_without_backend: Participation::default(),
        ..(*record).clone()
    };
    Ok(active.map(revoke).collect())
}
