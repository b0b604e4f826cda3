//! The stored tokens: creates, finds, uses and revokes them. It decides about no machine.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use ironmesh_catalog::{JoinToken, Revocation, StoreError, TokenId, TokenMisuse};
use ironmesh_store::{
    ExpectedVersion, RecordChange, RecordError, RecordStore, RecordTable, RecordVersion, Versioned,
    commit_parts,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;

use ironmesh_catalog::text::chain;

/// How long a token is kept after it has expired: for so long operators see who used it, and a copy raises an alarm.
const RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The most stored tokens.
const MAX_TOKENS: usize = 100_000;

/// The stored tokens of the mesh.
#[derive(Debug)]
pub(crate) struct TokenTable {
    table: RecordTable<JoinToken>,
    /// The tokens that someone tried to use again, which findings name.
    misused: Mutex<BTreeMap<TokenId, JoinToken>>,
}

impl TokenTable {
    /// Opens the table.
    pub(crate) fn open(store: Arc<dyn RecordStore>) -> Result<Self, StoreError> {
        let tokens = Self { table: RecordTable::new(store), misused: Mutex::default() };
        let stored = tokens.list()?;
        tokens
            .misused
            .lock()
            .extend(stored.into_iter().filter(is_alarming).map(|token| (token.id.clone(), token)));
        Ok(tokens)
    }

    /// All tokens, the newest first.
    pub(crate) fn list(&self) -> Result<Vec<JoinToken>, StoreError> {
        let stored = self.table.list().map_err(|e| StoreError::new("read the join tokens", e))?;
        let mut tokens: Vec<_> = stored.into_iter().map(|stored| stored.value).collect();
        tokens.sort_by(|a, b| (b.created_at, &a.id).cmp(&(a.created_at, &b.id)));
        Ok(tokens)
    }

    /// The tokens that someone tried to use again, until they are revoked.
    pub(crate) fn misused(&self) -> Vec<JoinToken> {
        self.misused.lock().values().cloned().collect()
    }

    /// Stores new tokens, and removes those that expired long ago. After a failure some may be stored: their secrets are
    /// never shown, and they expire.
    pub(crate) fn create(&self, tokens: &[JoinToken], now: Timestamp) -> Result<(), StoreError> {
        let failed = |error: RecordError| StoreError::new("store the join tokens", error);
        let stored = self.table.list().map_err(failed)?;
        // (One with an alarm stays until it is revoked.)
        let is_over = |token: &JoinToken| {
            now.duration_since(token.expires_at) > RETENTION && !is_alarming(token)
        };
        let (over, kept): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|stored| is_over(&stored.value));
        if kept.len() + tokens.len() > MAX_TOKENS {
            let error = format!(
                "the store has {} tokens, of at most {MAX_TOKENS}: each is removed 30 days after its expiry",
                kept.len()
            );
            return Err(StoreError::new("store the join tokens", error));
        }
        let removed = over.iter().map(|stored| {
            let version = ExpectedVersion::Exactly(stored.version);
            Ok(RecordChange::remove::<JoinToken>(stored.value.id.to_string(), version))
        });
        let added = tokens.iter().map(|token| RecordChange::put(token, ExpectedVersion::Absent));
        let changes: Result<Vec<_>, RecordError> = removed.chain(added).collect();
        for part in commit_parts(&changes.map_err(failed)?) {
            self.table.store().commit(part).map_err(failed)?;
        }
        let mut misused = self.misused.lock();
        for gone in over {
            misused.remove(&gone.value.id);
        }
        Ok(())
    }

    /// The token with this id, as it is stored now.
    pub(crate) fn get(&self, id: &TokenId) -> Result<Option<Versioned<JoinToken>>, RecordError> {
        self.table.get(&id.to_string())
    }

    /// Stores a changed token, if the stored one still has the expected version.
    pub(crate) fn put(
        &self,
        token: &JoinToken,
        expected: RecordVersion,
    ) -> Result<RecordVersion, RecordError> {
        let change = RecordChange::put(token, ExpectedVersion::Exactly(expected))?;
        let version = self.table.store().commit(&[change])?;
        let mut misused = self.misused.lock();
        if is_alarming(token) {
            misused.insert(token.id.clone(), token.clone());
        } else {
            misused.remove(&token.id);
        }
        Ok(version)
    }

    /// Records that someone tried to use a used token again. Only the first attempt is stored. If that fails, the finding
    /// lasts as long as the process.
    pub(crate) fn record_misuse(
        &self,
        stored: Versioned<JoinToken>,
        from: SocketAddr,
        now: Timestamp,
    ) {
        if stored.value.misused.is_some() {
            return;
        }
        let token = JoinToken { misused: Some(TokenMisuse { at: now, from }), ..stored.value };
        if let Err(error) = self.put(&token, stored.version) {
            tracing::error!(error = chain(&error), token = %token.id, "cannot store the misuse of a token");
            self.misused.lock().insert(token.id.clone(), token);
        }
    }

    /// Revokes a token. An earlier revocation stays. None without such a token.
    pub(crate) fn revoke(
        &self,
        id: &TokenId,
        revocation: &Revocation,
    ) -> Result<Option<JoinToken>, RecordError> {
        // A machine may use the token at the same moment.
        for _ in 0..MAX_ATTEMPTS {
            let Some(stored) = self.get(id)? else { return Ok(None) };
            if stored.value.revoked.is_some() {
                return Ok(Some(stored.value));
            }
            let token = JoinToken { revoked: Some(revocation.clone()), ..stored.value };
            match self.put(&token, stored.version) {
                Ok(_) => return Ok(Some(token)),
                Err(RecordError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RecordError::Unavailable("the token changes all the time".into()))
    }

    /// The store of the table.
    pub(crate) fn record_high_water(&self) -> Result<(), RecordError> {
        self.table.store().record_high_water()
    }
}

/// How often a revocation is tried, each time on the newest record.
const MAX_ATTEMPTS: usize = 8;

fn is_alarming(token: &JoinToken) -> bool {
    token.misused.is_some() && token.revoked.is_none()
}
