//! The logins of browsers: links, sessions, and who a session is. Each is in the journal.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ironmesh_admin::{ApiError, Authenticated, Identity, LoginAccess, Permission, Principal};
use ironmesh_api::{LinkRequest, LoginLink, LoginRequest, SessionList, SessionView};
use ironmesh_catalog::{
    CredentialState, Login, LoginState, LoginUser, OperatorRole, Revocation, Secret, TokenId,
};
use jiff::Timestamp;

use super::RunningControlPlane;
use crate::journal::{self, user_name};
use crate::operators::CredentialHolder;

/// The names of users of this machine, by user id.
type UserNames = BTreeMap<u32, Option<String>>;

/// The reason of a revocation by the user's own logout.
const LOGGED_OUT: &str = "logged out";

impl LoginAccess for RunningControlPlane {
    fn sessions(&self, principal: &Principal) -> SessionList {
        let now = Timestamp::now();
        let mut logins = self.logins.list();
        if !principal.may(Permission::ReadAccess) {
            logins.retain(|login| is_own(principal, login));
        }
        let mut names = UserNames::default();
        let view = |login| self.view_of_login(login, &mut names, now);
        SessionList { sessions: logins.iter().map(view).collect() }
    }

    fn create_link(
        &self,
        principal: &Principal,
        request: &LinkRequest,
    ) -> Result<LoginLink, ApiError> {
        let result = self.new_link(principal, request);
        let message = result
            .as_ref()
            .map(|link| format!("created login link {} with role {}", link.id, link.role));
        let entry = journal::login_change(principal, message.as_deref().map_err(|error| *error));
        self.journal.record_and_wait(entry);
        result
    }

    fn knows_login(&self, request: &LoginRequest) -> Result<bool, ApiError> {
        let now = Timestamp::now();
        match request {
            LoginRequest::Link(link) => self.logins.knows_link(link, now),
            LoginRequest::Token(token) => self.operators.of_token(token, now).map(|_| true),
        }
    }

    fn may_lack_session(&self, token: &Secret) -> bool {
        self.logins.may_lack_session(token)
    }

    fn find_session(&self, token: &Secret) -> Result<bool, ApiError> {
        self.logins.find_session(token)
    }

    fn log_in(
        &self,
        request: &LoginRequest,
        address: SocketAddr,
    ) -> Result<(Secret, SessionView), ApiError> {
        let now = Timestamp::now();
        // A rejected login is in the log and counts against its source; the journal has what succeeds.
        let (token, login) = match request {
            LoginRequest::Link(link) => self.logins.use_link(link, now)?,
            LoginRequest::Token(token) => {
                let CredentialHolder { name, role, credential } =
                    self.operators.of_token(token, now)?;
                let user = LoginUser::Operator { name, credential };
                self.logins.begin_session(&user, role, now)?
            }
        };
        let Authenticated { identity, role, session } = self.user(&login, now)?;
        let principal =
            Principal { identity, role, session, read_only: false, address: Some(address) };
        let message = format!("logged in: session {} with role {role}", login.id);
        self.journal.record_and_wait(journal::login_change(&principal, Ok(&message)));
        Ok((token.text(), self.view_of_login(&login, &mut UserNames::default(), now)))
    }

    fn revoke_session(
        &self,
        principal: &Principal,
        id: &TokenId,
        is_logout: bool,
    ) -> Result<SessionView, ApiError> {
        let now = Timestamp::now();
        let reason = is_logout.then(|| LOGGED_OUT.to_owned());
        let revocation = Revocation::by_operator(now, reason);
        let result = self.logins.revoke(id, &revocation, |login| may_revoke(principal, login));
        let done = if is_logout { "logged out" } else { "revoked" };
        let message = format!("{done}: session {id}");
        // Other users could displace the history of logins by requests that change nothing.
        let is_change =
            result.as_ref().is_ok_and(|login| login.revoked.as_ref() == Some(&revocation));
        if is_change || principal.may(Permission::Administer) {
            let entry = journal::login_change(principal, result.as_ref().map(|_| &*message));
            self.journal.record_and_wait(entry);
        }
        Ok(self.view_of_login(&result?, &mut UserNames::default(), now))
    }
}

/// The user as whom a principal logs in; none if it logs in nowhere.
fn user_of(principal: &Principal) -> Option<LoginUser> {
    match &principal.identity {
        Identity::User { uid } | Identity::LoggedInOwner { uid } => {
            Some(LoginUser::Owner { uid: *uid })
        }
        Identity::Operator { name, credential } => {
            Some(LoginUser::Operator { name: name.clone(), credential: credential.clone() })
        }
        Identity::Local => None,
    }
}

fn is_own(principal: &Principal, login: &Login) -> bool {
    user_of(principal).is_some_and(|user| user.is_same_user(&login.user))
}

/// Every user may end the own logins, with any role: a lost laptop must not wait for an admin.
fn may_revoke(principal: &Principal, login: &Login) -> Result<(), ApiError> {
    if is_own(principal, login) || principal.may(Permission::Administer) {
        return Ok(());
    }
    Err(ApiError::Forbidden(format!(
        "login {} is one of another user, which an admin revokes; {principal} has the role {}",
        login.id, principal.role
    )))
}

