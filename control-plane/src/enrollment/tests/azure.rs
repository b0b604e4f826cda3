//! Machines that Azure attests. Documents are verified before; tests/azure has those.

use ironmesh_cert::AttestedMachine;
use ironmesh_config_language::{Document, load_documents};
use ironmesh_config_settings::AzureSettings;
use ironmesh_enrollment::{AzureAnswer, AzureEnrollment};
use ironmesh_providers::azure::{KnownMachine, LookUpError};
use tokio::time::Instant;
use uuid::Uuid;

use super::super::azure::MachineDirectory;
use super::super::{AttestationTrust, AzureJoins};
use super::*;

const SUBSCRIPTION: Uuid = Uuid::from_u128(0xa2);

/// The machines that Azure shows in a test.
#[derive(Debug, Default)]
pub(super) struct Machines(Mutex<Vec<KnownMachine>>);

impl MachineDirectory for Machines {
    fn machine(&self, vm_id: Uuid) -> Option<KnownMachine> {
        self.0.lock().iter().find(|machine| machine.vm_id == vm_id).cloned()
    }

    fn join_subscriptions(&self) -> BTreeSet<String> {
        [SUBSCRIPTION.to_string()].into()
    }

    fn look_up(
        self: Arc<Self>,
        _: Uuid,
        _: Uuid,
        _: Instant,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<(), LookUpError>> + Send>> {
        Box::pin(async { Err(LookUpError::Busy) })
    }
}

pub(super) fn joins(machines: &Arc<Machines>) -> AzureJoins {
    AzureJoins {
        machines: Arc::clone(machines) as Arc<dyn MachineDirectory>,
        trust: AttestationTrust::new(&AzureSettings::default()),
        driver: DriverName::default(),
    }
}

const POLICY: &str = r#"
[[service]]
namespace = "shop"
name = "bookstore"

[[service]]
namespace = "shop"
name = "reviews"
"#;

fn vm_id() -> Uuid {
    Uuid::from_u128(0xa1)
}

/// A world with a machine of two services.
fn world_with_machine() -> World {
    let mut world = world();
    let specification = load_documents([Document::new("policy.toml", POLICY)]).specification;
    let state = PolicyState { specification, ..PolicyState::default() };
    let policy = watch::Sender::new(state).subscribe();
    let enroller = world.another_control_plane();
    world.enroller = Arc::new(MachineEnrollment { policy, ..enroller });
    world.machines.0.lock().push(KnownMachine {
        vm_id: vm_id(),
        resource: "/subscriptions/s/resourceGroups/g/…/web/virtualMachines/0".to_owned(),
        scale_set: Some("web".to_owned()),
        tags: std::collections::BTreeMap::new(),
        addresses: vec!["10.0.0.5".parse().unwrap(), "192.0.2.5".parse().unwrap()],
        locality: "westeurope/westeurope-1".parse().unwrap(),
        os_disk: Some("disk-1".into()),
        is_updating: false,
        services: vec!["shop/reviews".parse().unwrap(), "shop/bookstore".parse().unwrap()],
        without_join: Vec::new(),
        read_at: Instant::now(),
    });
    world
}

fn azure_enrollment(request: &MachineRequest, is_looked_up: bool) -> AzureEnrollment {
    AzureEnrollment {
        nonce: String::new(),
        document: String::new(),
        request: request.clone(),
        address: None,
        name: None,
        received_at: Instant::now(),
        is_looked_up,
    }
}

impl World {
    fn change_machine(&self, change: impl FnOnce(&mut KnownMachine)) {
        change(&mut self.machines.0.lock()[0]);
    }

    fn attest(
        &self,
        enrollment: &AzureEnrollment,
        from: u8,
        after: SignedDuration,
    ) -> Result<AzureAnswer, EnrollmentError> {
        let now = self.now + after;
        let attested = AttestedMachine {
            vm_id: vm_id(),
            subscription_id: SUBSCRIPTION,
            created_at: now,
            expires_at: now + SignedDuration::from_hours(6),
        };
        self.enroller.join_attested(&attested, enrollment, peer(from), now)
    }

