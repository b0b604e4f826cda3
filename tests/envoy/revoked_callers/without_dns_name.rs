//! A shared certificate without a DNS name, as earlier versions issued it, after its proxy is revoked.

use std::path::Path;
use std::sync::Arc;

use ironmesh_catalog::{
    CertificateStore as _, Domain, JoinRecord, Revocation, ServiceAccount, SharedCertificate,
    TrustDomain,
};
use ironmesh_store::{
    ExpectedVersion, KeyEncryptionKey, MeshState, RecordChange, RecordStore as _, RecordTable,
    Store,
};
use jiff::{SignedDuration, Timestamp};
use rcgen::{
    CertificateParams, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose, SanType,
    SerialNumber,
};

use super::*;

/// Its serial number, in lower-case hexadecimal.
const SERIAL: &str = "1122334455667788";

#[tokio::test(flavor = "multi_thread")]
async fn certificate_without_dns_name_is_refused_by_tcp_ports_alone() {
    let Some(programs) = Programs::find() else { return };
    let mut mesh = Mesh::start(&programs, &[("policy.toml", POLICY)]).await;
    let _app = App::http1("till", mesh.loopback().socket(21, 8080)).await;
    let _ledger = Ledger::start("ledger", mesh.loopback().socket(21, 8081)).await;
    let options = ProxyOptions::new("default/till", 21).with_service("default/ledger");
    let server = mesh.envoy(&options).await;
    let port = server.socket(15003);
    let folder = enroll(&mesh, 11).await;
    let current = Identity::of_account(&mesh, &folder).await;
    drop(current.dial(port).await);

    mesh.kill_control_plane().await;
    let state = mesh.folder().join("state");
    let old = issue(&state, current.roots.clone());
    old.greeting(port).await.unwrap();
    let mut open = vec![old.open(port, "till").await.unwrap()];
    assert_eq!(statuses(&mut open).await.unwrap(), [200]);

    revoke(&state, "customer-1");
    mesh.restart_control_plane().await;
    crate::restart::wait_for_streams(&server, 1).await;
    eventually("the handshake to be refused", async || {
        old.greeting(port).await.err().ok_or("it is accepted")
    })
    .await;
    // There it looks like the certificate of no proxy: neither it nor others are denied.
    assert_eq!(statuses(&mut open).await.unwrap(), [200]);
    let others = enroll(&mesh, 12).await;
    let others = Identity::of_account(&mesh, &others).await;
    drop(others.dial(port).await);
    assert_eq!(statuses(&mut [others.open(port, "till").await.unwrap()]).await.unwrap(), [200]);
    server.assert_no_update_errors().await;
}

fn store(state: &Path) -> Store {
    let kek = KeyEncryptionKey::load_or_create(&state.join("kek"), true).unwrap();
    Store::open(state, kek).unwrap()
}

/// Issues the certificate by the stored authority.
fn issue(state: &Path, roots: String) -> Identity {
    let material = MeshState::new(Arc::new(store(state))).authority().unwrap().unwrap();
    let material: serde_json::Value = serde_json::from_slice(&material).unwrap();
    let part = |name: &str| material.get(name).unwrap().as_str().unwrap().to_owned();
    let certificate = part("intermediate_certificate");
    let signer = KeyPair::from_pem(&part("intermediate_key")).unwrap();
    let issuer = Issuer::from_ca_cert_pem(&certificate, signer).unwrap();
    let mut content = CertificateParams::default();
    content.serial_number = Some(SerialNumber::from(u64::from_str_radix(SERIAL, 16).unwrap()));
    let account: ServiceAccount = "default/customer".parse().unwrap();
    let uri = TrustDomain::new(Domain::default()).workload(&account).to_string();
    content.subject_alt_names = vec![SanType::URI(uri.as_str().try_into().unwrap())];
    content.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    content.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
    content.use_authority_key_identifier_extension = true;
    let key = KeyPair::generate().unwrap();
    let leaf = content.signed_by(&key, &issuer).unwrap().pem();
    Identity { chain: format!("{leaf}{certificate}"), key: key.serialize_pem(), roots }
}

/// Revokes a proxy in the store, as one that has that certificate.
fn revoke(state: &Path, proxy: &str) {
    let now = Timestamp::now();
    let store = Arc::new(store(state));
    let table = RecordTable::<JoinRecord>::new(Arc::<Store>::clone(&store));
    let records = table.list().unwrap();
    let record = records.into_iter().find(|one| one.value.display_name().to_string() == proxy);
    let refused = SharedCertificate {
        account: "default/customer".parse().unwrap(),
        serial: SERIAL.to_owned(),
        dns_name: None,
        expires_at: now + SignedDuration::from_hours(24),
    };
    let revoked = JoinRecord {
        revoked: Some(Revocation::by_operator(now, None)),
        refused: Some(vec![refused]),
        ..record.unwrap().value
    };
    let change = RecordChange::put(&revoked, ExpectedVersion::Any).unwrap();
    store.commit(&[change]).unwrap();
}
