//! The reload of the settings by SIGHUP.

use ironmesh_catalog::text::chain;
use ironmesh_config_settings::{ChangedKeys, ReloadableSettings, Settings};
use tokio::sync::watch;

use crate::cli::ConfigArgument;
use crate::resolved_settings::ResolvedSettings;

/// The settings of a running control plane, and the file that may replace a part of them.
pub(super) struct SettingsReload<'a> {
    config: &'a ConfigArgument,
    /// The settings at the start, which the part that needs a restart still has.
    started: Settings,
    active: watch::Sender<ReloadableSettings>,
}

impl<'a> SettingsReload<'a> {
    pub(super) fn new(config: &'a ConfigArgument, started: Settings) -> Self {
        let active = watch::Sender::new(started.reloadable());
        Self { config, started, active }
    }

    /// Where the control plane finds the active values.
    pub(super) fn values(&self) -> watch::Receiver<ReloadableSettings> {
        self.active.subscribe()
    }

    /// Reads the settings file, and activates its reloadable part. An invalid file changes nothing. Returns a line for
    /// operators.
    pub(super) fn reload(&self) -> String {
        let settings = match ResolvedSettings::load(self.config) {
            Ok(resolved) => resolved.settings,
            Err(error) => {
                let reason = chain(error.as_ref());
                tracing::error!(
                    reason,
                    action = "correct the settings file and reload again",
                    "reload failed; the settings stay as they are"
                );
                return "the settings file is invalid and was not reloaded, see the log".to_owned();
            }
        };
        let ChangedKeys { after_restart, .. } = self.started.changed_keys(&settings);
        let active = self.started.clone().with_reloadable(*self.active.borrow());
        let ChangedKeys { reloadable, .. } = active.changed_keys(&settings);
        self.active.send_replace(settings.reloadable());
        let (changed, waiting) = (reloadable.join(", "), after_restart.join(", "));
        if waiting.is_empty() {
            tracing::info!(changed, "settings reloaded");
            return "settings reloaded".to_owned();
        }
        tracing::warn!(
            changed,
            needs_restart = waiting,
            action = "restart the control plane: traffic is not affected",
            "settings reloaded, except those that need a restart"
        );
        format!("settings reloaded; after a restart: {waiting}")
    }
}
