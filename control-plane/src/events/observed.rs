//! The observed states of the mesh that events tell of, and the events of a change between two of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_api::{
    ChangedProxies, EventKind, FindingChange, FindingView, FindingsEvent, MAX_EVENT_OBJECTS,
    PolicyEvent, ProviderChange, ProviderStatus, ProvidersEvent, ProxiesEvent, ReadinessEvent,
};
use ironmesh_catalog::{Provider, ProxyId};

use super::Events;

/// The observed states at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Observed {
    pub(crate) ready: bool,
    /// The active revision.
    pub(crate) policy: Option<String>,
    pub(crate) providers: BTreeMap<Provider, ProviderStatus>,
    /// The proxies that were connected and are not.
    pub(crate) disconnected: Arc<BTreeSet<ProxyId>>,
    /// Those that were disconnected at the observation before, and are connected.
    pub(crate) reconnected: Vec<ProxyId>,
    /// The connected proxies that have not ACKed everything.
    pub(crate) updating: Arc<BTreeSet<ProxyId>>,
    /// The active findings. Those with the same code and objects are one.
    pub(crate) findings: Arc<BTreeMap<String, FindingChange>>,
}

/// What identifies a finding while its problem lasts, and what an event tells of it.
pub(crate) fn finding_key(finding: &FindingView) -> (String, FindingChange) {
    let change = FindingChange {
        code: finding.code.clone(),
        severity: finding.severity.clone(),
        objects: finding.objects.iter().take(MAX_EVENT_OBJECTS).cloned().collect(),
        silenced: finding.silenced.is_some(),
    };
    (finding.fingerprint.clone(), change)
}

/// The most objects of a finding in an event, so that an event stays small. `/v1/findings` has all.
const OBJECTS_OF_A_FINDING: usize = 10;

impl Observed {
    /// Adds the events of the change from `before`, one of each kind at most.
    pub(crate) fn publish_changes(&self, before: &Self, events: &Events) {
        if self.ready != before.ready {
            events.publish(EventKind::Readiness, &ReadinessEvent { ready: self.ready });
        }
        if self.policy != before.policy {
            let revision = self.policy.clone();
            events.publish(EventKind::Policy, &PolicyEvent { revision });
        }
        if let Some(event) = self.providers_event(before) {
            events.publish(EventKind::Providers, &event);
        }
        if let Some(event) = self.proxies_event(before) {
            events.publish(EventKind::Proxies, &event);
        }
        if let Some(event) = self.findings_event(before) {
            events.publish(EventKind::Findings, &event);
        }
    }

    fn providers_event(&self, before: &Self) -> Option<ProvidersEvent> {
        let states = self.providers.iter();
        let changed =
            states.filter(|(provider, state)| before.providers.get(provider) != Some(state));
        let changed: Vec<_> =
            changed.map(|(&provider, &state)| ProviderChange { provider, state }).collect();
        (!changed.is_empty()).then_some(ProvidersEvent { changed })
    }

    fn proxies_event(&self, before: &Self) -> Option<ProxiesEvent> {
        let lost = self.disconnected.difference(&before.disconnected);
        let synced = before.updating.difference(&self.updating);
        let synced = synced.filter(|id| !self.disconnected.contains(id));
        let event = ProxiesEvent {
            disconnected: changed(lost),
            reconnected: changed(self.reconnected.iter()),
            synced: changed(synced),
            updating: self.updating.len(),
        };
        let lists = [&event.disconnected, &event.reconnected, &event.synced];
        let has_change = lists.iter().any(|list| list.count > 0);
        (has_change || self.updating.len() != before.updating.len()).then_some(event)
    }

    fn findings_event(&self, before: &Self) -> Option<FindingsEvent> {
        let new =
            |(key, finding): &(&String, &FindingChange)| before.findings.get(*key) != Some(finding);
        let changed: Vec<_> =
            self.findings.iter().filter(new).map(|(_, finding)| finding).collect();
        let gone = |(key, _): &(&String, &FindingChange)| !self.findings.contains_key(*key);
        let cleared: Vec<_> =
            before.findings.iter().filter(gone).map(|(_, finding)| finding).collect();
        let count = |severity: &str| {
            let active = self.findings.values();
            active.filter(|finding| !finding.silenced && finding.severity == severity).count()
        };
        let few = |all: &[&FindingChange]| {
            let few = all.iter().take(MAX_EVENT_OBJECTS).map(|&finding| FindingChange {
                objects: finding.objects.iter().take(OBJECTS_OF_A_FINDING).cloned().collect(),
                ..finding.clone()
            });
            few.collect()
        };
        (!changed.is_empty() || !cleared.is_empty()).then(|| FindingsEvent {
            errors: count("error"),
            warnings: count("warning"),
            silenced: self.findings.values().filter(|finding| finding.silenced).count(),
            changed: few(&changed),
            changed_count: changed.len(),
            cleared: few(&cleared),
            cleared_count: cleared.len(),
        })
    }
}

fn changed<'a>(proxies: impl Iterator<Item = &'a ProxyId>) -> ChangedProxies {
    let mut all = ChangedProxies::default();
    for id in proxies {
        all.count += 1;
        if all.ids.len() < MAX_EVENT_OBJECTS {
            all.ids.push(*id);
        }
    }
    all
}
