//! Service certificates from an enrollment listener to a client of the socket.

mod control_plane;
mod envoy;
mod renewal;

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use fs_err as fs;
use ironmesh_catalog::ServiceSecret;
use ironmesh_sidecar::envoy::certificates_socket;
use tokio::task::JoinHandle;

use super::*;
use crate::certificates::secret_stream::SecretStream;
use crate::certificates::workload_identity::WorkloadIdentity;
use control_plane::TestControlPlane;
use envoy::{TestEnvoy, subscription};

const LONG: Duration = Duration::from_secs(86_400);

/// A running agent, as far as it serves service certificates.
struct Agent {
    task: JoinHandle<Result<(), AgentError>>,
    state: AgentState,
}

impl Agent {
    fn start(folder: &Path) -> Self {
        let settings = AgentSettings::parse(&format!("folder = {folder:?}")).unwrap();
        let state = AgentState::new(Timestamp::now());
        let of_task = state.clone();
        let task = tokio::spawn(async move { serve(&settings, &of_task).await });
        Self { task, state }
    }

    async fn stop(self) {
        self.task.abort();
        drop(self.task.await);
    }
}

#[tokio::test]
async fn envoy_gets_the_certificates_of_its_secrets_and_their_renewals() {
    let control_plane = TestControlPlane::start(Duration::from_secs(5)).await;
    let agent = Agent::start(control_plane.folder());
    let mut envoy = TestEnvoy::connect(control_plane.folder()).await;
    envoy.send(subscription(&["service-cert"])).await;
    let first = envoy.next().await;
    assert_eq!((&*first.name, &first.version.len()), ("service-cert", &64));
    assert!(first.chain.contains("BEGIN CERTIFICATE") && first.key.contains("BEGIN PRIVATE KEY"));
    envoy.send(subscription(&["service-cert:shop/bookstore"])).await;
    let mut second = envoy.next().await;
    while second.name == "service-cert" {
        second = envoy.next().await;
    }
    assert_ne!((&first.version, &first.key), (&second.version, &second.key));
    // Each is renewed with a new key.
    let mut renewed = envoy.next().await;
    while renewed.name != "service-cert" || renewed.version == first.version {
        renewed = envoy.next().await;
    }
    assert_ne!(renewed.key, first.key);
    let reported = agent.state.activity().service_certificates;
    let reported: Vec<_> = reported.iter().map(|one| one.secret.as_str()).collect();
    assert_eq!(reported, ["service-cert", "service-cert:shop/bookstore"]);
    agent.stop().await;
}

#[tokio::test]
async fn certificate_of_another_account_is_renewed_at_once() {
    let control_plane = TestControlPlane::start(LONG).await;
    let agent = Agent::start(control_plane.folder());
    let mut envoy = TestEnvoy::connect(control_plane.folder()).await;
    envoy.send(subscription(&["service-cert"])).await;
    let first = envoy.next().await;
    control_plane.set_own_account("shop/other");
    let second = envoy.next().await;
    assert_ne!((&first.version, &first.key), (&second.version, &second.key));
    let accounts = agent.state.activity().service_certificates;
    assert_eq!(accounts[0].account.to_string(), "shop/other");
    // Once: the lifetime of this one has just begun.
    assert!(accounts[0].renew_at > Timestamp::now() + LONG / 2);
    agent.stop().await;
}

