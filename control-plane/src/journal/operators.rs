//! The entries of operators' requests, done and rejected.

use ironmesh_admin::{ApiError, Identity, Principal};
use ironmesh_api::{
    BootstrapRequest, BootstrapResponse, CordonChange, CordonRequest, EnrolledProxy, LogLevelView,
    RevokeRequest, RevokedProxies,
};
use ironmesh_catalog::{
    Actor, JoinRecord, JournalEntry, JournalKind, JournalOutcome, JournalSubject, LogDirectives,
    ObjectRef, OperatorName, PolicyRecord, PolicyRevision, ServiceName, Silence, TokenId,
};
use jiff::Timestamp;

use super::users::user_name;
use super::{few, line};
use crate::register::Register;
use crate::stores::host_name;

/// The most proxies that the entry of an enrollment names; it counts all of them.
const MAX_NAMES: usize = 5;

/// Where the requests of the socket's owner come from.
const ADMIN_SOCKET: &str = "admin socket";

fn entry(
    principal: &Principal,
    kind: JournalKind,
    error: Option<&ApiError>,
    subject: JournalSubject,
) -> JournalEntry {
    let who = match &principal.identity {
        Identity::User { uid } | Identity::LoggedInOwner { uid } => {
            Actor::User { uid: *uid, name: uid.and_then(user_name) }
        }
        Identity::Local => Actor::User { uid: None, name: None },
        Identity::Operator { name, credential } => Actor::Operator {
            name: name.clone(),
            role: principal.role,
            credential: credential.clone(),
        },
    };
    let outcome = match error {
        None => JournalOutcome::Done,
        Some(error) => JournalOutcome::Rejected { reason: reason(&error.to_string()) },
    };
    let origin = principal.address.map_or_else(|| ADMIN_SOCKET.to_owned(), |from| from.to_string());
    let origin = Some(origin);
    JournalEntry { origin, subject, outcome, ..JournalEntry::new(Timestamp::now(), kind, who) }
}

/// The beginning of an error on one line. A rejected policy has its findings on further lines.
fn reason(error: &str) -> String {
    let lines = error.lines().map(str::trim).filter(|text| !text.is_empty());
    line(&lines.take(2).collect::<Vec<_>>().join(" "))
}

/// An enrollment of one or more proxies.
pub(crate) fn enrollment(
    principal: &Principal,
    request: &BootstrapRequest,
    result: Result<&BootstrapResponse, &ApiError>,
) -> JournalEntry {
    let enrolled = result.map(|response| response.proxies.as_slice()).unwrap_or_default();
    let (proxy, name) = match enrolled {
        [] => (None, request.name.as_ref().map(ToString::to_string)),
        [only] => (Some(only.id), Some(only.name.to_string())),
        several => (None, Some(names(several))),
    };
    let subject = JournalSubject {
        proxy,
        name,
        services: few(&request.services),
        ..JournalSubject::default()
    };
    let count = u64::try_from(request.proxies.len()).unwrap_or(u64::MAX);
    let message = request.new_authority.then(|| "--new-authority".to_owned());
    JournalEntry { count, message, ..entry(principal, JournalKind::Enroll, result.err(), subject) }
}

/// The names of the first proxies of an enrollment.
fn names(enrolled: &[EnrolledProxy]) -> String {
    let mut names: Vec<_> = enrolled.iter().map(|one| one.name.to_string()).collect();
    if names.len() > MAX_NAMES {
        names.truncate(MAX_NAMES);
        names.push("…".to_owned());
    }
    names.join(", ")
}

/// The revocations of a request: one entry for each proxy that was not revoked before, or one for a rejected request.
pub(crate) fn revocations(
    principal: &Principal,
    request: &RevokeRequest,
    result: Result<&RevokedProxies, &ApiError>,
    register: &Register,
) -> Vec<JournalEntry> {
    let message = request.reason.as_deref().map(line).filter(|reason| !reason.is_empty());
    let entry_about = |subject| {
        let error = result.err();
        JournalEntry {
            message: message.clone(),
            ..entry(principal, JournalKind::Revoke, error, subject)
        }
    };
    let Ok(revoked) = result else {
        let name = Some(line(&request.proxies.join(", ")));
        return vec![entry_about(JournalSubject { name, ..JournalSubject::default() })];
    };
    let new = revoked.proxies.iter().filter(|proxy| !proxy.is_old);
    let subjects = new.map(|proxy| {
        let record = register.get(proxy.id);
        JournalSubject {
            proxy: Some(proxy.id),
            name: record.as_ref().and_then(|record| record.name.as_ref().map(ToString::to_string)),
            services: record.map(|record| few(&record.services)).unwrap_or_default(),
            ..JournalSubject::default()
        }
    });
    subjects.map(entry_about).collect()
}

