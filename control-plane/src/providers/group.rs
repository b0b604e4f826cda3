//! Shares Azure's answers between the control planes that read the same policy from etcd.
//!
//! One of them, the leader, polls Azure, and the others adopt its report. The leader holds a lease;
//! when the lease expires, another control plane becomes the leader, and starts from the last
//! report.
//!
//! If etcd is unreachable, each control plane polls Azure itself: that costs a few calls more, and
//! no control plane goes without endpoints. This module never reads an answer of Azure.

use std::sync::Arc;

use ironmesh_catalog::ServiceName;
use ironmesh_etcd::{
    EtcdError, LEASE_TTL, LeaderElection, MOST_PUBLISHED, Payload, Publication, Published,
    RENEW_INTERVAL, Role,
};
use ironmesh_providers::azure::{Azure, SharedReport};
use ironmesh_providers::{ProviderReport, ServiceReport, Stale};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use ironmesh_catalog::text::chain;

/// The membership of this control plane in its group.
#[derive(Debug)]
pub(crate) struct Group {
    election: LeaderElection<PublishedReport>,
    azure: Arc<Azure>,
    /// Whether this control plane polls Azure.
    polls: watch::Sender<bool>,
    found: watch::Receiver<SharedReport>,
    /// The report that was published under the current lease, and the time of that.
    published: Option<Publication<PublishedReport>>,
    published_at: Option<Instant>,
    /// The time since which publishing fails, and whether an oversized report was logged.
    unpublished_since: Option<Instant>,
    is_too_large: bool,
    /// The last report of another leader.
    last: LastReport,
    /// The time since which another leader has published no usable report.
    waits_since: Option<Instant>,
    /// Whether the own report is newer than that of the leader.
    lead: PollLead,
    /// The time since which etcd is unreachable, and whether that was logged.
    unreachable_since: Instant,
    is_logged: bool,
}

/// The value of the leader's last report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LastReport {
    /// There is none, or none that this version can read.
    Unusable,
    /// The leader cannot poll Azure.
    Stale,
    /// It has current endpoints.
    Usable,
}

/// Whether this control plane polled Azure after the leader's last report, because etcd was
/// unreachable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PollLead {
    /// It did not.
    None,
    /// It did.
    Ahead,
    /// It did; etcd has been reachable since then, without a new report.
    AheadSince(Instant),
}

/// The leader's report and its queries, as published in etcd.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PublishedReport {
    #[serde(rename = "questions")]
    queries: Vec<(ServiceName, String)>,
    services: Vec<(ServiceName, Arc<ServiceReport>)>,
    troubles: Vec<(ServiceName, Stale)>,
    #[serde(rename = "knows_whom")]
    has_discovered_services: bool,
    is_complete: bool,
    stale: Option<Stale>,
}

impl Payload for PublishedReport {
    const FORMAT: u32 = 2;
}

impl Group {
    pub(super) fn new(
        election: LeaderElection<PublishedReport>,
        azure: Arc<Azure>,
        polls: watch::Sender<bool>,
    ) -> Self {
        let found = azure.shared_reports();
        let unreachable_since = Instant::now();
        Self {
            election,
            azure,
            polls,
            found,
            published: None,
            published_at: None,
            unpublished_since: None,
            is_too_large: false,
            last: LastReport::Unusable,
            waits_since: None,
            lead: PollLead::None,
            unreachable_since,
            is_logged: false,
        }
    }

