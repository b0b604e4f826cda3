//! The admin API's view of configuration: documents of policy, providers and settings.

use std::path::PathBuf;

use ironmesh_admin::ApiError;
use ironmesh_api::{
    DocumentsQuery, MAX_PROVIDER_SERVICES, PolicyDocument, PolicyDocuments, ProviderList,
    ProviderReportView, ProviderStatus, SettingView, SettingsView, UnreportedService,
};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{PolicyRevision, Provider, ServiceName, Snapshot};
use ironmesh_config_settings::{ReloadableSettings, SettingValue, Settings};
use jiff::Timestamp;
use tokio::sync::watch;

use super::RunningControlPlane;
use super::endpoints::stale_view;
use crate::Options;
use crate::policy_source::{PolicyState, find};
use crate::reconciler::{EndpointsView, ProviderState};

/// The settings of a running control plane.
#[derive(Debug)]
pub(crate) struct ActiveSettings {
    /// The settings file, if there is one.
    pub(crate) file: Option<PathBuf>,
    /// The settings at the start, with resolved paths.
    pub(crate) started: Settings,
    /// The newest values of those that need no restart.
    pub(crate) reloads: watch::Receiver<ReloadableSettings>,
}

impl ActiveSettings {
    /// The settings of a start with these options, and their newer values.
    pub(crate) fn new(options: &Options, reloads: watch::Receiver<ReloadableSettings>) -> Self {
        let started = Settings {
            state: Some(options.state.clone()),
            policy: Some(options.policy.clone()),
            key_encryption_key: Some(options.key_encryption_key.clone()),
            ..options.settings.clone()
        };
        Self { file: options.settings_file.clone(), started, reloads }
    }

    fn view(&self) -> SettingsView {
        let settings = self.started.clone().with_reloadable(self.reloads.borrow().clone());
        let view = |setting: SettingValue| SettingView {
            key: setting.key.to_owned(),
            value: setting.value,
            needs_restart: setting.needs_restart,
        };
        SettingsView {
            file: self.file.as_ref().map(|file| file.display().to_string()),
            settings: settings.values().into_iter().map(view).collect(),
        }
    }
}

impl RunningControlPlane {
    /// The effective settings.
    pub(super) fn settings_view(&self) -> SettingsView {
        self.settings.view()
    }