/// A change of policy by an operator: a rollback, an accepted removal, or applied documents. `revision` is that of
/// the request, in case it is rejected.
pub(crate) fn policy_change(
    principal: &Principal,
    kind: JournalKind,
    revision: Option<&str>,
    message: Option<&str>,
    result: Result<&PolicyRecord, &ApiError>,
) -> JournalEntry {
    let named = revision.map(|revision| PolicyRevision(line(revision).into()));
    let record = result.ok();
    let subject = JournalSubject {
        revision: record.map(|record| record.revision.clone()).or(named),
        commit: record.and_then(|record| record.commit.clone()),
        ..JournalSubject::default()
    };
    let message = message.map(line);
    JournalEntry { message, ..entry(principal, kind, result.err(), subject) }
}

/// The acceptance of a held-back removal of a service's endpoints.
pub(crate) fn held_endpoints<T>(
    principal: &Principal,
    service: &ServiceName,
    result: Result<T, &ApiError>,
) -> JournalEntry {
    let services = vec![service.clone()];
    let subject = JournalSubject { services, ..JournalSubject::default() };
    entry(principal, JournalKind::Accept, result.err(), subject)
}

/// A change of tokens: `count` created ones, or the revocation of `token`.
pub(crate) fn token_change(
    principal: &Principal,
    services: &[ServiceName],
    token: Option<&TokenId>,
    count: usize,
    message: Option<String>,
    error: Option<&ApiError>,
) -> JournalEntry {
    let subject = JournalSubject {
        token: token.cloned(),
        services: few(services),
        ..JournalSubject::default()
    };
    let count = u64::try_from(count).unwrap_or(u64::MAX);
    JournalEntry { count, message, ..entry(principal, JournalKind::Token, error, subject) }
}

/// A change of the credentials of the operator `name`.
pub(crate) fn operator_change(
    principal: &Principal,
    name: &OperatorName,
    message: Option<&str>,
    error: Option<&ApiError>,
) -> JournalEntry {
    let subject = JournalSubject { name: Some(name.to_string()), ..JournalSubject::default() };
    let message = message.map(line);
    JournalEntry { message, ..entry(principal, JournalKind::Operator, error, subject) }
}

/// A login link, a login, a logout, or a revocation of these.
pub(crate) fn login_change(
    principal: &Principal,
    message: Result<&str, &ApiError>,
) -> JournalEntry {
    let name = principal_name(principal);
    let subject = JournalSubject { name, ..JournalSubject::default() };
    let entry = entry(principal, JournalKind::Login, message.err(), subject);
    JournalEntry { message: message.ok().map(line), ..entry }
}

/// An export of the mesh with its number of records and bytes.
pub(crate) fn export(principal: &Principal, result: Result<(u64, u64), &ApiError>) -> JournalEntry {
    let (count, bytes) = result.unwrap_or((1, 0));
    let message = result.is_ok().then(|| format!("{bytes} bytes"));
    let subject = JournalSubject::default();
    JournalEntry { count, message, ..entry(principal, JournalKind::Export, result.err(), subject) }
}

