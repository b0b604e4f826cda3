//! The stored silences of findings, which all control planes of a mesh share. It decides when a silence ends, and never
//! which findings there are.
//!
//! A silence ends at the time of the wall clock, at which all control planes agree. A clock that goes back does not extend
//! it: the time since this process read the silence counts too. After a clock jumped ahead, findings are active too early.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    ActiveSilences, Silence, SilenceId, SilenceRemoval, SilenceState, StoreError,
};
use ironmesh_store::{
    ExpectedVersion, RecordChange, RecordError, RecordStore, RecordTable, commit_parts,
};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::follow_records::follow_records;

/// How long a silence is kept after its end: for so long operators see what was silenced.
const RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// The most stored silences. The oldest of those that have ended make room for new ones.
const MAX_STORED: usize = 5_000;

/// How often a change is tried, each time on the newest record.
const MAX_ATTEMPTS: usize = 8;

/// The stored silences.
#[derive(Debug)]
pub(crate) struct SilenceTable {
    table: RecordTable<Silence>,
    /// Held while the store is read, so that an older state never replaces a newer one.
    reading: Mutex<()>,
    /// Never held during a disk access, so reads do not wait.
    known: Mutex<BTreeMap<SilenceId, TrackedSilence>>,
}

/// A silence as it was read last.
#[derive(Debug)]
struct TrackedSilence {
    silence: Arc<Silence>,
    /// The latest end by the clock of this process, which no change of the wall clock moves.
    deadline: Instant,
}

impl TrackedSilence {
    fn new(silence: Silence, now: Timestamp, instant: Instant) -> Self {
        // (With a clock that went back before the start, the whole length is the most.)
        let length = silence.expires_at.duration_since(silence.created_at);
        let left = silence.expires_at.duration_since(now).min(length);
        let deadline = instant + Duration::try_from(left).unwrap_or_default();
        Self { silence: Arc::new(silence), deadline }
    }

    fn is_active(&self, now: Timestamp, instant: Instant) -> bool {
        self.silence.state(now) == SilenceState::Active && instant < self.deadline
    }
}

/// Why no silence was set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SilenceError {
    /// There are as many as may be.
    #[error(
        "{} silences are active, which is the most: remove those that are no longer needed (`ironmesh finding unsilence`)",
        Silence::MAX_ACTIVE
    )]
    TooMany,
    /// The store failed.
    #[error("cannot store the silence")]
    Store(#[from] RecordError),
}

impl SilenceTable {
    /// Opens the table.
    pub(crate) fn open(store: Arc<dyn RecordStore>, now: Timestamp) -> Result<Self, StoreError> {
        let (reading, known) = Default::default();
        let silences = Self { table: RecordTable::new(store), reading, known };
        let read = silences.read(now, Instant::now());
        read.map_err(|error| StoreError::new("read the silences of findings", error))?;
        Ok(silences)
    }

    /// The silences that are active now.
    pub(crate) fn active(&self, now: Timestamp, instant: Instant) -> ActiveSilences {
        let known = self.known.lock();
        let active = known.values().filter(|one| one.is_active(now, instant));
        active.map(|one| Arc::clone(&one.silence)).collect()
    }

    /// All stored silences, the newest first.
    pub(crate) fn all(&self) -> Vec<Arc<Silence>> {
        let known = self.known.lock();
        let mut all: Vec<_> = known.values().map(|one| Arc::clone(&one.silence)).collect();
        drop(known);
        all.sort_by(|a, b| (b.created_at, &a.id).cmp(&(a.created_at, &b.id)));
        all
    }

