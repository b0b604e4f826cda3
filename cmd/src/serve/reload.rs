//! The reload of the settings by SIGHUP.

use anyhow::bail;
use ironmesh_catalog::text::chain;
use ironmesh_command_line::ConfigArgument;
use ironmesh_config_settings::{ChangedKeys, ReloadableSettings, Settings};
use tokio::sync::watch;

use crate::resolved_settings::ResolvedSettings;

/// The settings of a running control plane, and the file that may replace a part of them.
pub(super) struct SettingsReload<'a> {
    config: &'a ConfigArgument,
    /// Whether the settings file had content at the start.
    had_content: bool,
    /// The settings at the start, which the part that needs a restart still has.
    started: Settings,
    active: watch::Sender<ReloadableSettings>,
}

impl<'a> SettingsReload<'a> {
    pub(super) fn new(config: &'a ConfigArgument, started: &ResolvedSettings) -> Self {
        let active = watch::Sender::new(started.settings.reloadable());
        let (had_content, started) = (started.has_content, started.settings.clone());
        Self { config, had_content, started, active }
    }

    /// Where the control plane finds the active values.
    pub(super) fn values(&self) -> watch::Receiver<ReloadableSettings> {
        self.active.subscribe()
    }

    /// Reads the settings file. One that has vanished or was emptied is a fault, not a file with all defaults.
    fn load(&self) -> anyhow::Result<Settings> {
        let resolved = ResolvedSettings::load(self.config)?;
        if self.had_content && !resolved.has_content {
            bail!("the settings file is missing or empty: `{}`", resolved.file.display());
        }
        Ok(resolved.settings)
    }

    /// Reads the settings file, and activates its reloadable part. An invalid file changes nothing. Returns a line for
    /// operators.
    pub(super) fn reload(&self) -> String {
        let settings = match self.load() {
            Ok(settings) => settings,
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
        let active = self.started.clone().with_reloadable(self.active.borrow().clone());
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
