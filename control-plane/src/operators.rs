//! The operators of the mesh and their credentials, as records that all control planes share.
//!
//! It owns the stored operators and decides whether a credential can be used. It never decides what a role allows. A
//! revocation holds at this control plane at once, and at the others as soon as they see the changed record; while a
//! control plane has no connection to etcd, it keeps what it knew.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_admin::ApiError;
use ironmesh_api::MAX_OPERATORS;
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    CredentialState, OperatorCredential, OperatorName, OperatorRecord, OperatorRole, Revocation,
    Secret, StoreError, TrustDomain, UnknownFields,
};
use ironmesh_cert::peer::VerifiedOperator;
use ironmesh_cert::{BearerToken, TokenUsage};
use ironmesh_store::{
    ExpectedVersion, RecordChange, RecordError, RecordStore, RecordTable, Versioned,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use crate::follow_records::follow_records;

/// How long a credential is listed after it can no longer be used.
const RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// How often a change is tried, each time on the newest records.
const MAX_ATTEMPTS: usize = 8;

/// The operators of the mesh.
#[derive(Debug)]
pub(crate) struct Operators {
    trust_domain: TrustDomain,
    table: RecordTable<OperatorRecord>,
    /// The stored operators, as far as this control plane knows.
    known: RwLock<BTreeMap<OperatorName, OperatorRecord>>,
    /// Held while the stored operators are read and shown: an earlier state never replaces a later one.
    rereading: Mutex<()>,
}

/// An operator with a valid credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CredentialHolder {
    /// The operator's name.
    pub(crate) name: OperatorName,
    /// The operator's role.
    pub(crate) role: OperatorRole,
    /// The id of the credential.
    pub(crate) credential: String,
}

/// Whether a change may leave the mesh without an admin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LastAdmin {
    /// It may: the owner of the admin socket makes it, who always has access.
    MayGo,
    /// It may not.
    Stays,
}

impl Operators {
    /// Opens the table.
    pub(crate) fn open(
        store: Arc<dyn RecordStore>,
        trust_domain: TrustDomain,
    ) -> Result<Self, StoreError> {
        let table = RecordTable::new(store);
        let (known, rereading) = (RwLock::default(), Mutex::default());
        let operators = Self { trust_domain, table, known, rereading };
        operators.reread().map_err(|error| StoreError::new("read the operators", error))?;
        Ok(operators)
    }

    /// Follows the stored operators until `shutdown`.
    pub(crate) async fn follow(self: Arc<Self>, shutdown: CancellationToken) -> anyhow::Result<()> {
        follow_records(&self.table, || self.reread(), &shutdown).await;
        Ok(())
    }

    fn reread(&self) -> Result<(), RecordError> {
        let _rereading = self.rereading.lock();
        let stored = self.table.list()?.into_iter().map(|stored| stored.value);
        *self.known.write() = stored.map(|record| (record.name.clone(), record)).collect();
        Ok(())
    }

    /// All operators, by name.
    pub(crate) fn list(&self) -> Vec<OperatorRecord> {
        self.known.read().values().cloned().collect()
    }

    /// The operator of a client certificate (DER), if it can be used at `now`.
    pub(crate) fn of_certificate(
        &self,
        leaf: &[u8],
        now: Timestamp,
    ) -> Result<CredentialHolder, ApiError> {
        let VerifiedOperator { name, serial } = VerifiedOperator::read(leaf, &self.trust_domain)
            .map_err(|error| ApiError::Unauthenticated(error.to_string()))?;
        let known = self.known.read();
        let found = known.get(&name).and_then(|operator| {
            let credential = operator.credential(&serial)?;
            credential.secret_hash.is_none().then_some((operator, credential))
        });
        let unknown = "the operator certificate is unknown to this mesh: request a new one with `ironmesh operator request`";
        usable(found.ok_or_else(|| ApiError::Unauthenticated(unknown.to_owned()))?, now)
    }