    /// Stores a new silence, which `silence` makes of its id, and removes those that ended long ago.
    pub(crate) fn create(
        &self,
        silence: impl Fn(SilenceId) -> Silence,
        now: Timestamp,
    ) -> Result<Silence, SilenceError> {
        for _ in 0..MAX_ATTEMPTS {
            let stored = self.table.list()?;
            let (active, mut ended): (Vec<_>, Vec<_>) = stored
                .into_iter()
                .partition(|stored| stored.value.state(now) == SilenceState::Active);
            if active.len() >= Silence::MAX_ACTIVE {
                return Err(SilenceError::TooMany);
            }
            ended.sort_by_key(|stored| stored.value.end());
            let surplus = (active.len() + ended.len() + 1).saturating_sub(MAX_STORED);
            let is_over = |silence: &Silence| now.duration_since(silence.end()) > RETENTION;
            let over = ended
                .iter()
                .enumerate()
                .filter(|(place, stored)| *place < surplus || is_over(&stored.value));
            let removed = over.map(|(_, stored)| {
                let version = ExpectedVersion::Exactly(stored.version);
                RecordChange::remove::<Silence>(stored.value.id.to_string(), version)
            });
            let new = silence(SilenceId::new(Uuid::new_v4().as_fields().0));
            let mut changes = vec![RecordChange::put(&new, ExpectedVersion::Absent)?];
            changes.extend(removed);
            let stored = commit_parts(&changes)
                .try_for_each(|part| self.table.store().commit(part).map(drop));
            match stored {
                Ok(()) => {
                    self.read(now, Instant::now())?;
                    return Ok(new);
                }
                // The id is in use, or another control plane removes the old ones.
                Err(RecordError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(RecordError::Unavailable("the silences change all the time".into()).into())
    }

    /// Ends a silence. Returns it, and whether it was active; none without such a silence.
    pub(crate) fn remove(
        &self,
        id: &SilenceId,
        removal: &SilenceRemoval,
    ) -> Result<Option<(Silence, bool)>, RecordError> {
        for _ in 0..MAX_ATTEMPTS {
            let Some(stored) = self.table.get(&id.to_string())? else { return Ok(None) };
            if stored.value.state(removal.at) != SilenceState::Active {
                return Ok(Some((stored.value, false)));
            }
            let silence = Silence { removed: Some(removal.clone()), ..stored.value };
            let change = RecordChange::put(&silence, ExpectedVersion::Exactly(stored.version))?;
            match self.table.store().commit(&[change]) {
                Ok(_) => {
                    self.read(removal.at, Instant::now())?;
                    return Ok(Some((silence, true)));
                }
                Err(RecordError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Err(RecordError::Unavailable("the silence changes all the time".into()))
    }

    /// Reads all silences again.
    fn read(&self, now: Timestamp, instant: Instant) -> Result<(), RecordError> {
        let _reading = self.reading.lock();
        let stored = self.table.list()?;
        let mut known = self.known.lock();
        let mut earlier = std::mem::take(&mut *known);
        for stored in stored {
            let silence = stored.value;
            let id = silence.id.clone();
            let mut one = TrackedSilence::new(silence, now, instant);
            if let Some(earlier) = earlier.remove(&id) {
                one.deadline = one.deadline.min(earlier.deadline);
            }
            known.insert(id, one);
        }
        Ok(())
    }

    /// Follows the stored silences until `shutdown`.
    pub(crate) async fn follow(self: Arc<Self>, shutdown: CancellationToken) -> anyhow::Result<()> {
        let reread = || self.read(Timestamp::now(), Instant::now());
        follow_records(&self.table, reread, &shutdown).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::UnknownFields;
    use ironmesh_catalog::codes::PROXY_CERTIFICATE_EXPIRED;
    use ironmesh_store::{KeyEncryptionKey, Store};
    use tempfile::TempDir;

    use super::*;

    fn store(folder: &TempDir) -> Arc<Store> {
        let (state, key) = (folder.path().join("state"), folder.path().join("kek"));
        let kek = KeyEncryptionKey::load_or_create(&key, Store::database_exists(&state)).unwrap();
        Arc::new(Store::open(&state, kek).unwrap())
    }

    fn then(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_000_000_000 + seconds).unwrap()
    }

    /// A silence of 60 s from `begin` on.
    fn silence(begin: i64) -> impl Fn(SilenceId) -> Silence {
        move |id| Silence {
            id,
            code: PROXY_CERTIFICATE_EXPIRED,
            object: None,
            reason: "maintenance".to_owned(),
            by: "root".to_owned(),
            created_at: then(begin),
            expires_at: then(begin + 60),
            removed: None,
            unknown: UnknownFields::default(),
        }
    }

    fn active(table: &SilenceTable, seconds: i64, instant: Instant) -> usize {
        table.active(then(seconds), instant).iter().count()
    }

    #[test]
    fn silence_ends_at_its_time_without_another_change() {
        let folder = tempfile::tempdir().unwrap();
        let table = SilenceTable::open(store(&folder), then(0)).unwrap();
        table.create(silence(0), then(0)).unwrap();
        let start = Instant::now();
        assert_eq!(active(&table, 59, start), 1);
        assert_eq!(active(&table, 60, start), 0);
        assert_eq!(table.all().len(), 1, "it stays visible after its end");
    }

    #[test]
    fn clock_that_goes_back_does_not_extend_a_silence() {
        let folder = tempfile::tempdir().unwrap();
        let table = SilenceTable::open(store(&folder), then(0)).unwrap();
        table.create(silence(0), then(0)).unwrap();
        let start = Instant::now();
        assert_eq!(active(&table, -1_000, start + Duration::from_secs(59)), 1);
        assert_eq!(active(&table, -1_000, start + Duration::from_secs(61)), 0);
        // Also over a restart with the clock behind, it lasts no longer than it was set for.
        drop(table);
        let table = SilenceTable::open(store(&folder), then(-1_000)).unwrap();
        let start = Instant::now();
        assert_eq!(active(&table, -1_000, start), 1);
        assert_eq!(active(&table, -1_000, start + Duration::from_secs(61)), 0);
    }

    #[test]
    fn clock_that_jumped_ahead_and_back_ends_no_silence_for_good() {
        let folder = tempfile::tempdir().unwrap();
        let table = SilenceTable::open(store(&folder), then(0)).unwrap();
        table.create(silence(0), then(0)).unwrap();
        let start = Instant::now();
        assert_eq!(active(&table, 5_000, start), 0);
        assert_eq!(active(&table, 1, start), 1);
    }

    #[test]
    fn silence_is_kept_over_a_restart_and_ends_with_its_removal() {
        let folder = tempfile::tempdir().unwrap();
        let table = SilenceTable::open(store(&folder), then(0)).unwrap();
        let id = table.create(silence(0), then(0)).unwrap().id;
        drop(table);
        let table = SilenceTable::open(store(&folder), then(10)).unwrap();
        assert_eq!(active(&table, 10, Instant::now()), 1);
        let removal = SilenceRemoval { at: then(20), by: "root".to_owned() };
        let (removed, was_active) = table.remove(&id, &removal).unwrap().unwrap();
        assert!(was_active && removed.removed == Some(removal.clone()));
        assert_eq!(active(&table, 20, Instant::now()), 0);
        let later = SilenceRemoval { at: then(30), by: "other".to_owned() };
        let (again, was_active) = table.remove(&id, &later).unwrap().unwrap();
        assert!(!was_active && again.removed == Some(removal), "the first removal stays");
        assert!(table.remove(&SilenceId::new(1), &later).unwrap().is_none());
    }

    #[test]
    fn active_silences_are_bounded_and_old_ones_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let table = SilenceTable::open(store(&folder), then(0)).unwrap();
        let records: Vec<_> = (0..Silence::MAX_ACTIVE)
            .map(|number| silence(0)(SilenceId::new(u32::try_from(number).unwrap())))
            .map(|one| RecordChange::put(&one, ExpectedVersion::Absent).unwrap())
            .collect();
        for part in commit_parts(&records) {
            table.table.store().commit(part).unwrap();
        }
        let error = table.create(silence(0), then(0)).unwrap_err();
        assert!(matches!(error, SilenceError::TooMany), "{error}");
        table.create(silence(60), then(60)).unwrap();
        assert_eq!(table.all().len(), Silence::MAX_ACTIVE + 1);
        let month = RETENTION.as_secs() + 200;
        table.create(silence(month), then(month)).unwrap();
        assert_eq!(table.all().len(), 1);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn silence_of_another_control_plane_is_followed() {
        let folder = tempfile::tempdir().unwrap();
        let store = store(&folder);
        let now = Timestamp::now();
        let one = SilenceTable::open(Arc::<Store>::clone(&store), now).unwrap();
        let other = Arc::new(SilenceTable::open(store, now).unwrap());
        let shutdown = CancellationToken::new();
        let follow = tokio::spawn(Arc::clone(&other).follow(shutdown.clone()));
        let long = |id| Silence {
            created_at: now,
            expires_at: now + SignedDuration::from_hours(1),
            ..silence(0)(id)
        };
        let id = one.create(long, now).unwrap().id;
        let count = || other.active(Timestamp::now(), Instant::now()).iter().count();
        let is = async |expected: usize| {
            while count() != expected {
                tokio::task::yield_now().await;
            }
        };
        let limit = Duration::from_secs(30);
        tokio::time::timeout(limit, is(1)).await.unwrap();
        let removal = SilenceRemoval { at: Timestamp::now(), by: "root".to_owned() };
        one.remove(&id, &removal).unwrap().unwrap();
        tokio::time::timeout(limit, is(0)).await.unwrap();
        shutdown.cancel();
        follow.await.unwrap().unwrap();
    }
}
