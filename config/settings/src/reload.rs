//! Changed settings of a running control plane: which of them apply without a restart.

use std::time::Duration;

use ironmesh_catalog::{EgressMode, LogDirectives, Mode};

use crate::{Certificates, LogSettings, Settings};

/// The settings that a running control plane applies without a restart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReloadableSettings {
    /// See [`Settings::mode`].
    pub mode: Mode,
    /// See [`Settings::egress`].
    pub egress: EgressMode,
    /// See [`Settings::removal_hold`].
    pub removal_hold: Duration,
    /// See [`crate::Certificates::service_lifetime`]. It applies to certificates that are issued later.
    pub service_lifetime: Duration,
    /// See [`Settings::settle`].
    pub settle: Duration,
    /// See [`LogSettings::level`].
    pub log_level: LogDirectives,
}

/// The keys of the settings file whose values differ between two versions of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ChangedKeys {
    /// Those of [`ReloadableSettings`].
    pub reloadable: Vec<&'static str>,
    /// Those that take effect after a restart. Of a table, its name.
    pub after_restart: Vec<&'static str>,
}

impl Settings {
    /// The part that applies without a restart.
    pub fn reloadable(&self) -> ReloadableSettings {
        ReloadableSettings {
            mode: self.mode,
            egress: self.egress,
            removal_hold: self.removal_hold,
            service_lifetime: self.certificates.service_lifetime,
            settle: self.settle,
            log_level: self.log.level.clone(),
        }
    }

    /// These settings with that part replaced.
    #[must_use]
    pub fn with_reloadable(self, part: ReloadableSettings) -> Self {
        let ReloadableSettings { mode, egress, removal_hold, service_lifetime, settle, log_level } =
            part;
        let certificates = Certificates { service_lifetime };
        let log = LogSettings { level: log_level, ..self.log };
        Self { mode, egress, removal_hold, certificates, log, settle, ..self }
    }

    /// The keys whose values differ in `other`.
    pub fn changed_keys(&self, other: &Self) -> ChangedKeys {
        // Without `..`: a new setting must be added below.
        let Self {
            mesh,
            domain,
            trust_domain,
            mode,
            egress,
            state,
            store,
            policy,
            removal_hold,
            key_encryption_key,
            listen,
            group_socket,
            advertise,
            certificates,
            xds,
            consul,
            azure,
            endpoints,
            sidecar_class,
            log: LogSettings { level, is_json },
            traces_endpoint,
            settle,
        } = self;
        let reloadable = [
            ("mode", *mode != other.mode),
            ("egress", *egress != other.egress),
            ("policy.removal_hold", *removal_hold != other.removal_hold),
            ("certificates.service_lifetime", *certificates != other.certificates),
            ("settle", *settle != other.settle),
            ("log.level", *level != other.log.level),
        ];
        let after_restart = [
            ("mesh", *mesh != other.mesh),
            ("domain", *domain != other.domain),
            ("trust_domain", *trust_domain != other.trust_domain),
            ("state", *state != other.state),
            ("store", *store != other.store),
            ("policy", *policy != other.policy),
            ("key_encryption_key", *key_encryption_key != other.key_encryption_key),
            ("listen", *listen != other.listen),
            ("group_socket", *group_socket != other.group_socket),
            ("advertise", *advertise != other.advertise),
            ("xds", *xds != other.xds),
            ("consul", *consul != other.consul),
            ("azure", *azure != other.azure),
            ("endpoints", *endpoints != other.endpoints),
            ("sidecar.class", *sidecar_class != other.sidecar_class),
            ("log.format", *is_json != other.log.is_json),
            ("traces", *traces_endpoint != other.traces_endpoint),
        ];
        let changed = |keys: &[(&'static str, bool)]| {
            keys.iter().filter(|(_, is_changed)| *is_changed).map(|(key, _)| *key).collect()
        };
        ChangedKeys { reloadable: changed(&reloadable), after_restart: changed(&after_restart) }
    }
}

#[cfg(test)]
mod tests {
    use crate::load_settings;

    #[test]
    fn changed_keys_are_split_by_when_they_take_effect() {
        let before = load_settings("settle = '20ms'", "a").unwrap();
        let text = "mode = 'audit'\nadvertise = ['cp:15128']\n[policy]\nfolder = '/p'\nremoval_hold = '1s'\n\
             [certificates]\nservice_lifetime = '12h'\n[xds]\nmax_connection_age = '1h'\n\
             [log]\nlevel = 'h2=warn'\nformat = 'json'";
        let after = load_settings(text, "a").unwrap();
        let changed = before.changed_keys(&after);
        assert_eq!(
            changed.reloadable,
            ["mode", "policy.removal_hold", "certificates.service_lifetime", "log.level"]
        );
        assert_eq!(changed.after_restart, ["policy", "advertise", "xds", "log.format"]);
        assert_eq!(before.changed_keys(&before), super::ChangedKeys::default());
        assert_eq!(after.reloadable().removal_hold.as_secs(), 1);
        let reloaded = before.with_reloadable(after.reloadable());
        assert_eq!(reloaded.log.level.as_str(), "info,h2=warn");
        assert!(!reloaded.log.is_json, "the format stays until a restart");
    }
}