#[tokio::test]
async fn restarted_agent_serves_kept_certificates_without_a_control_plane() {
    let mut control_plane = TestControlPlane::start(LONG).await;
    let agent = Agent::start(control_plane.folder());
    let mut envoy = TestEnvoy::connect(control_plane.folder()).await;
    envoy.send(subscription(&["service-cert"])).await;
    let first = envoy.next().await;
    let file = control_plane.folder().join("service-certificates.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    agent.stop().await;
    control_plane.stop().await;

    let agent = Agent::start(control_plane.folder());
    let mut envoy = TestEnvoy::connect(control_plane.folder()).await;
    envoy.send(subscription(&["service-cert"])).await;
    let kept = envoy.next().await;
    assert_eq!((&kept.version, &kept.key), (&first.version, &first.key));
    agent.stop().await;

    // Without the file, or with a damaged one, the agent is silent until it has a certificate.
    fs::write(&file, "{").unwrap();
    let agent = Agent::start(control_plane.folder());
    let mut envoy = TestEnvoy::connect(control_plane.folder()).await;
    envoy.send(subscription(&["service-cert"])).await;
    while agent.state.activity().errors.is_empty() {
        tokio::task::yield_now().await;
    }
    assert!(agent.state.activity().service_certificates.is_empty());
    assert!(!agent.state.activity().is_failing, "the proxy certificate is not affected");
    control_plane.restart().await;
    assert_eq!(envoy.next().await.name, "service-cert");
    agent.stop().await;
}

#[tokio::test]
async fn nack_is_counted_and_the_version_is_not_sent_again() {
    let control_plane = TestControlPlane::start(LONG).await;
    let agent = Agent::start(control_plane.folder());
    let mut envoy = TestEnvoy::connect(control_plane.folder()).await;
    envoy.send(subscription(&["service-cert"])).await;
    let first = envoy.next().await;
    envoy.nack("the key does not fit").await;
    while agent.state.activity().secret_nacks == 0 {
        tokio::task::yield_now().await;
    }
    // The next response is about the other secret alone.
    envoy.send(subscription(&["service-cert:shop/bookstore"])).await;
    assert_eq!(envoy.next().await.name, "service-cert:shop/bookstore");
    assert_eq!(agent.state.activity().service_certificates.len(), 2);
    assert_eq!(agent.state.activity().secret_nacks, 1);
    assert!(!first.version.is_empty());
    agent.stop().await;
}

/// A table with one certificate, and that certificate.
async fn table() -> (Arc<CertificateTable>, WorkloadIdentity, mpsc::Receiver<ServiceSecret>) {
    let control_plane = TestControlPlane::start(LONG).await;
    let held = control_plane.issue("service-cert", "shop/bookstore");
    let (wanted, requested) = mpsc::channel(MAX_SECRETS);
    let file = CertificateFile::of(control_plane.folder());
    let state = AgentState::new(Timestamp::now());
    let table = CertificateTable::new(vec![held.clone()], file, state, wanted);
    (Arc::new(table), held, requested)
}

#[tokio::test]
async fn stream_answers_only_with_certificates_that_the_client_has_not() {
    let (table, held, mut requested) = table().await;
    let mut stream = SecretStream::new(Arc::clone(&table));
    // Neither no name, nor one without a certificate, nor one of another kind gets an answer.
    stream.receive(subscription(&[]));
    stream.receive(subscription(&["service-cert:shop/other", "roots", "*"]));
    assert_eq!(stream.respond(), None);
    assert_eq!(requested.recv().await.unwrap().to_string(), "service-cert:shop/other");

    let mut resumed = subscription(&["service-cert"]);
    let version = held.leaf.digest.clone();
    resumed.initial_resource_versions.insert("service-cert".to_owned(), version.clone());
    stream.receive(resumed);
    assert_eq!(stream.respond(), None, "the client states this version");

    stream.receive(subscription(&["service-cert"]));
    let response = stream.respond().unwrap();
    assert_eq!(response.resources.len(), 1);
    assert_eq!(response.resources[0].version, version);
    assert!(response.removed_resources.is_empty() && !response.nonce.is_empty());
    assert_eq!(stream.respond(), None);

    let mut unsubscription = subscription(&[]);
    unsubscription.resource_names_unsubscribe = vec!["service-cert".to_owned()];
    stream.receive(unsubscription);
    table.replace(WorkloadIdentity { chain: String::new(), ..held });
    assert_eq!(stream.respond(), None);
}

#[tokio::test]
async fn secrets_are_bounded_and_renewed_only_while_requested() {
    let (table, held, _requested) = table().await;
    let mut streams = Vec::new();
    for index in 0..2 * MAX_SECRETS {
        let mut stream = SecretStream::new(Arc::clone(&table));
        stream.receive(subscription(&[&format!("service-cert:shop/s{index}")]));
        streams.push(stream);
    }
    let of = |index: usize| format!("service-cert:shop/s{index}").parse::<ServiceSecret>().unwrap();
    assert!(table.continue_renewal(&of(MAX_SECRETS - 2)));
    assert!(!table.continue_renewal(&of(MAX_SECRETS - 1)), "one place has the kept one");
    drop(streams);
    assert!(!table.continue_renewal(&of(0)));
    assert!(table.subscribe(&of(MAX_SECRETS)), "its place is free");
    assert!(table.held(&held.secret).is_some(), "a certificate stays for the next Envoy");
}

#[tokio::test]
async fn renewal_is_due_before_two_thirds_of_the_lifetime() {
    let (_, held, _) = table().await;
    let lifetime = held.leaf.not_after.duration_since(held.requested_at).as_secs_f64();
    let part = held.renew_at().duration_since(held.requested_at).as_secs_f64() / lifetime;
    assert!((0.616..=0.667).contains(&part), "{part}");
}

/// The mode of the socket alone would refuse the other user; here it does not.
#[tokio::test]
async fn connection_of_another_user_is_closed() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can start a process of another user");
        return;
    }
    let control_plane = TestControlPlane::start(LONG).await;
    let agent = Agent::start(control_plane.folder());
    drop(TestEnvoy::connect(control_plane.folder()).await);
    let socket = certificates_socket(control_plane.folder());
    let everyone = |path: &Path| fs::set_permissions(path, PermissionsExt::from_mode(0o777));
    everyone(control_plane.folder()).unwrap();
    everyone(&socket).unwrap();
    // Python of the system: other ones may be in a folder that the other user cannot read.
    let script = "import socket,sys; s=socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.settimeout(20); sys.exit(0 if s.recv(1) == b'' else 3)";
    let user =
        ["--reuid=65534", "--regid=65534", "--clear-groups", "/usr/bin/python3", "-c", script];
    let other = tokio::process::Command::new("setpriv").args(user).arg(&socket).status();
    assert_eq!(other.await.unwrap().code(), Some(0), "closed at once, without a byte");
    drop(TestEnvoy::connect(control_plane.folder()).await);
    agent.stop().await;
}
