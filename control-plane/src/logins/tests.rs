use ironmesh_store::{KeyEncryptionKey, Store};
use tempfile::TempDir;

use super::*;

fn store(folder: &TempDir) -> Arc<Store> {
    let key = folder.path().join("kek");
    let state = folder.path().join("state");
    let kek = KeyEncryptionKey::load_or_create(&key, Store::database_exists(&state)).unwrap();
    Arc::new(Store::open(&state, kek).unwrap())
}

fn open(store: &Arc<Store>) -> Logins {
    Logins::open(Arc::<Store>::clone(store)).unwrap()
}

fn owner() -> LoginUser {
    LoginUser::Owner { uid: Some(0) }
}

fn start() -> Timestamp {
    Timestamp::now()
}

/// The message of a rejected login.
fn rejection<T>(result: Result<T, ApiError>) -> String {
    match result.err().unwrap() {
        ApiError::Unauthenticated(message) => message,
        other => panic!("{other}"),
    }
}

#[test]
fn link_becomes_one_session_that_ends_after_twelve_hours() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    let now = start();
    let (link, login) = open(&store).create_link(&owner(), OperatorRole::Viewer, now).unwrap();
    assert_eq!(login.state(now), LoginState::Link);
    // A link is no session, and the secret is not stored.
    let logins = open(&store);
    rejection(logins.session(&link.text(), now));
    let secret = link.text().expose().rsplit('_').next().unwrap().to_owned();
    assert!(!format!("{:?}", logins.list()).contains(&secret));

    let (token, session) = logins.use_link(&link.text(), now).unwrap();
    assert_eq!((session.id, session.role), (login.id, OperatorRole::Viewer));
    assert!(rejection(logins.use_link(&link.text(), now)).contains("was used at"));
    // Also at a control plane that has opened the store since.
    let other = open(&store);
    assert!(rejection(other.use_link(&link.text(), now)).contains("was used at"));
    let last = now + SESSION_LIFETIME - SignedDuration::from_secs(1);
    assert_eq!(other.session(&token.text(), last).unwrap().user, owner());
    let end = now + SESSION_LIFETIME;
    assert!(rejection(other.session(&token.text(), end)).contains("expired at"));
}

#[test]
fn expired_changed_and_foreign_links_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let logins = open(&store(&folder));
    let now = start();
    let (link, _) = logins.create_link(&owner(), OperatorRole::Admin, now).unwrap();
    let expired = rejection(logins.use_link(&link.text(), now + LINK_LIFETIME));
    assert!(expired.contains("expired at"), "{expired}");
    let forged = generate(TokenUsage::LoginLink).unwrap().with_id(link.id().clone());
    let foreign = generate(TokenUsage::LoginLink).unwrap();
    let usage = generate(TokenUsage::LoginSession).unwrap().with_id(link.id().clone());
    for bad in [forged.text(), foreign.text(), usage.text(), Secret::new("x".to_owned())] {
        let message = rejection(logins.use_link(&bad, now));
        assert!(message.contains("not one of this mesh"), "{message}");
    }
    logins.use_link(&link.text(), now).unwrap();
}

#[test]
fn revoked_links_and_sessions_are_rejected_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let logins = open(&store(&folder));
    let now = start();
    let revocation = Revocation::by_operator(now, None);
    let (link, login) = logins.create_link(&owner(), OperatorRole::Viewer, now).unwrap();
    logins.revoke(&login.id, &revocation, |_| Ok(())).unwrap();
    assert!(rejection(logins.use_link(&link.text(), now)).contains("is revoked"));
    let (token, session) = logins.begin_session(&owner(), OperatorRole::Viewer, now).unwrap();
    logins.session(&token.text(), now).unwrap();
    let revoked = logins.revoke(&session.id, &revocation, |_| Ok(())).unwrap();
    assert!(rejection(logins.session(&token.text(), now)).contains("is revoked"));
    // An earlier revocation stays, and nothing is stored.
    let version = || logins.table.get(&session.id.to_string()).unwrap().unwrap().version;
    let stored = version();
    let later = Revocation::by_operator(now + SignedDuration::from_hours(1), None);
    assert_eq!(logins.revoke(&session.id, &later, |_| Ok(())).unwrap(), revoked);
    assert_eq!(version(), stored);
    let unknown = "0123456789abcdef".parse().unwrap();
    assert!(matches!(logins.revoke(&unknown, &revocation, |_| Ok(())), Err(ApiError::NotFound(_))));
}