impl RunningControlPlane {
    /// The view of a login. It has ended if the credential has by which it was made.
    fn view_of_login(&self, login: &Login, names: &mut UserNames, now: Timestamp) -> SessionView {
        let mut view = SessionView::new(login, now);
        let (name, credential) = match &login.user {
            LoginUser::Operator { name, credential } => (name, credential),
            LoginUser::Owner { uid: Some(uid) } => {
                let name = names.entry(*uid).or_insert_with(|| user_name(*uid));
                view.user = name.clone().unwrap_or(view.user);
                return view;
            }
            LoginUser::Owner { uid: None } => return view,
        };
        let of_credential = match self.operators.credential_state(name, credential, now) {
            CredentialState::Valid => return view,
            CredentialState::Expired => LoginState::Expired,
            CredentialState::Revoked => LoginState::Revoked,
        };
        if login.is_usable(now) {
            view.state = of_credential;
        }
        view
    }

    /// Who a session is of.
    pub(super) fn user_of_session(
        &self,
        token: &Secret,
        now: Timestamp,
    ) -> Result<Authenticated, ApiError> {
        self.user(&self.logins.session(token, now)?, now)
    }

    fn user(&self, login: &Login, now: Timestamp) -> Result<Authenticated, ApiError> {
        let session = Some(login.id.clone());
        match &login.user {
            LoginUser::Owner { uid } => {
                let identity = Identity::LoggedInOwner { uid: *uid };
                Ok(Authenticated { identity, role: login.role, session })
            }
            LoginUser::Operator { name, credential } => {
                let holder = self.operators.holder(name, credential, now)?;
                let (name, credential) = (holder.name, holder.credential);
                let identity = Identity::Operator { name, credential };
                Ok(Authenticated { identity, role: login.role.min(holder.role), session })
            }
        }
    }

    /// Creates a link. Blocks on the store.
    fn new_link(
        &self,
        principal: &Principal,
        request: &LinkRequest,
    ) -> Result<LoginLink, ApiError> {
        // Otherwise a session, also a stolen one, would outlive its end and its revocation by its links.
        if principal.session.is_some() {
            return Err(ApiError::Forbidden(
                "a session makes no login links: use `ironmesh ui` with a credential of an operator, or as the owner of the \
                 admin socket"
                    .to_owned(),
            ));
        }
        let only_reads = || ApiError::Forbidden("the admin port only reads".to_owned());
        let user = user_of(principal).ok_or_else(only_reads)?;
        let role = request.role.unwrap_or(principal.role);
        if role > principal.role {
            let roles = OperatorRole::ALL.into_iter().filter(|role| *role <= principal.role);
            let roles: Vec<_> = roles.map(OperatorRole::word).collect();
            return Err(ApiError::Forbidden(format!(
                "{principal} has the role {}, and a login has no higher one: choose {}",
                principal.role,
                roles.join(", ")
            )));
        }
        let servers = self.servers();
        if servers.is_empty() {
            return Err(ApiError::Conflict(
                "a browser logs in at `listen.api`, which is not set, or has no address that a browser reaches: set it, and \
                 `advertise` if it listens on all addresses"
                    .to_owned(),
            ));
        }
        let (token, login) = self.logins.create_link(&user, role, Timestamp::now())?;
        let token = token.text();
        let link = |(host, port): &(String, u16)| {
            let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
            Secret::new(format!("https://{host}:{port}/login#{}", token.expose()))
        };
        let links = servers.iter().map(link).collect();
        Ok(LoginLink { id: login.id, role, links, expires_at: login.expires_at })
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::UnknownFields;

    use super::*;

    fn login(user: LoginUser) -> Login {
        Login {
            id: "0123456789abcdef".parse().unwrap(),
            user,
            role: OperatorRole::Viewer,
            secret_hash: String::new(),
            created_at: Timestamp::UNIX_EPOCH,
            used_at: None,
            expires_at: Timestamp::UNIX_EPOCH,
            revoked: None,
            unknown: UnknownFields::default(),
        }
    }

    #[test]
    fn users_revoke_their_own_logins_and_admins_all() {
        let operator = |name: &str, role| {
            let (name, credential) = (name.parse().unwrap(), "2".to_owned());
            let identity = Identity::Operator { name, credential };
            Principal { identity, role, ..Principal::owner(None) }
        };
        let (ann, owner) = (
            // Made by a different credential.
            login(LoginUser::Operator { name: "ann".parse().unwrap(), credential: "1".to_owned() }),
            login(LoginUser::Owner { uid: Some(7) }),
        );
        let identity = Identity::LoggedInOwner { uid: Some(7) };
        let role = OperatorRole::Viewer;
        let logged_in_owner = Principal { identity, role, ..Principal::owner(None) };
        for (principal, of_ann, of_owner) in [
            (operator("ann", OperatorRole::Viewer), true, false),
            (operator("ben", OperatorRole::Operator), false, false),
            (operator("ben", OperatorRole::Admin), true, true),
            (logged_in_owner, false, true),
            (Principal::owner(Some(7)), true, true),
            (Principal::local(), false, false),
        ] {
            assert_eq!(may_revoke(&principal, &ann).is_ok(), of_ann, "{principal:?}");
            assert_eq!(may_revoke(&principal, &owner).is_ok(), of_owner, "{principal:?}");
        }
    }
}