    /// Campaigns, publishes and adopts until the shutdown.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        loop {
            let role = self.election.campaign().await;
            let is_ours = self.follow(role) && self.publish().await;
            let next_campaign = Instant::now() + RENEW_INTERVAL;
            let may_publish = is_ours && self.may_publish();
            tokio::select! {
                () = sleep_until(next_campaign) => {}
                () = self.election.changed(), if !is_ours => {}
                Ok(()) = self.found.changed(), if may_publish => {}
                () = shutdown.cancelled() => {
                    self.election.resign().await;
                    return Ok(());
                }
            }
        }
    }

    /// Polls or adopts, depending on the role. Returns whether this control plane is the leader.
    fn follow(&mut self, role: Result<Role<PublishedReport>, EtcdError>) -> bool {
        match role {
            Ok(role) => {
                self.unreachable_since = Instant::now();
                self.is_logged = false;
                match role {
                    Role::Leader { is_new } => {
                        if is_new {
                            self.published = None;
                        }
                        (self.last, self.waits_since) = (LastReport::Unusable, None);
                        self.lead = PollLead::None;
                        self.set_polling(true);
                        return true;
                    }
                    Role::Follower(published) => {
                        self.rest();
                        match published {
                            Published::Unchanged => {}
                            Published::New(shared) => {
                                let is_stale = shared.stale.is_some();
                                self.last =
                                    if is_stale { LastReport::Stale } else { LastReport::Usable };
                                self.lead = PollLead::None;
                                // Before polling ends: otherwise the provider would adopt the
                                // previous report once more.
                                self.azure.adopt(shared.into_shared());
                            }
                            Published::Unusable => {
                                (self.last, self.lead) = (LastReport::Unusable, PollLead::None);
                            }
                        }
                        if self.last == LastReport::Unusable {
                            // If a report is too large, or of another version, each control plane
                            // polls itself.
                            self.waits_since = None;
                            self.set_polling(true);
                        } else if self.is_ahead() {
                            // The own report is newer. The leader will publish a new one, unless
                            // etcd was unreachable only from here.
                        } else if self.last == LastReport::Stale || self.azure.queries_differ() {
                            // Azure may reject only the leader's host. A new policy does not arrive
                            // everywhere at once, and settings may differ permanently.
                            self.wait();
                        } else {
                            self.waits_since = None;
                            self.set_polling(false);
                        }
                    }
                    Role::Unknown => {
                        self.rest();
                        // Before the leader has published, only the leader polls, if it can.
                        self.wait();
                    }
                }
            }
            Err(error) => {
                self.published = None;
                let is_silent =
                    matches!(error, EtcdError::Endpoint { .. } | EtcdError::NoEndpoint(_));
                if !is_silent || self.unreachable_since.elapsed() >= LEASE_TTL {
                    self.lead = PollLead::Ahead;
                    self.set_polling(true);
                    if !std::mem::replace(&mut self.is_logged, true) {
                        let error = chain(&error);
                        tracing::warn!(
                            error,
                            action = "each control plane polls Azure itself",
                            "leader election failed"
                        );
                    }
                }
            }
        }
        false
    }

    fn set_polling(&self, polls: bool) {
        let is_news = self.polls.send_if_modified(|now| std::mem::replace(now, polls) != polls);
        if is_news {
            tracing::info!(polls_azure = polls, "azure polling changed");
        }
    }

    /// Whether the own report is newer than that of the leader: the latter is from before an outage
    /// of etcd, and was not renewed for a lease TTL.
    fn is_ahead(&mut self) -> bool {
        self.lead = match self.lead {
            PollLead::Ahead => PollLead::AheadSince(Instant::now()),
            PollLead::AheadSince(since) if since.elapsed() >= LEASE_TTL => PollLead::None,
            lead => lead,
        };
        self.lead != PollLead::None
    }

    /// Starts to poll if there was no usable report for a lease TTL.
    fn wait(&mut self) {
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= LEASE_TTL {
            self.set_polling(true);
        }
    }

    /// Ends the publishing of this control plane, because a different control plane leads.
    fn rest(&mut self) {
        (self.published, self.unpublished_since) = (None, None);
    }

    /// Whether a new report is published at once. etcd keeps every revision until it is compacted,
    /// and at a start there are many.
    fn may_publish(&self) -> bool {
        self.published_at.is_none_or(|at| at.elapsed() >= RENEW_INTERVAL)
    }

    /// Publishes the report. Resigns if that fails for a lease TTL. Returns whether this control
    /// plane still leads.
    async fn publish(&mut self) -> bool {
        let publication = Publication::new(&PublishedReport::new(&self.found.borrow_and_update()));
        if self.published.as_ref() == Some(&publication) {
            return true;
        }
        let is_too_large = publication.is_too_large();
        if is_too_large && !self.is_too_large {
            tracing::warn!(
                most = MOST_PUBLISHED,
                action = "each control plane polls Azure itself",
                "the azure report is too large to share through etcd"
            );
        }
        self.is_too_large = is_too_large;
        match self.election.publish(&publication).await {
            Ok(true) => {
                (self.published, self.unpublished_since) = (Some(publication), None);
                self.published_at = Some(Instant::now());
            }
            Ok(false) => return false,
            Err(error) => {
                self.published = None;
                if self.unpublished_since.is_none() {
                    let error = chain(&error);
                    tracing::warn!(error, "cannot publish the azure report in etcd");
                }
                let since = *self.unpublished_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= LEASE_TTL {
                    tracing::warn!(
                        reason = "the azure report cannot be published in etcd",
                        action = "each control plane polls Azure itself",
                        "resigning as the leader"
                    );
                    self.election.resign().await;
                    self.unpublished_since = None;
                    return false;
                }
            }
        }
        true
    }
}