    /// Joins as the machine after its look-up, which has read its list anew.
    fn join_azure(
        &self,
        request: &MachineRequest,
        after: SignedDuration,
    ) -> Result<Enrolled, EnrollmentError> {
        let enrollment = azure_enrollment(request, true);
        self.change_machine(|machine| machine.read_at = Instant::now());
        match self.attest(&enrollment, 5, after)? {
            AzureAnswer::Enrolled(enrolled) => Ok(*enrolled),
            AzureAnswer::LookUp(_) => panic!("it was looked up"),
        }
    }
}

fn problem(error: EnrollmentError) -> String {
    match error {
        EnrollmentError::MachineRejected(problem) => problem,
        error => panic!("{error:?}"),
    }
}

#[test]
fn attested_machine_has_services_of_provider_and_policy() {
    let world = world_with_machine();
    let request = request();
    let enrolled = world.join_azure(&request, AT_ONCE).unwrap();
    let services = ["shop/reviews".parse().unwrap(), "shop/bookstore".parse().unwrap()];
    assert_eq!(enrolled.services, services);
    assert_eq!(enrolled.address.to_string(), "192.0.2.5", "the one from which it came");
    let record = world.record(enrolled.id);
    assert_eq!(record.machine, Some(vm_id()));
    assert_eq!(record.locality.to_string(), "westeurope/westeurope-1");
    let binding = record.azure.clone().unwrap();
    assert_eq!(binding.os_disk.as_deref(), Some("disk-1"));
    assert_eq!(record.credentials.as_ref().unwrap().key, request.key_hash());
    assert_eq!(verified(&enrolled.certificate).identity.proxy, enrolled.id);
}

#[test]
fn stated_address_must_be_one_of_the_machine() {
    let world = world_with_machine();
    let request = request();
    let with = |address: &str| AzureEnrollment {
        address: Some(address.parse().unwrap()),
        ..azure_enrollment(&request, true)
    };
    match world.attest(&with("203.0.113.9"), 5, AT_ONCE).unwrap_err() {
        EnrollmentError::AddressRejected(problem) => {
            assert!(problem.contains("203.0.113.9") && problem.contains("10.0.0.5, 192.0.2.5"));
        }
        error => panic!("{error:?}"),
    }
    assert!(world.enroller.register.all_records().is_empty());
    // From behind a NAT, and without a word, the machine is at its first address.
    match world.attest(&azure_enrollment(&request, true), 77, AT_ONCE).unwrap() {
        AzureAnswer::Enrolled(enrolled) => assert_eq!(enrolled.address.to_string(), "10.0.0.5"),
        AzureAnswer::LookUp(_) => panic!(),
    }
}

#[test]
fn unknown_machine_is_looked_up_once() {
    let world = world_with_machine();
    let machine = world.machines.0.lock().pop().unwrap();
    let request = request();
    let answer = world.attest(&azure_enrollment(&request, false), 5, AT_ONCE).unwrap();
    assert!(matches!(answer, AzureAnswer::LookUp(_)), "{answer:?}");
    let error = world.attest(&azure_enrollment(&request, true), 5, AT_ONCE).unwrap_err();
    let text = problem(error);
    assert!(text.contains(&vm_id().to_string()) && text.contains("join = \"primary\""), "{text}");
    // A list of an hour ago may show the machine before a reimage.
    let read_at = Instant::now().checked_sub(std::time::Duration::from_secs(3600));
    let Some(read_at) = read_at else { return };
    world.machines.0.lock().push(KnownMachine { read_at, ..machine });
    let answer = world.attest(&azure_enrollment(&request, false), 5, AT_ONCE).unwrap();
    assert!(matches!(answer, AzureAnswer::LookUp(_)), "{answer:?}");
}

#[test]
fn machine_that_policy_does_not_let_join_gets_the_fix() {
    let world = world_with_machine();
    world.change_machine(|machine| {
        machine.without_join = std::mem::take(&mut machine.services);
    });
    let text = problem(world.join_azure(&request(), AT_ONCE).unwrap_err());
    for part in ["scale set `web`", "join = \"primary\"", "`shop/reviews`, `shop/bookstore`"] {
        assert!(text.contains(part), "{text}");
    }
    world.change_machine(|machine| {
        machine.services = vec!["shop/removed".parse().unwrap()];
    });
    let text = problem(world.join_azure(&request(), AT_ONCE).unwrap_err());
    assert!(text.contains("policy defines no service `shop/removed`"), "{text}");
}

#[test]
fn foreign_subscription_is_rejected_without_a_look_up() {
    let world = world_with_machine();
    world.machines.0.lock().clear();
    let attested = AttestedMachine {
        vm_id: vm_id(),
        subscription_id: Uuid::from_u128(0xb2),
        created_at: world.now,
        expires_at: world.now + SignedDuration::from_hours(6),
    };
    let enrollment = azure_enrollment(&request(), false);
    let error = world.enroller.join_attested(&attested, &enrollment, peer(5), world.now);
    assert!(problem(error.unwrap_err()).contains(&attested.subscription_id.to_string()));
    world.enroller.journal.flush();
    let (entries, _) = world.state.journal(&JournalQuery::default()).unwrap();
    let enrolls = entries.iter().filter(|entry| entry.kind == JournalKind::Enroll).count();
    assert_eq!(enrolls, 0, "strangers must not displace entries");
}

#[test]
fn repeated_azure_join_with_one_key_gets_the_same_certificate() {
    let world = world_with_machine();
    let request = request();
    let first = world.join_azure(&request, AT_ONCE).unwrap();
    let again = world.join_azure(&request, SignedDuration::from_mins(5)).unwrap();
    assert_eq!((again.id, &again.certificate), (first.id, &first.certificate));
    let late = world.join_azure(&request, SignedDuration::from_mins(6)).unwrap_err();
    assert!(problem(late).contains("is proxy reviews-1 already"));
    assert!(world.findings().is_empty(), "it is the same program");
    assert_eq!(world.enroller.register.all_records().len(), 1);
}

#[test]
fn second_join_without_a_reimage_raises_an_alarm() {
    let world = world_with_machine();
    let first = world.join_azure(&request(), AT_ONCE).unwrap();
    let text = problem(world.join_azure(&request(), AT_ONCE).unwrap_err());
    assert!(text.contains("reimage it, or enroll it by a token"), "{text}");
    assert!(text.contains(&format!("--service shop/reviews --azure-vm-id {}", vm_id())), "{text}");
    assert_eq!(world.findings(), ["IM0744"]);
    assert!(world.record(first.id).revoked.is_none(), "the first proxy stays");
    // Another program of the machine must not undo a revocation.
    let revocation = Revocation::by_operator(world.now, None);
    world.enroller.register.revoke(&[first.id], &revocation).unwrap();
    problem(world.join_azure(&request(), days(1)).unwrap_err());
    let world = World { machines: Arc::clone(&world.machines), ..world };
    assert_eq!(world.enroller.register.all_records().len(), 1);
}

#[test]
fn reimaged_machine_joins_again_and_replaces_its_proxy() {
    let world = world_with_machine();
    let first = world.join_azure(&request(), AT_ONCE).unwrap();
    world.change_machine(|machine| machine.os_disk = Some("disk-2".into()));
    let second = world.join_azure(&request(), days(1)).unwrap();
    assert_ne!(second.id, first.id);
    let revoked = world.record(first.id).revoked.clone().unwrap();
    assert!(revoked.reason.unwrap().contains("reimaged"));
    assert!(world.record(second.id).revoked.is_none());
    assert!(world.findings().is_empty());
    world.enroller.journal.flush();
    let (entries, _) = world.state.journal(&JournalQuery::default()).unwrap();
    let revokes = entries.iter().filter(|entry| entry.kind == JournalKind::Revoke).count();
    assert_eq!(revokes, 1);
    // The new disk is bound in turn.
    problem(world.join_azure(&request(), days(2)).unwrap_err());
}

#[test]
fn machine_under_change_tries_again_without_an_alarm() {
    let world = world_with_machine();
    world.join_azure(&request(), AT_ONCE).unwrap();
    world.change_machine(|machine| machine.is_updating = true);
    let error = world.join_azure(&request(), days(1)).unwrap_err();
    assert!(matches!(error, EnrollmentError::Unavailable(_)), "{error:?}");
    assert!(world.findings().is_empty());
}

#[test]
fn rejoin_needs_a_list_newer_than_its_request() {
    let world = world_with_machine();
    world.join_azure(&request(), AT_ONCE).unwrap();
    let enrollment = azure_enrollment(&request(), false);
    let answer = world.attest(&enrollment, 5, days(1)).unwrap();
    assert!(matches!(answer, AzureAnswer::LookUp(_)), "{answer:?}");
    assert!(world.findings().is_empty());
}

/// Without a disk no reimage is recognized, and a proxy of a token has none.
#[test]
fn unknown_disk_counts_as_no_reimage() {
    let world = world_with_machine();
    world.change_machine(|machine| machine.os_disk = None);
    world.join_azure(&request(), AT_ONCE).unwrap();
    world.change_machine(|machine| machine.os_disk = Some("disk-2".into()));
    problem(world.join_azure(&request(), days(1)).unwrap_err());

    let world = world_with_machine();
    let token = world.token_for(|token| token.machine = Some(vm_id()));
    world.join(&token, &request(), peer(5), AT_ONCE).unwrap();
    problem(world.join_azure(&request(), days(1)).unwrap_err());
}

#[test]
fn machine_joins_once_at_two_control_planes() {
    let world = world_with_machine();
    let other = world.another_control_plane();
    let first = world.join_azure(&request(), AT_ONCE).unwrap();
    // The other one does not know the record yet.
    let enrollment = azure_enrollment(&request(), true);
    world.change_machine(|machine| machine.read_at = Instant::now());
    let attested = AttestedMachine {
        vm_id: vm_id(),
        subscription_id: SUBSCRIPTION,
        created_at: world.now,
        expires_at: world.now + SignedDuration::from_hours(6),
    };
    let answer = other.join_attested(&attested, &enrollment, peer(5), world.now);
    assert!(answer.is_err(), "{answer:?}");
    assert_eq!(world.enroller.register.all_records().keys().copied().next(), Some(first.id));
}

#[test]
fn journal_names_the_attested_machine() {
    let world = world_with_machine();
    world.join_azure(&request(), AT_ONCE).unwrap();
    world.join_azure(&request(), AT_ONCE).unwrap_err();
    world.enroller.journal.flush();
    let (entries, _) = world.state.journal(&JournalQuery::default()).unwrap();
    let who = Actor::Machine { token: None, vm_id: Some(vm_id()) };
    let of_machine: Vec<_> = entries.iter().filter(|entry| entry.who == who).collect();
    assert_eq!(of_machine.len(), 2);
    assert!(of_machine.iter().any(|entry| entry.is_rejected()));
}