    /// The operator of a token, if it can be used at `now`.
    pub(crate) fn of_token(
        &self,
        text: &Secret,
        now: Timestamp,
    ) -> Result<CredentialHolder, ApiError> {
        // Neither error tells whether the id or the secret is wrong.
        let unknown = || {
            ApiError::Unauthenticated(
                "the token is not one of this mesh, or is truncated".to_owned(),
            )
        };
        let token = BearerToken::parse(TokenUsage::Operator, text).ok_or_else(unknown)?;
        let id = token.id().to_string();
        let known = self.known.read();
        let found = known.values().find_map(|operator| {
            let credential = operator.credential(&id)?;
            let secret_hash = credential.secret_hash.as_deref()?;
            token.has_hash(secret_hash).then_some((operator, credential))
        });
        usable(found.ok_or_else(unknown)?, now)
    }

    /// The state of the credential `id` at `now`. One that is no longer kept was revoked, or has expired.
    pub(crate) fn credential_state(
        &self,
        name: &OperatorName,
        id: &str,
        now: Timestamp,
    ) -> CredentialState {
        let known = self.known.read();
        let credential = known.get(name).and_then(|operator| operator.credential(id));
        credential.map_or(CredentialState::Revoked, |credential| credential.state(now))
    }

    /// The operator who has the credential `id`, if it can be used at `now`.
    pub(crate) fn holder(
        &self,
        name: &OperatorName,
        id: &str,
        now: Timestamp,
    ) -> Result<CredentialHolder, ApiError> {
        let known = self.known.read();
        let found = known.get(name).and_then(|operator| Some((operator, operator.credential(id)?)));
        let gone = || {
            ApiError::Unauthenticated(format!("operator {name} has no credential `{id}` any more"))
        };
        usable(found.ok_or_else(gone)?, now)
    }

    /// Adds a credential to an operator, who is new or has this role.
    pub(crate) fn add(
        &self,
        name: &OperatorName,
        role: OperatorRole,
        credential: &OperatorCredential,
    ) -> Result<OperatorRecord, ApiError> {
        let now = credential.issued_at;
        self.change(name, LastAdmin::MayGo, now, |stored, count| {
            let mut record = match stored {
                Some(record) => record.clone(),
                None if count >= MAX_OPERATORS => {
                    return Err(ApiError::Conflict(format!(
                        "the mesh has {count} operators, of at most {MAX_OPERATORS}: give the credential to one of them; operators are \
                         removed 30 days after their last credential has ended"
                    )));
                }
                None => OperatorRecord {
                    name: name.clone(),
                    role,
                    credentials: Vec::new(),
                    unknown: UnknownFields::default(),
                },
            };
            if record.role != role && record.is_active(now) {
                return Err(ApiError::Conflict(format!(
                    "operator {name} has the role {}, and all credentials of an operator have one role: \
                     `ironmesh operator revoke {name}` first, or use another name",
                    record.role
                )));
            }
            record.role = role;
            record.credentials.retain(|credential| !is_over(credential, now));
            if record.credentials.len() >= OperatorRecord::MAX_CREDENTIALS {
                return Err(ApiError::Conflict(format!(
                    "operator {name} has {} credentials: use another name; each credential is removed 30 days after its end",
                    record.credentials.len()
                )));
            }
            record.credentials.push(credential.clone());
            Ok(record)
        })
    }

    /// Revokes the credentials of an operator, or one of them. An earlier revocation stays.
    pub(crate) fn revoke(
        &self,
        name: &OperatorName,
        credential: Option<&str>,
        revocation: &Revocation,
        last_admin: LastAdmin,
    ) -> Result<OperatorRecord, ApiError> {
        let list = "see `ironmesh operator list`";
        let revoked = self.change(name, last_admin, revocation.at, |stored, _| {
            let record = stored.ok_or_else(|| {
                ApiError::NotFound(format!("no operator is named `{name}`: {list}"))
            })?;
            let mut record = record.clone();
            if let Some(id) = credential.filter(|id| record.credential(id).is_none()) {
                return Err(ApiError::NotFound(format!(
                    "operator {name} has no credential `{id}`: {list}"
                )));
            }
            let chosen = record
                .credentials
                .iter_mut()
                .filter(|one| credential.is_none_or(|id| one.id == id))
                .filter(|one| one.state(revocation.at) == CredentialState::Valid);
            chosen.for_each(|one| one.revoked = Some(revocation.clone()));
            Ok(record)
        })?;
        // A copy of the store from before this moment is noticed.
        self.table.store().record_high_water().map_err(|e| ApiError::Internal(chain(&e)))?;
        Ok(revoked)
    }