impl PublishedReport {
    fn new(shared: &SharedReport) -> Self {
        let SharedReport { report, queries } = shared;
        let queries = queries.iter();
        let services = report.services.iter();
        let troubles = report.troubles.iter();
        Self {
            queries: queries.map(|(name, one)| (name.clone(), one.clone())).collect(),
            services: services.map(|(name, one)| (name.clone(), Arc::clone(one))).collect(),
            troubles: troubles.map(|(name, stale)| (name.clone(), stale.clone())).collect(),
            has_discovered_services: report.has_discovered_services,
            is_complete: report.is_complete,
            stale: report.stale.clone(),
        }
    }

    fn into_shared(self) -> SharedReport {
        SharedReport {
            report: ProviderReport {
                services: self.services.into_iter().collect(),
                troubles: self.troubles.into_iter().collect(),
                has_discovered_services: self.has_discovered_services,
                is_complete: self.is_complete,
                stale: self.stale,
            },
            queries: Arc::new(self.queries.into_iter().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{Endpoint, Provider};
    use ironmesh_etcd::{Cluster, EtcdOptions};
    use ironmesh_providers::azure::AzureOptions;
    use jiff::Timestamp;

    use super::*;

    fn report(endpoints: u32) -> SharedReport {
        let stale = Stale { since: Timestamp::UNIX_EPOCH, reason: "429".to_owned() };
        report_with(endpoints, Some(stale))
    }

    fn report_with(endpoints: u32, stale: Option<Stale>) -> SharedReport {
        let endpoint = |n: u32| Endpoint {
            machine: Some(uuid::Uuid::from_u128(n.into())),
            ..Endpoint::new(Provider::Azure, std::net::Ipv4Addr::from_bits(n).into())
        };
        let service_report = ServiceReport {
            endpoints: Arc::new((0..endpoints).map(endpoint).collect()),
            index: 3,
            learned_at: Timestamp::UNIX_EPOCH,
            is_authoritative: true,
            problems: Arc::default(),
            stale: stale.clone(),
        };
        let provider_report = ProviderReport {
            services: [("shop/a".parse().unwrap(), Arc::new(service_report))].into_iter().collect(),
            troubles: stale
                .iter()
                .map(|stale| ("shop/b".parse().unwrap(), stale.clone()))
                .collect(),
            has_discovered_services: true,
            is_complete: false,
            stale,
        };
        let queries = [("shop/a".parse().unwrap(), "[\"vm\"]".to_owned())];
        SharedReport { report: provider_report, queries: Arc::new(queries.into()) }
    }

    /// The role of a follower whose leader has just published this report.
    fn follower_role(shared: &SharedReport) -> Role<PublishedReport> {
        Role::Follower(Published::New(PublishedReport::new(shared)))
    }

    /// A member of a group, and whether it polls. It contacts neither etcd nor Azure, because there
    /// is no policy.
    fn group() -> (Group, watch::Receiver<bool>) {
        let options = EtcdOptions {
            section: "[policy.etcd]",
            endpoints: vec!["http://127.0.0.1:1".to_owned()],
            prefix: "/mesh".to_owned(),
            ca: None,
            identity: None,
            user: None,
        };
        let election = LeaderElection::new(Cluster::open(options).unwrap(), "azure");
        let (polls, is_polling) = watch::channel(false);
        let options = AzureOptions::default();
        let azure = Azure::start(options, Timestamp::now, is_polling.clone()).unwrap();
        (Group::new(election, Arc::new(azure), polls), is_polling)
    }

    #[tokio::test(start_paused = true)]
    async fn follower_polls_azure_after_silent_lease_ttl() {
        let (mut group, polls) = group();
        let mut follow = |role| {
            let is_ours = group.follow(Ok(role));
            (is_ours, *polls.borrow())
        };
        assert_eq!(follow(Role::Unknown), (false, false));
        tokio::time::advance(LEASE_TTL / 2).await;
        assert_eq!(follow(Role::Unknown), (false, false));
        tokio::time::advance(LEASE_TTL / 2).await;
        assert_eq!(follow(Role::Unknown), (false, true));
        let of_other = || follower_role(&report_with(1, None));
        assert_eq!(follow(of_other()), (false, false));
        assert_eq!(follow(Role::Follower(Published::Unchanged)), (false, false));
        // The former leader has gone; the new one gets a lease TTL of its own.
        assert_eq!(follow(Role::Unknown), (false, false));
        assert_eq!(follow(Role::Leader { is_new: true }), (true, true));
        // An unusable report is no reason to wait.
        assert_eq!(follow(of_other()), (false, false));
        assert_eq!(follow(Role::Follower(Published::Unusable)), (false, true));
        assert_eq!(follow(Role::Follower(Published::Unchanged)), (false, true));
    }

    // Azure may reject only the leader's host.
    #[tokio::test(start_paused = true)]
    async fn follower_polls_azure_after_a_lease_ttl_of_stale_reports() {
        let (mut group, polls) = group();
        let mut follow = |role| {
            group.follow(Ok(role));
            *polls.borrow()
        };
        assert!(!follow(follower_role(&report(1))));
        tokio::time::advance(LEASE_TTL).await;
        assert!(follow(Role::Follower(Published::Unchanged)));
        assert!(!follow(follower_role(&report_with(1, None))));
        tokio::time::advance(LEASE_TTL).await;
        assert!(!follow(Role::Follower(Published::Unchanged)));
    }

    // etcd keeps leases and their keys over its own restart, and serves them first.
    #[tokio::test(start_paused = true)]
    async fn report_from_before_an_etcd_outage_is_unused_for_a_lease_ttl() {
        let (mut group, polls) = group();
        let mut follow = |role| {
            group.follow(role);
            *polls.borrow()
        };
        let of_other = || Ok(follower_role(&report_with(1, None)));
        let is_away = || Err(EtcdError::NoEndpoint("no answer".to_owned()));
        assert!(!follow(of_other()));
        assert!(!follow(is_away()));
        // A short outage has no effect.
        assert!(!follow(Ok(Role::Follower(Published::Unchanged))));
        tokio::time::advance(LEASE_TTL).await;
        assert!(follow(is_away()));
        assert!(follow(Ok(Role::Follower(Published::Unchanged))), "its own report is newer");
        assert!(!follow(of_other()), "the leader has published again");
        // If etcd was unreachable only from here, there is no new report.
        tokio::time::advance(LEASE_TTL).await;
        assert!(follow(is_away()));
        assert!(follow(Ok(Role::Follower(Published::Unchanged))));
        tokio::time::advance(LEASE_TTL).await;
        assert!(!follow(Ok(Role::Follower(Published::Unchanged))));
    }

    #[tokio::test(start_paused = true)]
    async fn leader_publishes_reports_once_per_renew_interval() {
        let (mut group, _polls) = group();
        assert!(group.may_publish());
        group.published_at = Some(Instant::now());
        assert!(!group.may_publish());
        tokio::time::advance(RENEW_INTERVAL).await;
        assert!(group.may_publish());
    }

    #[tokio::test]
    async fn shared_report_is_published_again_under_a_new_lease() {
        let (mut group, _polls) = group();
        let publication = Publication::new(&PublishedReport::new(&report(1)));
        for (role, is_known) in [
            (Role::Leader { is_new: true }, false),
            (Role::Leader { is_new: false }, true),
            (Role::Unknown, false),
            (Role::Follower(Published::Unchanged), false),
        ] {
            group.published = Some(publication.clone());
            group.follow(Ok(role.clone()));
            assert_eq!(group.published.is_some(), is_known, "{role:?}");
        }
        group.published = Some(publication);
        group.follow(Err(EtcdError::NoEndpoint("no answer".to_owned())));
        assert_eq!(group.published, None);
    }

    #[test]
    fn shared_report_round_trips_through_its_encoding() {
        for shared in [report(2), SharedReport::default(), report(1000)] {
            let publication = Publication::new(&PublishedReport::new(&shared));
            assert!(!publication.is_too_large());
            assert_eq!(publication.payload().map(PublishedReport::into_shared), Some(shared));
        }
    }

    #[test]
    fn oversized_report_is_not_shared() {
        let publication = Publication::new(&PublishedReport::new(&report(20_000)));
        assert!(publication.is_too_large());
        assert!(publication.payload().is_none());
    }
}
