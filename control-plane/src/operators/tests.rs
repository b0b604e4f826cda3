use std::time::Duration;

use ironmesh_catalog::{Domain, Secret};
use ironmesh_cert::{Authority, generate_proxy_key_and_csr};
use ironmesh_store::{KeyEncryptionKey, Store};
use tempfile::TempDir;

use super::*;

fn trust_domain() -> TrustDomain {
    TrustDomain::new(Domain::default())
}

fn store(folder: &TempDir) -> Arc<Store> {
    let key = folder.path().join("kek");
    let state = folder.path().join("state");
    let kek = KeyEncryptionKey::load_or_create(&key, Store::database_exists(&state)).unwrap();
    Arc::new(Store::open(&state, kek).unwrap())
}

fn open(store: &Arc<Store>) -> Operators {
    Operators::open(Arc::<Store>::clone(store), trust_domain()).unwrap()
}

fn now() -> Timestamp {
    Timestamp::now()
}

fn name(text: &str) -> OperatorName {
    text.parse().unwrap()
}

/// A token of an operator that is valid for an hour.
fn add_token(operators: &Operators, operator: &str, role: OperatorRole) -> Secret {
    let token = BearerToken::generate(TokenUsage::Operator).unwrap();
    let credential = OperatorCredential {
        id: token.id().to_string(),
        secret_hash: Some(token.secret_hash()),
        issued_at: now(),
        expires_at: now() + SignedDuration::from_hours(1),
        issued_by: "root".to_owned(),
        revoked: None,
        unknown: UnknownFields::default(),
    };
    operators.add(&name(operator), role, &credential).unwrap();
    token.text()
}

fn role_of(operators: &Operators, token: &Secret, at: Timestamp) -> Result<OperatorRole, String> {
    let found = operators.of_token(token, at);
    found.map(|found| found.role).map_err(|error| error.to_string())
}

fn revocation() -> Revocation {
    Revocation::by_operator(now(), None)
}

#[test]
fn token_gives_its_role_until_it_expires_and_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    let token = add_token(&open(&store), "ann", OperatorRole::Operator);
    let operators = open(&store);
    assert_eq!(role_of(&operators, &token, now()), Ok(OperatorRole::Operator));
    let later = now() + SignedDuration::from_hours(2);
    assert!(role_of(&operators, &token, later).unwrap_err().contains("ann expired at"));
}

#[test]
fn changed_truncated_and_join_tokens_are_unknown() {
    let folder = tempfile::tempdir().unwrap();
    let operators = open(&store(&folder));
    let token = add_token(&operators, "ann", OperatorRole::Admin);
    let (id, secret) = token.expose().rsplit_once('_').unwrap();
    let first = if secret.starts_with('0') { "1" } else { "0" };
    let changed = format!("{id}_{first}{}", &secret[1..]);
    let join = token.expose().replace("imo1_", "imt1_");
    for bad in [&changed, &token.expose()[..30], &join, "", "imo1_"] {
        let error = role_of(&operators, &Secret::new(bad.to_owned()), now()).unwrap_err();
        assert_eq!(error, "the token is not one of this mesh, or is truncated");
    }
}

#[test]
fn certificate_gives_access_only_while_its_serial_number_is_stored() {
    let folder = tempfile::tempdir().unwrap();
    let operators = open(&store(&folder));
    let authority = Authority::ephemeral(&trust_domain(), now()).unwrap();
    let (_, csr) = generate_proxy_key_and_csr().unwrap();
    let hour = Duration::from_secs(3_600);
    let issue = || authority.issue_operator_certificate(&csr, &name("ann"), hour, now()).unwrap();
    let issued = issue();
    let leaf_of = |chain: &str| {
        use rustls_pki_types::pem::PemObject as _;
        rustls_pki_types::CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()
    };
    let leaf = leaf_of(&issued.chain);
    let role = |leaf: &[u8]| {
        let found = operators.of_certificate(leaf, now());
        found.map(|found| found.role).map_err(|error| error.to_string())
    };
    assert!(role(&leaf).unwrap_err().contains("unknown to this mesh"));
    let credential = OperatorCredential {
        id: issued.serial,
        secret_hash: None,
        issued_at: now(),
        expires_at: issued.not_after,
        issued_by: "root".to_owned(),
        revoked: None,
        unknown: UnknownFields::default(),
    };
    operators.add(&name("ann"), OperatorRole::Viewer, &credential).unwrap();
    assert_eq!(role(&leaf), Ok(OperatorRole::Viewer));
    // Another certificate of the same operator, such as one that a restored store has forgotten.
    assert!(role(&leaf_of(&issue().chain)).unwrap_err().contains("unknown to this mesh"));
    operators.revoke(&name("ann"), Some(&credential.id), &revocation(), LastAdmin::Stays).unwrap();
    assert!(role(&leaf).unwrap_err().contains("revoked"));
}

#[test]
fn revocation_of_one_credential_leaves_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let operators = open(&store(&folder));
    let [one, other] = [(); 2].map(|()| add_token(&operators, "ann", OperatorRole::Viewer));
    let id = BearerToken::parse(TokenUsage::Operator, &one).unwrap().id().to_string();
    let revoke =
        |id: Option<&str>| operators.revoke(&name("ann"), id, &revocation(), LastAdmin::Stays);
    assert!(revoke(Some("none")).unwrap_err().to_string().contains("no credential `none`"));
    assert!(revoke(Some(&id)).unwrap().is_active(now()));
    assert!(role_of(&operators, &one, now()).unwrap_err().contains("revoked"));
    assert_eq!(role_of(&operators, &other, now()), Ok(OperatorRole::Viewer));
    assert!(!revoke(None).unwrap().is_active(now()));
    assert!(role_of(&operators, &other, now()).is_err());
}