    /// The documents of a stored revision of policy, or of the active one.
    pub(super) fn documents(&self, query: &DocumentsQuery) -> Result<PolicyDocuments, ApiError> {
        let PolicyState { specification, documents, .. } = self.policy.borrow().clone();
        let active = specification.map(|specification| specification.revision.clone());
        let document = |path: &str, text: &str| PolicyDocument {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let of_active = |revision: PolicyRevision| PolicyDocuments {
            revision,
            active: true,
            documents: documents.iter().map(|one| document(&one.path, &one.text)).collect(),
        };
        let Some(wanted) = &query.revision else {
            let none =
                || ApiError::NotFound("no policy is active yet: see `ironmesh status`".to_owned());
            return active.map(of_active).ok_or_else(none);
        };
        if let Some(active) = active.filter(|active| *active.0 == **wanted) {
            return Ok(of_active(active));
        }
        // Only a stored revision names a file.
        let failure = |error: &dyn std::error::Error| ApiError::Internal(chain(error));
        let stored = match &self.releases {
            Some(releases) => releases.records().map_err(|error| failure(&error))?,
            None => self.store.policies().map_err(|error| failure(&error))?,
        };
        let revision = find(wanted, stored)?.revision;
        let texts: Vec<PolicyDocument> = if let Some(releases) = &self.releases {
            let read = releases.documents(&revision).map_err(|error| failure(&error))?;
            read.iter().map(|one| document(&one.path, &one.text)).collect()
        } else {
            let read = self.store.policy(&revision).map_err(|error| failure(&error))?;
            let gone = || ApiError::NotFound(format!("the policy {revision} is no longer stored"));
            read.ok_or_else(gone)?.iter().map(|(path, text)| document(path, text)).collect()
        };
        let is_active = self.policy.borrow().view.revision.as_deref() == Some(&*revision.0);
        Ok(PolicyDocuments { revision, active: is_active, documents: texts })
    }

    /// The endpoints providers.
    pub(super) fn provider_list(&self) -> ProviderList {
        let snapshot = self.feeds.snapshot.borrow().clone();
        let found = self.feeds.endpoints.borrow().clone();
        let now = Timestamp::now();
        let view = |provider| provider_view(provider, snapshot.as_deref(), &found, now);
        ProviderList { providers: Provider::ALL.into_iter().map(view).collect() }
    }
}

fn provider_view(
    provider: Provider,
    snapshot: Option<&Snapshot>,
    found: &EndpointsView,
    now: Timestamp,
) -> ProviderReportView {
    let state = found.providers.get(&provider);
    let stale = state.and_then(|state| state.stale.as_ref());
    let guards = found.guards.iter().filter(|((of, _), _)| *of == provider);
    let learned_at = guards.clone().map(|(_, guard)| guard.learned_at).max();
    let held: Vec<_> =
        guards.filter(|(_, guard)| guard.held.is_some()).map(|((_, of), _)| of.clone()).collect();
    let unreported: Vec<_> =
        state.into_iter().flat_map(|state| unreported(provider, state, found)).collect();
    let (services, endpoints) = snapshot.map_or((0, 0), |snapshot| counts(provider, snapshot));
    ProviderReportView {
        provider,
        external: provider.is_external(),
        state: provider_status(provider, snapshot, found),
        learned_at: learned_at.filter(|_| provider.is_external()),
        age_seconds: learned_at
            .filter(|_| provider.is_external())
            .map(|at| u64::try_from((now - at).get_seconds()).unwrap_or(0)),
        stale: stale.map(stale_view),
        services,
        endpoints,
        held_count: held.len(),
        held: held.into_iter().take(MAX_PROVIDER_SERVICES).collect(),
        unreported_count: unreported.len(),
        unreported: unreported.into_iter().take(MAX_PROVIDER_SERVICES).collect(),
    }
}

/// The state of a provider.
pub(super) fn provider_status(
    provider: Provider,
    snapshot: Option<&Snapshot>,
    found: &EndpointsView,
) -> ProviderStatus {
    let is_used = snapshot.is_some_and(|snapshot| {
        let specification = &snapshot.inputs().specification;
        specification.services.values().any(|service| {
            let providers = service.endpoints.providers();
            providers.is_some_and(|providers| providers.include(provider))
        })
    });
    match found.providers.get(&provider) {
        _ if !is_used => ProviderStatus::Unused,
        Some(state) if state.stale.is_some() => ProviderStatus::Stale,
        Some(state) if !state.is_complete => ProviderStatus::Waiting,
        // Policy and join records are the other providers.
        Some(_) | None => ProviderStatus::Synced,
    }
}

/// The services that a provider has never reported.
fn unreported(
    provider: Provider,
    state: &ProviderState,
    found: &EndpointsView,
) -> Vec<UnreportedService> {
    let never =
        |service: &&ServiceName| !found.guards.contains_key(&(provider, (*service).clone()));
    let troubles = state.troubles.iter().filter(|(service, _)| never(service));
    troubles
        .map(|(service, stale)| UnreportedService {
            service: service.clone(),
            stale: stale_view(stale),
        })
        .collect()
}

/// The counts of services with endpoints of a provider, and of these endpoints.
fn counts(provider: Provider, snapshot: &Snapshot) -> (usize, usize) {
    let (mut services, mut endpoints) = (0, 0);
    for (name, known) in &snapshot.inputs().discovered.0 {
        // A subset has endpoints of its service.
        if snapshot.service(name).is_none_or(|service| service.is_subset()) {
            continue;
        }
        let count = known.iter().filter(|endpoint| endpoint.provider == provider).count();
        services += usize::from(count > 0);
        endpoints += count;
    }
    (services, endpoints)
}
