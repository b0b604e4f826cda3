//! What keeps a revocation from being enforced by peers, and the findings about it, for as long as it lasts.
//!
//! The parts of the reconciler note their failures here, and try again themselves.

use ironmesh_catalog::codes::{CONFIGURATION_WITHHELD, REVOCATION_NOT_ENFORCED};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{Finding, JoinRecord, ObjectRef, StoreError};

/// The most proxies that a finding names.
const NAMED: usize = 5;

/// The present failures.
#[derive(Debug, Default)]
pub(super) struct RevocationFailures {
    /// The shared certificates of revoked proxies cannot be recorded, so peers accept them.
    unrefused: Option<ProxyFailure>,
    /// The accounts of shared certificates cannot be recorded, so proxies do not get these.
    withheld: Option<ProxyFailure>,
    /// Why the certificate revocation lists cannot be signed or stored.
    lists: Option<String>,
}

/// A failure that affects proxies.
#[derive(Debug)]
struct ProxyFailure {
    /// Some of the proxies, by name.
    names: Vec<String>,
    objects: Vec<ObjectRef>,
    /// How many there are.
    count: usize,
    error: String,
}

impl ProxyFailure {
    fn new<'a>(proxies: impl Iterator<Item = &'a JoinRecord>, error: &StoreError) -> Self {
        let proxies: Vec<_> = proxies.collect();
        let names: Vec<_> = proxies.iter().map(|proxy| proxy.display_name()).collect();
        let objects = proxies.iter().map(|proxy| ObjectRef::Proxy(proxy.id)).collect();
        let some = names.iter().take(NAMED).map(ToString::to_string).collect();
        Self { names: some, objects, count: names.len(), error: chain(error) }
    }

    /// Such as `proxy till-1 is`, or `7 proxies are`, with some of their names.
    fn subject(&self, [one, several]: [&str; 2]) -> String {
        let names = self.names.join(", ");
        match self.count {
            1 => format!("proxy {names} {one}"),
            count if count > NAMED => format!("{count} proxies {several} ({names} and others)"),
            count => format!("{count} proxies {several} ({names})"),
        }
    }
}

impl RevocationFailures {
    /// Notes whether the shared certificates of these revoked proxies could be recorded.
    pub(super) fn note_refused<'a>(
        &mut self,
        proxies: impl Iterator<Item = &'a JoinRecord>,
        outcome: &Result<(), StoreError>,
    ) {
        self.unrefused = outcome.as_ref().err().map(|error| ProxyFailure::new(proxies, error));
    }

    /// Notes whether the accounts of these proxies could be recorded.
    pub(super) fn note_accounts<'a>(
        &mut self,
        proxies: impl Iterator<Item = &'a JoinRecord>,
        outcome: &Result<(), StoreError>,
    ) {
        self.withheld = outcome.as_ref().err().map(|error| ProxyFailure::new(proxies, error));
    }

    /// Notes why the certificate revocation lists cannot be signed or stored; none if they were.
    pub(super) fn note_lists(&mut self, failure: Option<&str>) {
        if self.lists.as_deref() != failure {
            self.lists = failure.map(str::to_owned);
        }
    }

    /// The findings about them, the most important first.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let unrefused = self.unrefused.as_ref().map(|failure| {
            let subject = failure.subject(["was revoked", "were revoked"]);
            let text = format!(
                "{subject}, but peers still accept the shared certificates: these cannot be recorded: {}",
                failure.error
            );
            Finding::error(REVOCATION_NOT_ENFORCED, None, text).objects(failure.objects.clone())
        });
        let lists = self
            .lists
            .as_ref()
            .map(|error| Finding::error(REVOCATION_NOT_ENFORCED, None, error.clone()));
        let revocations = unrefused.into_iter().chain(lists);
        let revocations = revocations.map(|finding| {
            finding.help(
                "repair the state store (`ironmesh status` shows its findings); the control plane tries again every 30 s. \
                 Until then, stop the revoked machine, or close its network",
            )
        });
        let withheld = self.withheld.as_ref().map(|failure| {
            let subject = failure.subject(["gets", "get"]);
            let text = format!(
                "{subject} no configuration: the accounts of the certificates cannot be recorded, so a revocation would not reach them: {}",
                failure.error
            );
            let finding = Finding::error(CONFIGURATION_WITHHELD, None, text);
            finding.objects(failure.objects.clone()).help(
                "repair the state store (`ironmesh status` shows its findings); the control plane tries again every 30 s",
            )
        });
        revocations.chain(withheld).collect()
    }
}
