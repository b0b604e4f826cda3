//! The journal's entries: which actor changed what, when, from where, and with which outcome.
//!
//! This module owns their form and the bounds per kind. It never stores or reads them.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::name::{ServiceAccount, ServiceName};
use crate::operator::{OperatorName, OperatorRole};
use crate::proxy::ProxyId;
use crate::specification::PolicyRevision;
use crate::token_id::TokenId;

/// One change of the mesh, or the rejection of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalEntry {
    /// Its number, which the store assigns: higher than that of all earlier entries, also over restarts.
    pub sequence: u64,
    /// When the change was made, or the last one of several.
    pub at: Timestamp,
    /// What was done.
    pub kind: JournalKind,
    /// Who did it.
    pub who: Actor,
    /// From where: the admin socket, the source of policy, or the address of a peer. None if the control
    /// plane did it by itself.
    #[serde(rename = "from", default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// To what it was done.
    #[serde(default)]
    pub subject: JournalSubject,
    /// How many proxies or certificates the entry stands for, or how many records an export has.
    pub count: u64,
    /// The reason that the actor gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Whether it was done.
    #[serde(flatten)]
    pub outcome: JournalOutcome,
}

impl JournalEntry {
    /// An entry without a number, about something that was done once.
    pub fn new(at: Timestamp, kind: JournalKind, who: Actor) -> Self {
        Self {
            sequence: 0,
            at,
            kind,
            who,
            origin: None,
            subject: JournalSubject::default(),
            count: 1,
            message: None,
            outcome: JournalOutcome::Done,
        }
    }

    /// Whether the change was rejected.
    pub const fn is_rejected(&self) -> bool {
        matches!(self.outcome, JournalOutcome::Rejected { .. })
    }
}

/// The kind of a change.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum JournalKind {
    /// The enrollment of proxies.
    Enroll,
    /// The first connection of a proxy, which claims its certificate.
    Claim,
    /// Created, or revoked, tokens by which machines enroll.
    Token,
    /// The renewal of a proxy's certificate.
    Renew,
    /// A change of the services of a proxy.
    Services,
    /// The leave of a proxy, or its return.
    Leave,
    /// The cordon of a proxy, or its end.
    Cordon,
    /// The order to drain a proxy.
    Drain,
    /// The revocation of a proxy.
    Revoke,
    /// A changed policy folder.
    Policy,
    /// A push of policy to etcd.
    Push,
    /// Policy documents that an operator applied.
    Apply,
    /// A rollback of policy.
    Rollback,
    /// The acceptance of a held-back removal, from policy or of endpoints.
    Accept,
    /// Issued certificates of proxies or services.
    Certificate,
    /// A new certificate authority.
    Authority,
    /// An export of the whole mesh, with its private keys.
    Export,
    /// Issued, or revoked, credentials of an operator.
    Operator,
    /// A login of a browser: a link, a session, or the end of one.
    Login,
    /// Silenced a finding, or removed a silence.
    Silence,
    /// Changed the level of a control plane's log for a while.
    Log,
}

impl JournalKind {
    /// All kinds.
    pub const ALL: [Self; 21] = [
        Self::Enroll,
        Self::Claim,
        Self::Token,
        Self::Renew,
        Self::Services,
        Self::Leave,
        Self::Cordon,
        Self::Drain,
        Self::Revoke,
        Self::Policy,
        Self::Push,
        Self::Apply,
        Self::Rollback,
        Self::Accept,
        Self::Certificate,
        Self::Authority,
        Self::Export,
        Self::Operator,
        Self::Login,
        Self::Silence,
        Self::Log,
    ];

    /// The kinds that change which policy is active.
    pub const OF_POLICY: [Self; 5] =
        [Self::Policy, Self::Push, Self::Apply, Self::Rollback, Self::Accept];

    /// The word for it, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Enroll => "enroll",
            Self::Claim => "claim",
            Self::Token => "token",
            Self::Renew => "renew",
            Self::Services => "services",
            Self::Leave => "leave",
            Self::Cordon => "cordon",
            Self::Drain => "drain",
            Self::Revoke => "revoke",
            Self::Policy => "policy",
            Self::Push => "push",
            Self::Apply => "apply",
            Self::Rollback => "rollback",
            Self::Accept => "accept",
            Self::Certificate => "certificate",
            Self::Authority => "authority",
            Self::Export => "export",
            Self::Operator => "operator",
            Self::Login => "login",
            Self::Silence => "silence",
            Self::Log => "log",
        }
    }

    /// How many entries of this kind the store keeps, done or rejected. Each has a bound of its own, so that
    /// neither routine renewals, nor logins, nor a client that repeats a bad request displace what operators did.
    pub const fn bound(self, is_rejected: bool) -> usize {
        match self {
            Self::Claim | Self::Renew | Self::Leave | Self::Certificate => 2_000,
            _ if is_rejected => 2_000,
            _ => 10_000,
        }
    }
}

impl fmt::Display for JournalKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for JournalKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let kinds = Self::ALL.map(Self::word).join(", ");
        Self::ALL
            .into_iter()
            .find(|kind| kind.word() == text)
            .ok_or_else(|| format!("expected one of: {kinds}"))
    }
}

/// Who made a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Actor {
    /// A user of the control plane's machine, as the kernel reports it for the admin socket.
    User {
        /// The user's id; none if the kernel does not report it.
        uid: Option<u32>,
        /// The name of that id on the machine.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// An operator, by a credential of the mesh.
    Operator {
        /// The operator's name.
        name: OperatorName,
        /// The operator's role at that time.
        role: OperatorRole,
        /// The id of the credential.
        credential: String,
    },
    /// The author of policy. A claim of the policy source.
    Author {
        /// The name, if it is known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A machine that enrolls.
    Machine {
        /// The token that it presented; none if that was not one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<TokenId>,
        /// The `vmId` that Azure attested; none if it presented no attested document that verifies.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm_id: Option<Uuid>,
    },
    /// The proxy that is the subject.
    Proxy,
    /// The control plane by itself.
    ControlPlane,
}

/// The object of a change. Each kind has its own parts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JournalSubject {
    /// A proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyId>,
    /// The name of the proxy, or what a rejected request named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The services, or those of the proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceName>,
    /// A token, by which machines enroll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<TokenId>,
    /// A service account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<ServiceAccount>,
    /// A revision of policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<PolicyRevision>,
    /// The git commit of that policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
}

/// The outcome of a change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum JournalOutcome {
    /// It was made.
    Done,
    /// It was not made.
    Rejected {
        /// Why not.
        reason: String,
    },
}

/// Which entries to read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct JournalQuery {
    /// Only those since this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Only those of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub kind: Option<JournalKind>,
    /// At most so many: the first ones after `after`, and without that the newest ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only those with a higher number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Only those with a lower number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
}

impl JournalQuery {
    /// Whether an entry is among those to read, regardless of `limit`.
    pub fn includes(&self, entry: &JournalEntry) -> bool {
        self.since.is_none_or(|since| entry.at >= since)
            && self.kind.is_none_or(|kind| entry.kind == kind)
            && self.after.is_none_or(|after| entry.sequence > after)
            && self.before.is_none_or(|before| entry.sequence < before)
    }
}