    /// Changes the record of an operator: `edit` gets the stored one and the number of operators. The change is made on
    /// exactly that record, or tried again on the newest.
    fn change(
        &self,
        name: &OperatorName,
        last_admin: LastAdmin,
        now: Timestamp,
        edit: impl Fn(Option<&OperatorRecord>, usize) -> Result<OperatorRecord, ApiError>,
    ) -> Result<OperatorRecord, ApiError> {
        let failed = |error: RecordError| ApiError::Internal(chain(&error));
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.table.list().map_err(failed)?;
            let current = stored.iter().find(|stored| stored.value.name == *name);
            let next = edit(current.map(|stored| &stored.value), stored.len())?;
            let expected = current
                .map_or(ExpectedVersion::Absent, |stored| ExpectedVersion::Exactly(stored.version));
            let mut changes = vec![RecordChange::put(&next, expected).map_err(failed)?];
            changes.extend(removals(&stored, name, now));
            let loses_admin =
                current.is_some_and(|stored| is_admin(&stored.value, now)) && !is_admin(&next, now);
            if loses_admin && last_admin == LastAdmin::Stays {
                changes.push(witness(&stored, name, now)?);
            }
            match self.table.store().commit(&changes) {
                Ok(_) => {
                    if let Err(error) = self.reread() {
                        // Until the store can be read again, what was just stored counts.
                        tracing::warn!(
                            error = chain(&error),
                            "cannot read the operators after a change"
                        );
                        self.known.write().insert(name.clone(), next.clone());
                    }
                    return Ok(next);
                }
                Err(RecordError::Conflict(_)) => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(ApiError::Busy(format!("operator {name} changes all the time: try again")))
    }
}

/// Removes the operators whose credentials have all ended long ago.
fn removals<'a>(
    stored: &'a [Versioned<OperatorRecord>],
    name: &'a OperatorName,
    now: Timestamp,
) -> impl Iterator<Item = RecordChange> + 'a {
    let is_over = move |one: &&Versioned<OperatorRecord>| {
        one.value.name != *name && one.value.credentials.iter().all(|one| is_over(one, now))
    };
    stored.iter().filter(is_over).map(|one| {
        let version = ExpectedVersion::Exactly(one.version);
        RecordChange::remove::<OperatorRecord>(one.value.name.to_string(), version)
    })
}

/// Writes another admin's record unchanged, so that the commit fails if that one loses access at the same moment:
/// otherwise two control planes could each revoke one of two.
fn witness(
    stored: &[Versioned<OperatorRecord>],
    name: &OperatorName,
    now: Timestamp,
) -> Result<RecordChange, ApiError> {
    let other =
        stored.iter().find(|other| other.value.name != *name && is_admin(&other.value, now));
    let other = other.ok_or_else(|| {
        ApiError::Conflict(format!(
            "operator {name} is the last admin: revoke it on the machine of a control plane, through the admin socket"
        ))
    })?;
    RecordChange::put(&other.value, ExpectedVersion::Exactly(other.version))
        .map_err(|error| ApiError::Internal(chain(&error)))
}

fn is_admin(record: &OperatorRecord, now: Timestamp) -> bool {
    record.role == OperatorRole::Admin && record.is_active(now)
}

/// Whether a credential ended so long ago that it is listed no more.
fn is_over(credential: &OperatorCredential, now: Timestamp) -> bool {
    let end = credential.revoked.as_ref().map_or(credential.expires_at, |revoked| revoked.at);
    now.duration_since(end) > RETENTION
}

/// The operator of a credential that was found, if it can be used at `now`.
fn usable(
    (operator, credential): (&OperatorRecord, &OperatorCredential),
    now: Timestamp,
) -> Result<CredentialHolder, ApiError> {
    let kind = credential.kind();
    match credential.state(now) {
        CredentialState::Valid => Ok(CredentialHolder {
            name: operator.name.clone(),
            role: operator.role,
            credential: credential.id.clone(),
        }),
        CredentialState::Expired => Err(ApiError::Unauthenticated(format!(
            "the {kind} of operator {} expired at {:.0}: an admin issues a new one with `ironmesh operator`",
            operator.name, credential.expires_at
        ))),
        CredentialState::Revoked => Err(ApiError::Unauthenticated(format!(
            "the {kind} of operator {} is revoked: an admin issues a new one with `ironmesh operator`",
            operator.name
        ))),
    }
}
