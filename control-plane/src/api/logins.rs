//! The logins of browsers: links, sessions, and who a session is. Each is in the journal.

use std::net::SocketAddr;

use ironmesh_admin::{ApiError, Authenticated, Identity, LoginAccess, Principal};
use ironmesh_api::{LinkRequest, LoginLink, LoginRequest, SessionList, SessionView};
use ironmesh_catalog::{Login, LoginUser, OperatorRole, Revocation, Secret, TokenId};
use jiff::Timestamp;

use super::RunningControlPlane;
use crate::journal;
use crate::operators::CredentialHolder;

/// The reason of a revocation by the user's own logout.
const LOGGED_OUT: &str = "logged out";

impl LoginAccess for RunningControlPlane {
    fn sessions(&self) -> SessionList {
        let now = Timestamp::now();
        let logins = self.logins.list();
        SessionList { sessions: logins.iter().map(|login| SessionView::new(login, now)).collect() }
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
        Ok((token.text(), SessionView::new(&login, now)))
    }

    fn revoke_session(
        &self,
        principal: &Principal,
        id: &TokenId,
        is_own: bool,
    ) -> Result<SessionView, ApiError> {
        let now = Timestamp::now();
        let reason = is_own.then(|| LOGGED_OUT.to_owned());
        let result = self.logins.revoke(id, &Revocation::by_operator(now, reason));
        let done = if is_own { "logged out" } else { "revoked" };
        let message = format!("{done}: session {id}");
        let entry = journal::login_change(principal, result.as_ref().map(|_| &*message));
        self.journal.record_and_wait(entry);
        Ok(SessionView::new(&result?, now))
    }
}

impl RunningControlPlane {
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
        let user = match &principal.identity {
            Identity::User { uid } | Identity::LoggedInOwner { uid } => {
                LoginUser::Owner { uid: *uid }
            }
            Identity::Operator { name, credential } => {
                LoginUser::Operator { name: name.clone(), credential: credential.clone() }
            }
            Identity::Local => {
                return Err(ApiError::Forbidden("the admin port only reads".to_owned()));
            }
        };
        let role = request.role.unwrap_or(principal.role);
        if role > principal.role {
            return Err(ApiError::Forbidden(format!(
                "{principal} has the role {}, and a login has no higher one: choose {}",
                principal.role,
                OperatorRole::ALL.map(OperatorRole::word).join(", ")
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