#[test]
fn role_of_an_active_operator_is_fixed() {
    let folder = tempfile::tempdir().unwrap();
    let operators = open(&store(&folder));
    add_token(&operators, "ann", OperatorRole::Viewer);
    let credential = operators.list()[0].credentials[0].clone();
    let error = operators.add(&name("ann"), OperatorRole::Admin, &credential).unwrap_err();
    assert!(matches!(&error, ApiError::Conflict(text) if text.contains("role viewer")), "{error}");
    operators.revoke(&name("ann"), None, &revocation(), LastAdmin::Stays).unwrap();
    let token = add_token(&operators, "ann", OperatorRole::Admin);
    assert_eq!(role_of(&operators, &token, now()), Ok(OperatorRole::Admin));
}

#[test]
fn last_admin_is_revoked_only_by_the_owner_of_the_socket() {
    let folder = tempfile::tempdir().unwrap();
    let operators = open(&store(&folder));
    let token = add_token(&operators, "ann", OperatorRole::Admin);
    add_token(&operators, "bob", OperatorRole::Operator);
    let revoke = |operator: &str, last_admin| {
        operators.revoke(&name(operator), None, &revocation(), last_admin)
    };
    let error = revoke("ann", LastAdmin::Stays).unwrap_err();
    assert!(matches!(&error, ApiError::Conflict(text) if text.contains("last admin")), "{error}");
    assert_eq!(role_of(&operators, &token, now()), Ok(OperatorRole::Admin));
    add_token(&operators, "cat", OperatorRole::Admin);
    revoke("ann", LastAdmin::Stays).unwrap();
    assert!(revoke("cat", LastAdmin::Stays).is_err());
    revoke("cat", LastAdmin::MayGo).unwrap();
}

/// Two control planes with one store, as two replicas have.
#[test]
fn two_admins_who_revoke_each_other_at_the_same_time_leave_one() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        let store = store_in_new_folder(&folder);
        let planes = [open(&store), open(&store)];
        add_token(&planes[0], "ann", OperatorRole::Admin);
        add_token(&planes[0], "bob", OperatorRole::Admin);
        let results = std::thread::scope(|scope| {
            let threads = [("ann", &planes[0]), ("bob", &planes[1])].map(|(operator, plane)| {
                scope.spawn(move || {
                    plane.revoke(&name(operator), None, &revocation(), LastAdmin::Stays).is_ok()
                })
            });
            threads.map(|thread| thread.join().unwrap())
        });
        assert_eq!(results.iter().filter(|done| **done).count(), 1, "{results:?}");
        let stored = open(&store).list();
        assert_eq!(stored.iter().filter(|one| is_admin(one, now())).count(), 1);
    }
}

fn store_in_new_folder(folder: &TempDir) -> Arc<Store> {
    let inner = tempfile::tempdir_in(folder.path()).unwrap();
    store(&inner)
}

/// The credential `old`, which expired 31 days ago.
fn old_credential() -> OperatorCredential {
    OperatorCredential {
        id: "old".to_owned(),
        secret_hash: None,
        issued_at: now() - SignedDuration::from_hours(24 * 60),
        expires_at: now() - SignedDuration::from_hours(24 * 31),
        issued_by: "root".to_owned(),
        revoked: None,
        unknown: UnknownFields::default(),
    }
}

#[test]
fn ended_credentials_are_removed_after_thirty_days() {
    let folder = tempfile::tempdir().unwrap();
    let operators = open(&store(&folder));
    operators.add(&name("ann"), OperatorRole::Viewer, &old_credential()).unwrap();
    add_token(&operators, "ann", OperatorRole::Viewer);
    let listed = operators.list();
    assert!(listed[0].credential("old").is_none() && listed[0].credentials.len() == 1);
}

#[test]
fn operators_whose_credentials_ended_long_ago_are_removed() {
    let folder = tempfile::tempdir().unwrap();
    let operators = open(&store(&folder));
    operators.add(&name("gone"), OperatorRole::Viewer, &old_credential()).unwrap();
    add_token(&operators, "ann", OperatorRole::Viewer);
    let names: Vec<_> = operators.list().into_iter().map(|one| one.name.to_string()).collect();
    assert_eq!(names, ["ann"]);
}

/// A credential of a newer version keeps its fields through a change by this one.
#[test]
fn unknown_fields_of_credentials_are_kept() {
    let json = r#"{"name":"ann","role":"viewer","credentials":[{"id":"a","secret_hash":"00",
        "issued_at":"2026-11-29T00:00:00Z","expires_at":"2026-11-30T00:00:00Z","issued_by":"root",
        "addresses":"10.0.0.0/8"}],"team":"x"}"#;
    let record: OperatorRecord = serde_json::from_str(json).unwrap();
    let again: serde_json::Value = serde_json::to_value(&record).unwrap();
    assert_eq!(again, serde_json::from_str::<serde_json::Value>(json).unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_of_another_control_plane_is_followed() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    let (here, there) = (Arc::new(open(&store)), open(&store));
    let shutdown = CancellationToken::new();
    let following = tokio::spawn(Arc::clone(&here).follow(shutdown.clone()));
    let token = add_token(&there, "ann", OperatorRole::Viewer);
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while role_of(&here, &token, now()).is_err() {
        assert!(tokio::time::Instant::now() < deadline, "the new operator is not known");
        tokio::task::yield_now().await;
    }
    there.revoke(&name("ann"), None, &revocation(), LastAdmin::Stays).unwrap();
    while role_of(&here, &token, now()).is_ok() {
        assert!(tokio::time::Instant::now() < deadline, "the revocation is not known");
        tokio::task::yield_now().await;
    }
    shutdown.cancel();
    following.await.unwrap().unwrap();
}