/// A change of the cordon of the proxy that `id` names.
pub(crate) fn cordon_change(
    principal: &Principal,
    id: &str,
    change: CordonChange,
    request: &CordonRequest,
    result: Result<&JoinRecord, &ApiError>,
) -> JournalEntry {
    let subject = JournalSubject {
        proxy: result.map(|record| record.id).ok(),
        name: match result {
            Ok(record) => record.name.as_ref().map(ToString::to_string),
            Err(_) => Some(line(id)),
        },
        services: result.map(|record| few(&record.services)).unwrap_or_default(),
        ..JournalSubject::default()
    };
    let kind = match change {
        CordonChange::Drain => JournalKind::Drain,
        CordonChange::Cordon | CordonChange::Uncordon => JournalKind::Cordon,
    };
    let reason = request.reason.as_deref().map(line).filter(|reason| !reason.is_empty());
    let message = match (change, reason) {
        (CordonChange::Uncordon, Some(reason)) => Some(format!("returned to service: {reason}")),
        (CordonChange::Uncordon, None) => Some("returned to service".to_owned()),
        (_, reason) => reason,
    };
    JournalEntry { message, ..entry(principal, kind, result.err(), subject) }
}

/// The name of who made a change, or the user id; none if it is unknown.
pub(crate) fn principal_name(principal: &Principal) -> Option<String> {
    match &principal.identity {
        Identity::User { uid: Some(uid) } | Identity::LoggedInOwner { uid: Some(uid) } => {
            Some(user_name(*uid).unwrap_or_else(|| format!("user {uid}")))
        }
        Identity::User { uid: None } | Identity::LoggedInOwner { uid: None } | Identity::Local => {
            None
        }
        Identity::Operator { name, .. } => Some(format!("operator {name}")),
    }
}

/// The author of a change of policy: an operator by the credential, whatever the request states. The owner of the socket
/// may state another, such as a program that acts for a person.
pub(crate) fn author(principal: &Principal, stated: Option<String>) -> Option<String> {
    match principal.identity {
        Identity::Operator { .. } | Identity::LoggedInOwner { .. } => principal_name(principal),
        Identity::User { .. } | Identity::Local => stated,
    }
}

/// A changed level of the log of this control plane.
pub(crate) fn log_level_change(
    principal: &Principal,
    level: &LogDirectives,
    result: Result<&LogLevelView, &ApiError>,
) -> JournalEntry {
    let end = result.map(|view| match view.until {
        Some(until) => format!(", until {until:.0}"),
        None => ", the configured level".to_owned(),
    });
    let message = Some(line(&format!("{level}{}", end.unwrap_or_default())));
    let subject = JournalSubject { name: Some(host_name()), ..JournalSubject::default() };
    JournalEntry { message, ..entry(principal, JournalKind::Log, result.err(), subject) }
}

/// A set or removed silence. `about` is what the request named, in case it is rejected.
pub(crate) fn silence_change(
    principal: &Principal,
    about: &str,
    result: Result<&Silence, &ApiError>,
) -> JournalEntry {
    let mut subject = JournalSubject::default();
    let message = match result {
        Err(_) => {
            subject.name = Some(line(about));
            None
        }
        Ok(Silence { id, code, object, reason, expires_at, removed, .. }) => {
            let object_text = object.as_ref().map(|object| format!(" {object}"));
            subject.name = Some(line(&format!("{code}{}", object_text.unwrap_or_default())));
            match object {
                Some(ObjectRef::Proxy(proxy)) => subject.proxy = Some(*proxy),
                Some(ObjectRef::Service(service) | ObjectRef::Endpoint(service, _)) => {
                    subject.services = vec![service.clone()];
                }
                Some(ObjectRef::Port(port)) => subject.services = vec![port.service.clone()],
                _ => {}
            }
            Some(match removed {
                Some(_) => format!("removed silence {id}"),
                None => line(&format!("silence {id} until {expires_at:.0}: {reason}")),
            })
        }
    };
    JournalEntry { message, ..entry(principal, JournalKind::Silence, result.err(), subject) }
}

/// A change of the services of the proxy that `id` names.
pub(crate) fn services_change(
    principal: &Principal,
    id: &str,
    services: &[ServiceName],
    result: Result<&JoinRecord, &ApiError>,
) -> JournalEntry {
    let subject = JournalSubject {
        proxy: result.map(|record| record.id).ok(),
        name: match result {
            Ok(record) => record.name.as_ref().map(ToString::to_string),
            Err(_) => Some(line(id)),
        },
        services: few(services),
        ..JournalSubject::default()
    };
    entry(principal, JournalKind::Services, result.err(), subject)
}
