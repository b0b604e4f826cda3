//! The pin: what was rolled back to is in force, until the folder holds something else that passes.

use ironmesh_catalog::PolicyRecord;

use super::PolicySource;
use crate::exit::chain;

impl PolicySource {
    /// The folder holds something else by now, and that passes.
    pub(super) fn end_pin(&mut self) {
        let Some(pin) = self.pin.take() else { return };
        let revision = pin.record.revision;
        tracing::info!(%revision, "the policy folder has changed: the rollback is over");
        if let Err(error) = self.store.put_policy_pin(None) {
            // The next start finds out for itself: the folder is not what it was then.
            tracing::error!(error = chain(&error), "cannot keep that the rollback is over");
        }
        self.tell_of_pin();
    }

    /// Says that what the folder holds is not in force, where that is so.
    pub(super) fn tell_of_pin(&self) {
        let Some(pin) = &self.pin else {
            self.state.send_modify(|state| state.view.rolled_back = None);
            return;
        };
        let PolicyRecord { revision, at, by, message, .. } = &pin.record;
        let by = by.as_deref().unwrap_or("somebody");
        let why = message.as_ref().map(|text| format!(" (\"{text}\")")).unwrap_or_default();
        let (holds, or) = match &pin.folder {
            Some(folder) => (
                format!(", the revision {folder},"),
                format!(", or `ironmesh policy rollback {folder}`"),
            ),
            None => (String::new(), String::new()),
        };
        let words = format!(
            "{by} rolled back to {revision} at {at:.0}{why}: what `{}` holds{holds} is not in force, until it \
             holds something else that passes{or}\n",
            self.source.name(),
        );
        tracing::warn!("{}", words.trim_end());
        self.state.send_modify(|state| {
            state.view.stale_since = Some(*at);
            state.view.rolled_back = Some(pin.clone());
            state.view.drawn = words;
        });
    }
}