/// Begins the most sessions of the owner in this period.
fn begin_most(logins: &Logins, count: usize, now: Timestamp) {
    for _ in 0..count {
        logins.begin_session(&owner(), OperatorRole::Viewer, now).unwrap();
    }
}

#[test]
fn logins_of_one_user_are_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let logins = open(&store(&folder));
    let start = start();
    begin_most(&logins, MAX_NEW_OF_A_USER, start);
    begin_most(&logins, MAX_OF_A_USER - MAX_NEW_OF_A_USER, start + NEW_PERIOD);
    let now = start + NEW_PERIOD * 2;
    let more = logins.create_link(&owner(), OperatorRole::Viewer, now);
    assert!(matches!(more, Err(ApiError::Conflict(_))), "{more:?}");
    let other = LoginUser::Owner { uid: Some(1) };
    logins.create_link(&other, OperatorRole::Viewer, now).unwrap();
    // Expired ones do not count, and are removed when they are of no more interest.
    let later = now + SESSION_LIFETIME;
    logins.create_link(&owner(), OperatorRole::Viewer, later).unwrap();
    assert_eq!(logins.list().len(), MAX_OF_A_USER + 2);
    let much_later = later + RETENTION + SignedDuration::from_secs(1);
    logins.create_link(&owner(), OperatorRole::Viewer, much_later).unwrap();
    assert_eq!(logins.list().len(), 2);
}

#[test]
fn user_begins_few_logins_in_a_period_with_any_credential() {
    let folder = tempfile::tempdir().unwrap();
    let logins = open(&store(&folder));
    let now = start();
    let user = |name: &str, credential: usize| LoginUser::Operator {
        name: name.parse().unwrap(),
        credential: credential.to_string(),
    };
    let link = |name: &str, credential, now| {
        logins.create_link(&user(name, credential), OperatorRole::Viewer, now)
    };
    let revocation = Revocation::by_operator(now, None);
    for credential in 0..MAX_NEW_OF_A_USER {
        let (_, login) = link("ann", credential, now).unwrap();
        logins.revoke(&login.id, &revocation, |_| Ok(())).unwrap();
    }
    let more = link("ann", 0, now).unwrap_err();
    assert!(more.to_string().contains("within 10 minutes"), "{more}");
    link("ben", 0, now).unwrap();
    link("ann", 0, now + NEW_PERIOD).unwrap();
}

#[test]
fn session_of_another_control_plane_is_found_in_the_store() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    let (one, now) = (open(&store), start());
    let (link, _) = one.create_link(&owner(), OperatorRole::Viewer, now).unwrap();
    // One that knows the link, and one that knows nothing, as long as no watch reports the session to them.
    for other in [open(&store), Logins { known: RwLock::default(), ..open(&store) }] {
        let (link, _) = one.create_link(&owner(), OperatorRole::Viewer, now).unwrap();
        let (token, _) = one.use_link(&link.text(), now).unwrap();
        rejection(other.session(&token.text(), now));
        assert!(other.may_lack_session(&token.text()));
        assert!(other.find_session(&token.text()).unwrap());
        assert!(!other.may_lack_session(&token.text()), "it is asked once");
        assert_eq!(other.session(&token.text(), now).unwrap().user, owner());
    }
    let other = open(&store);
    let (token, session) = one.use_link(&link.text(), now).unwrap();
    assert!(other.find_session(&token.text()).unwrap());
    // A wrong secret of a known session is no reason to read the store.
    let forged = generate(TokenUsage::LoginSession).unwrap().with_id(session.id).text();
    assert!(!other.may_lack_session(&forged));
    assert!(!other.may_lack_session(&Secret::new("x".to_owned())));
    let random = generate(TokenUsage::LoginSession).unwrap().text();
    assert!(other.may_lack_session(&random) && !other.find_session(&random).unwrap());
}

#[test]
fn link_of_another_control_plane_is_unknown_and_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    let store = store(&folder);
    let (one, other, now) = (open(&store), open(&store), start());
    let (link, login) = one.create_link(&owner(), OperatorRole::Viewer, now).unwrap();
    assert!(one.knows_link(&link.text(), now).unwrap());
    assert!(!other.knows_link(&link.text(), now).unwrap());
    // What this control plane knows suffices to reject a link.
    let forged = generate(TokenUsage::LoginLink).unwrap().with_id(login.id);
    rejection(one.knows_link(&forged.text(), now));
    assert!(rejection(one.knows_link(&link.text(), now + LINK_LIFETIME)).contains("expired at"));
    other.use_link(&link.text(), now).unwrap();
    assert!(rejection(other.knows_link(&link.text(), now)).contains("was used at"));
}
