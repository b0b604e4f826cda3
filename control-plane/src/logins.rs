//! The logins of browsers, as records that all control planes share: links that are used once, and sessions.
//!
//! It owns the stored logins and decides whether one can be used. It never decides what a role allows, nor whether the
//! credential of an operator is valid: that is asked of the operators at each use, so that a revoked credential ends its
//! sessions. While a control plane has no connection to etcd, it keeps what it knew, and makes no session.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_admin::ApiError;
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    Login, LoginState, LoginUser, OperatorRole, Revocation, Secret, StoreError, TokenId,
    UnknownFields,
};
use ironmesh_cert::{BearerToken, TokenUsage};
use ironmesh_store::{
    ExpectedVersion, RecordChange, RecordError, RecordStore, RecordTable, Versioned,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use crate::follow_records::follow_records;

/// How long a link can be used.
pub(crate) const LINK_LIFETIME: SignedDuration = SignedDuration::from_mins(5);

/// How long a session lasts.
const SESSION_LIFETIME: SignedDuration = SignedDuration::from_hours(12);

/// How long a login is listed after its end.
const RETENTION: SignedDuration = SignedDuration::from_hours(7 * 24);

/// The most usable logins of one user, so that no user takes the place of others.
const MAX_OF_A_USER: usize = 50;

/// The most logins that one user begins within [`NEW_PERIOD`]: each is a commit, and an entry of the journal.
const MAX_NEW_OF_A_USER: usize = 30;

/// The period in which new logins of a user are counted.
const NEW_PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// The most stored logins. Those that ended make room first.
const MAX_STORED: usize = 5_000;

/// How often a change is tried, each time on the newest records.
const MAX_ATTEMPTS: usize = 8;

/// The logins of the mesh.
#[derive(Debug)]
pub(crate) struct Logins {
    table: RecordTable<Login>,
    /// The stored logins, as far as this control plane knows.
    known: RwLock<BTreeMap<TokenId, Login>>,
    /// Held while the stored logins are read and shown: an earlier state never replaces a later one.
    rereading: Mutex<()>,
}

impl Logins {
    /// Opens the table.
    pub(crate) fn open(store: Arc<dyn RecordStore>) -> Result<Self, StoreError> {
        let (known, rereading) = Default::default();
        let logins = Self { table: RecordTable::new(store), known, rereading };
        logins.reread().map_err(|error| StoreError::new("read the logins", error))?;
        Ok(logins)
    }

    /// Follows the stored logins until `shutdown`.
    pub(crate) async fn follow(self: Arc<Self>, shutdown: CancellationToken) -> anyhow::Result<()> {
        follow_records(&self.table, || self.reread(), &shutdown).await;
        Ok(())
    }

    fn reread(&self) -> Result<(), RecordError> {
        let _rereading = self.rereading.lock();
        let stored = self.table.list()?.into_iter().map(|stored| stored.value);
        *self.known.write() = stored.map(|login| (login.id.clone(), login)).collect();
        Ok(())
    }

    /// All stored logins, the newest first.
    pub(crate) fn list(&self) -> Vec<Login> {
        let mut logins: Vec<_> = self.known.read().values().cloned().collect();
        logins.sort_by(|a, b| (b.created_at, &a.id).cmp(&(a.created_at, &b.id)));
        logins
    }

    /// Creates a link, which is returned with its secret.
    pub(crate) fn create_link(
        &self,
        user: &LoginUser,
        role: OperatorRole,
        now: Timestamp,
    ) -> Result<(BearerToken, Login), ApiError> {
        let token = generate(TokenUsage::LoginLink)?;
        let login = new_login(&token, user, role, now);
        self.add(login, now).map(|login| (token, login))
    }

    /// Begins a session without a link, for a user who has presented a credential.
    pub(crate) fn begin_session(
        &self,
        user: &LoginUser,
        role: OperatorRole,
        now: Timestamp,
    ) -> Result<(BearerToken, Login), ApiError> {
        let token = generate(TokenUsage::LoginSession)?;
        let expires_at = now + SESSION_LIFETIME;
        let login = Login { used_at: Some(now), expires_at, ..new_login(&token, user, role, now) };
        self.add(login, now).map(|login| (token, login))
    }

    /// Whether this control plane knows a link. It asks no store, and fails if the link cannot be used for sure.
    pub(crate) fn knows_link(&self, link: &Secret, now: Timestamp) -> Result<bool, ApiError> {
        let link = parse_link(link)?;
        let known = self.known.read();
        let checked = known.get(link.id()).map(|login| check_link(&link, login, now));
        checked.transpose().map(|known| known.is_some())
    }

    /// Makes a session of a link, once.
    pub(crate) fn use_link(
        &self,
        link: &Secret,
        now: Timestamp,
    ) -> Result<(BearerToken, Login), ApiError> {
        let is_known = self.knows_link(link, now)?;
        let link = parse_link(link)?;
        if !is_known {
            // It may have been created at another control plane just now.
            self.table.store().catch_up().map_err(|error| unavailable(&error))?;
        }
        let token = generate(TokenUsage::LoginSession)?.with_id(link.id().clone());
        let session = self.change(link.id(), |login| {
            check_link(&link, &login, now)?;
            Ok(Login {
                secret_hash: token.secret_hash(),
                used_at: Some(now),
                expires_at: now + SESSION_LIFETIME,
                ..login
            })
        })?;
        session.map(|session| (token, session)).ok_or_else(unknown_link)
    }

    /// Whether another control plane may have begun a session that this one does not know yet.
    pub(crate) fn may_lack_session(&self, token: &Secret) -> bool {
        let Some(token) = BearerToken::parse(TokenUsage::LoginSession, token) else { return false };
        let known = self.known.read();
        // A link that is used changes once more only: when it is revoked.
        known.get(token.id()).is_none_or(|login| login.used_at.is_none() && login.revoked.is_none())
    }

    /// Reads the login of a session from the store. Returns whether that has it.
    pub(crate) fn find_session(&self, token: &Secret) -> Result<bool, ApiError> {
        let Some(parsed) = BearerToken::parse(TokenUsage::LoginSession, token) else {
            return Ok(false);
        };
        self.table.store().catch_up().map_err(|error| unavailable(&error))?;
        let _rereading = self.rereading.lock();
        let stored = self.table.get(&parsed.id().to_string()).map_err(|error| failed(&error))?;
        if let Some(stored) = stored {
            self.known.write().insert(stored.value.id.clone(), stored.value);
        }
        Ok(!self.may_lack_session(token))
    }

    /// The session of a token, if it can be used at `now`.
    pub(crate) fn session(&self, token: &Secret, now: Timestamp) -> Result<Login, ApiError> {
        let unknown = || {
            ApiError::Unauthenticated(
                "the session is not one of this mesh, or ended long ago: log in again".to_owned(),
            )
        };
        let token = BearerToken::parse(TokenUsage::LoginSession, token).ok_or_else(unknown)?;
        let known = self.known.read();
        let login = known.get(token.id()).filter(|login| token.has_hash(&login.secret_hash));
        let login = login.ok_or_else(unknown)?;
        match login.state(now) {
            LoginState::Session => Ok(login.clone()),
            LoginState::Link => Err(unknown()),
            LoginState::Expired => Err(ApiError::Unauthenticated(format!(
                "the session expired at {:.0}: log in again",
                login.expires_at
            ))),
            LoginState::Revoked => {
                Err(ApiError::Unauthenticated("the session is revoked: log in again".to_owned()))
            }
        }
    }

    /// Revokes a link or a session, unless `check` rejects that. One that has ended stays as it is, and nothing is stored.
    pub(crate) fn revoke(
        &self,
        id: &TokenId,
        revocation: &Revocation,
        check: impl Fn(&Login) -> Result<(), ApiError>,
    ) -> Result<Login, ApiError> {
        // Its end is final: no user can cause commits by it.
        let known = self.known.read().get(id).cloned();
        if let Some(ended) = known.filter(|login| !login.is_usable(revocation.at)) {
            return check(&ended).map(|()| ended);
        }
        let revoked = self.change(id, |login| {
            check(&login)?;
            let revoked = login.is_usable(revocation.at).then(|| revocation.clone());
            Ok(Login { revoked: revoked.or(login.revoked), ..login })
        })?;
        let login = revoked.ok_or_else(|| {
            ApiError::NotFound(format!("no login has the id `{id}`: see `ironmesh session list`"))
        })?;
        // A copy of the store from before this moment is noticed.
        self.table.store().record_high_water().map_err(|error| failed(&error))?;
        Ok(login)
    }

    /// Shows a login that was just stored, also if the store cannot be read now.
    fn show(&self, login: &Login) {
        if let Err(error) = self.reread() {
            tracing::warn!(error = chain(&error), "cannot read the logins after a change");
            self.known.write().insert(login.id.clone(), login.clone());
        }
    }

    /// Adds a login, in place of those that ended long ago.
    fn add(&self, login: Login, now: Timestamp) -> Result<Login, ApiError> {
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.table.list().map_err(|error| failed(&error))?;
            check_bounds(&login, &stored, now)?;
            let removals = removals(stored, now);
            if removals.kept >= MAX_STORED {
                return Err(ApiError::Conflict(format!(
                    "the mesh has {MAX_STORED} logins, which is the most: revoke some (`ironmesh session list`)"
                )));
            }
            let new = RecordChange::put(&login, ExpectedVersion::Absent);
            let mut changes = vec![new.map_err(|error| failed(&error))?];
            changes.extend(removals.changes);
            match self.table.store().commit(&changes) {
                Ok(_) => {
                    self.show(&login);
                    return Ok(login);
                }
                // Another control plane removes the same ones.
                Err(RecordError::Conflict(_)) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Err(ApiError::Busy("the logins change all the time: try again".to_owned()))
    }

    /// Changes a stored login. None without one.
    fn change(
        &self,
        id: &TokenId,
        edit: impl Fn(Login) -> Result<Login, ApiError>,
    ) -> Result<Option<Login>, ApiError> {
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.table.get(&id.to_string()).map_err(|error| failed(&error))?;
            let Some(stored) = stored else { return Ok(None) };
            let login = edit(stored.value)?;
            let change = RecordChange::put(&login, ExpectedVersion::Exactly(stored.version));
            match self.table.store().commit(&[change.map_err(|error| failed(&error))?]) {
                Ok(_) => {
                    self.show(&login);
                    return Ok(Some(login));
                }
                Err(RecordError::Conflict(_)) => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Err(ApiError::Busy("the login changes all the time: try again".to_owned()))
    }
}

/// Why a user may begin no other login now, if that is so.
fn check_bounds(
    login: &Login,
    stored: &[Versioned<Login>],
    now: Timestamp,
) -> Result<(), ApiError> {
    let of_user =
        stored.iter().map(|stored| &stored.value).filter(|one| one.user.is_same_user(&login.user));
    if of_user.clone().filter(|one| one.is_usable(now)).count() >= MAX_OF_A_USER {
        return Err(ApiError::Conflict(format!(
            "this user has {MAX_OF_A_USER} logins, which is the most: revoke some (`ironmesh session list`)"
        )));
    }
    // Also those that were revoked meanwhile.
    let is_new = |one: &&Login| now.duration_since(one.created_at) < NEW_PERIOD;
    if of_user.filter(is_new).count() >= MAX_NEW_OF_A_USER {
        return Err(ApiError::Conflict(format!(
            "this user has begun {MAX_NEW_OF_A_USER} logins within {} minutes, which is the most: use a link that you have, or try again in {} minutes",
            NEW_PERIOD.as_mins(),
            NEW_PERIOD.as_mins()
        )));
    }
    Ok(())
}

/// The removals beside a new login, and how many logins are kept.
struct Removals {
    changes: Vec<RecordChange>,
    kept: usize,
}

/// The most removals in one change of the store.
const MAX_REMOVALS: usize = 100;

/// Removes the logins that ended long ago, and the oldest of the ended ones if there are too many.
fn removals(stored: Vec<Versioned<Login>>, now: Timestamp) -> Removals {
    let count = stored.len();
    let mut ended: Vec<_> =
        stored.into_iter().filter(|stored| !stored.value.is_usable(now)).collect();
    ended.sort_by_key(|stored| stored.value.end());
    let surplus = (count + 1).saturating_sub(MAX_STORED);
    let is_over = |login: &Login| now.duration_since(login.end()) > RETENTION;
    let over = ended.iter().enumerate().filter(|(n, one)| *n < surplus || is_over(&one.value));
    let changes: Vec<_> = over
        .take(MAX_REMOVALS)
        .map(|(_, one)| {
            let version = ExpectedVersion::Exactly(one.version);
            RecordChange::remove::<Login>(one.value.id.to_string(), version)
        })
        .collect();
    Removals { kept: count - changes.len(), changes }
}

fn parse_link(link: &Secret) -> Result<BearerToken, ApiError> {
    BearerToken::parse(TokenUsage::LoginLink, link).ok_or_else(unknown_link)
}

fn unknown_link() -> ApiError {
    ApiError::Unauthenticated(
        "the login link is not one of this mesh, is truncated, or ended long ago: create one with `ironmesh ui`"
            .to_owned(),
    )
}

/// Why a link cannot be used at `now`, if it cannot.
fn check_link(link: &BearerToken, login: &Login, now: Timestamp) -> Result<(), ApiError> {
    let ended = |how: &str| {
        let message = format!("the login link {how}: create a new one with `ironmesh ui`");
        Err(ApiError::Unauthenticated(message))
    };
    match (login.used_at, login.state(now)) {
        (Some(at), _) => ended(&format!("was used at {at:.0}")),
        (None, LoginState::Revoked) => ended("is revoked"),
        (None, _) if !link.has_hash(&login.secret_hash) => Err(unknown_link()),
        (None, LoginState::Expired) => ended(&format!("expired at {:.0}", login.expires_at)),
        (None, LoginState::Link | LoginState::Session) => Ok(()),
    }
}

fn new_login(token: &BearerToken, user: &LoginUser, role: OperatorRole, now: Timestamp) -> Login {
    Login {
        id: token.id().clone(),
        user: user.clone(),
        role,
        secret_hash: token.secret_hash(),
        created_at: now,
        used_at: None,
        expires_at: now + LINK_LIFETIME,
        revoked: None,
        unknown: UnknownFields::default(),
    }
}

fn generate(usage: TokenUsage) -> Result<BearerToken, ApiError> {
    BearerToken::generate(usage)
        .map_err(|_| ApiError::Internal("no random bytes for a login".to_owned()))
}

/// The error while it is unknown what other control planes have stored.
fn unavailable(error: &RecordError) -> ApiError {
    ApiError::Busy(format!("cannot look up the login, try again: {}", chain(error)))
}

fn failed(error: &RecordError) -> ApiError {
    ApiError::Internal(chain(error))
}
