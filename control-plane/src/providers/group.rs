//! Several control planes that read the same policy from etcd: one of them asks Azure, and the others take
//! what it has found. Who has the turn keeps a lease; when it is silent for that long, another one goes on
//! with what it was told.
//!
//! Where etcd cannot be used, each asks for itself: it is a few more calls, and nobody goes without endpoints.

use std::sync::Arc;

use ironmesh_catalog::ServiceName;
use ironmesh_etcd::{
    EtcdError, LEASE_TTL, LeaderElection, MOST_PUBLISHED, Payload, Publication, Published,
    RENEW_INTERVAL, Role,
};
use ironmesh_providers::azure::{Azure, Told};
use ironmesh_providers::{ProviderReport, ServiceReport, Stale};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use ironmesh_catalog::text::chain;

/// A control plane among others.
#[derive(Debug)]
pub(crate) struct Group {
    election: LeaderElection<Shared>,
    azure: Arc<Azure>,
    /// Whether it is our turn to ask.
    asks: watch::Sender<bool>,
    told: watch::Receiver<Told>,
    /// What we have told the others, under the lease that we have, and when.
    shared: Option<Publication<Shared>>,
    told_at: Option<Instant>,
    /// Since when we cannot tell them anything, and whether that it is too much was logged.
    mute_since: Option<Instant>,
    is_too_much: bool,
    /// What another one has told last.
    last: Last,
    /// Since when it is another one's turn, who has told nothing that we can use.
    waits_since: Option<Instant>,
    /// Whether what we have found ourselves is newer than that.
    lead: Lead,
    /// Since when etcd has said nothing, and whether that was logged.
    silent_since: Instant,
    is_logged: bool,
}

/// What is to be had of what another one has told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Last {
    /// Nothing.
    Unusable,
    /// That nobody can ask Azure.
    Stale,
    /// Where endpoints are.
    Usable,
}

/// Whether we have asked since another one has told something, as etcd could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    /// We have not.
    None,
    /// We have.
    Ahead,
    /// We have, and nothing else is told since then, though it can be.
    AheadSince(Instant),
}

/// What the leader has found, and what it asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Shared {
    questions: Vec<(ServiceName, String)>,
    services: Vec<(ServiceName, Arc<ServiceReport>)>,
    troubles: Vec<(ServiceName, Stale)>,
    #[serde(rename = "knows_whom")]
    has_discovered_services: bool,
    is_complete: bool,
    stale: Option<Stale>,
}

impl Payload for Shared {
    const FORMAT: u32 = 2;
}

impl Group {
    pub(super) fn new(
        election: LeaderElection<Shared>,
        azure: Arc<Azure>,
        asks: watch::Sender<bool>,
    ) -> Self {
        let told = azure.told();
        let silent_since = Instant::now();
        Self {
            election,
            azure,
            asks,
            told,
            shared: None,
            told_at: None,
            mute_since: None,
            is_too_much: false,
            last: Last::Unusable,
            waits_since: None,
            lead: Lead::None,
            silent_since,
            is_logged: false,
        }
    }

    /// Takes turns until it is told to stop.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        loop {
            let looked = self.election.campaign().await;
            let is_ours = self.follow(looked) && self.tell().await;
            let look_again = Instant::now() + RENEW_INTERVAL;
            let may_tell = is_ours && self.may_tell();
            tokio::select! {
                () = sleep_until(look_again) => {}
                () = self.election.changed(), if !is_ours => {}
                Ok(()) = self.told.changed(), if may_tell => {}
                () = shutdown.cancelled() => {
                    self.election.resign().await;
                    return Ok(());
                }
            }
        }
    }

    /// Asks or takes, as etcd says. Returns whether it is our turn there.
    fn follow(&mut self, looked: Result<Role<Shared>, EtcdError>) -> bool {
        match looked {
            Ok(looked) => {
                self.silent_since = Instant::now();
                self.is_logged = false;
                match looked {
                    Role::Leader { is_new } => {
                        if is_new {
                            self.shared = None;
                        }
                        (self.last, self.waits_since) = (Last::Unusable, None);
                        self.lead = Lead::None;
                        self.set(true);
                        return true;
                    }
                    Role::Follower(published) => {
                        self.rest();
                        match published {
                            Published::Unchanged => {}
                            Published::New(shared) => {
                                let is_stale = shared.stale.is_some();
                                self.last = if is_stale { Last::Stale } else { Last::Usable };
                                self.lead = Lead::None;
                                // Before it is another one's turn: else what was told before would be taken
                                // once more.
                                self.azure.take(shared.into_told());
                            }
                            Published::Unusable => {
                                (self.last, self.lead) = (Last::Unusable, Lead::None);
                            }
                        }
                        if self.last == Last::Unusable {
                            // What is too much to be told, or of another version, each asks for itself.
                            self.waits_since = None;
                            self.set(true);
                        } else if self.is_ahead() {
                            // We know better. Whose turn it is tells anew, unless etcd was away for us alone.
                        } else if self.last == Last::Stale || self.azure.asks_otherwise() {
                            // It may be that one's host alone that Azure does not let in. Policy is not everywhere
                            // at once; settings may be others for good.
                            self.wait();
                        } else {
                            self.waits_since = None;
                            self.set(false);
                        }
                    }
                    Role::Unknown => {
                        self.rest();
                        // Nobody but who has the turn asks before he has told something; if he can.
                        self.wait();
                    }
                }
            }
            Err(error) => {
                self.shared = None;
                let is_silent =
                    matches!(error, EtcdError::Endpoint { .. } | EtcdError::NoEndpoint(_));
                if !is_silent || self.silent_since.elapsed() >= LEASE_TTL {
                    self.lead = Lead::Ahead;
                    self.set(true);
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

    fn set(&self, asks: bool) {
        let is_news = self.asks.send_if_modified(|now| std::mem::replace(now, asks) != asks);
        if is_news {
            tracing::info!(polls_azure = asks, "azure polling changed");
        }
    }

    /// Whether what we have found ourselves is newer than what is told: it was told before etcd could not be used,
    /// and nobody has confirmed it for as long as a turn lasts.
    fn is_ahead(&mut self) -> bool {
        self.lead = match self.lead {
            Lead::Ahead => Lead::AheadSince(Instant::now()),
            Lead::AheadSince(since) if since.elapsed() >= LEASE_TTL => Lead::None,
            lead => lead,
        };
        self.lead != Lead::None
    }

    /// Asks after all, if nothing that we can use was told for long.
    fn wait(&mut self) {
        let since = *self.waits_since.get_or_insert_with(Instant::now);
        if since.elapsed() >= LEASE_TTL {
            self.set(true);
        }
    }

    /// It is another one's turn to tell.
    fn rest(&mut self) {
        (self.shared, self.mute_since) = (None, None);
    }

    /// Whether what is found is told at once. etcd keeps all that it was ever told until it is compacted, and at
    /// a start much is found one after the other.
    fn may_tell(&self) -> bool {
        self.told_at.is_none_or(|at| at.elapsed() >= RENEW_INTERVAL)
    }

    /// Tells the others what was found. Who cannot for long gives the turn to somebody who can. Returns
    /// whether it is ours still.
    async fn tell(&mut self) -> bool {
        let publication = Publication::new(&Shared::new(&self.told.borrow_and_update()));
        if self.shared.as_ref() == Some(&publication) {
            return true;
        }
        let is_too_much = publication.is_too_large();
        if is_too_much && !self.is_too_much {
            tracing::warn!(
                most = MOST_PUBLISHED,
                action = "each control plane polls Azure itself",
                "the azure report is too large to share through etcd"
            );
        }
        self.is_too_much = is_too_much;
        match self.election.publish(&publication).await {
            Ok(true) => {
                (self.shared, self.mute_since) = (Some(publication), None);
                self.told_at = Some(Instant::now());
            }
            Ok(false) => return false,
            Err(error) => {
                self.shared = None;
                if self.mute_since.is_none() {
                    let error = chain(&error);
                    tracing::warn!(error, "cannot publish the azure report in etcd");
                }
                let since = *self.mute_since.get_or_insert_with(Instant::now);
                if since.elapsed() >= LEASE_TTL {
                    tracing::warn!(
                        reason = "the azure report cannot be published in etcd",
                        action = "each control plane polls Azure itself",
                        "resigning as the leader"
                    );
                    self.election.resign().await;
                    self.mute_since = None;
                    return false;
                }
            }
        }
        true
    }
}

impl Shared {
    fn new(told: &Told) -> Self {
        let Told { sightings, questions } = told;
        let questions = questions.iter();
        let services = sightings.services.iter();
        let troubles = sightings.troubles.iter();
        Self {
            questions: questions.map(|(name, one)| (name.clone(), one.clone())).collect(),
            services: services.map(|(name, one)| (name.clone(), Arc::clone(one))).collect(),
            troubles: troubles.map(|(name, stale)| (name.clone(), stale.clone())).collect(),
            has_discovered_services: sightings.has_discovered_services,
            is_complete: sightings.is_complete,
            stale: sightings.stale.clone(),
        }
    }

    fn into_told(self) -> Told {
        Told {
            sightings: ProviderReport {
                services: self.services.into_iter().collect(),
                troubles: self.troubles.into_iter().collect(),
                has_discovered_services: self.has_discovered_services,
                is_complete: self.is_complete,
                stale: self.stale,
            },
            questions: Arc::new(self.questions.into_iter().collect()),
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

    fn report(endpoints: u32) -> Told {
        let stale = Stale { since: Timestamp::UNIX_EPOCH, reason: "429".to_owned() };
        report_with(endpoints, Some(stale))
    }

    fn report_with(endpoints: u32, stale: Option<Stale>) -> Told {
        let endpoint = |n: u32| Endpoint {
            machine: Some(uuid::Uuid::from_u128(n.into())),
            ..Endpoint::new(Provider::Azure, std::net::Ipv4Addr::from_bits(n).into())
        };
        let sighting = ServiceReport {
            endpoints: Arc::new((0..endpoints).map(endpoint).collect()),
            index: 3,
            learned_at: Timestamp::UNIX_EPOCH,
            is_authoritative: true,
            problems: Arc::default(),
            stale: stale.clone(),
        };
        let sightings = ProviderReport {
            services: [("shop/a".parse().unwrap(), Arc::new(sighting))].into_iter().collect(),
            troubles: stale
                .iter()
                .map(|stale| ("shop/b".parse().unwrap(), stale.clone()))
                .collect(),
            has_discovered_services: true,
            is_complete: false,
            stale,
        };
        let questions = [("shop/a".parse().unwrap(), "[\"vm\"]".to_owned())];
        Told { sightings, questions: Arc::new(questions.into()) }
    }

    /// A follower whose leader has just told this.
    fn of_leader(told: &Told) -> Role<Shared> {
        Role::Follower(Published::New(Shared::new(told)))
    }

    /// One of a group, and whether it asks. Nothing is asked of etcd, nor of Azure: there is no policy.
    fn group() -> (Group, watch::Receiver<bool>) {
        let options = EtcdOptions {
            endpoints: vec!["http://127.0.0.1:1".to_owned()],
            prefix: "/mesh".to_owned(),
            ca: None,
            identity: None,
            user: None,
        };
        let election = LeaderElection::new(Cluster::open(options).unwrap(), "azure");
        let (asks, is_asking) = watch::channel(false);
        let options = AzureOptions::default();
        let azure = Azure::start(options, Timestamp::now, is_asking.clone()).unwrap();
        (Group::new(election, Arc::new(azure), asks), is_asking)
    }

    #[tokio::test(start_paused = true)]
    async fn follower_polls_azure_after_silent_lease_ttl() {
        let (mut group, asks) = group();
        let mut follow = |looked| {
            let is_ours = group.follow(Ok(looked));
            (is_ours, *asks.borrow())
        };
        assert_eq!(follow(Role::Unknown), (false, false));
        tokio::time::advance(LEASE_TTL / 2).await;
        assert_eq!(follow(Role::Unknown), (false, false));
        tokio::time::advance(LEASE_TTL / 2).await;
        assert_eq!(follow(Role::Unknown), (false, true));
        let of_other = || of_leader(&report_with(1, None));
        assert_eq!(follow(of_other()), (false, false));
        assert_eq!(follow(Role::Follower(Published::Unchanged)), (false, false));
        // Who had the turn has gone, and another one has begun: it has its time.
        assert_eq!(follow(Role::Unknown), (false, false));
        assert_eq!(follow(Role::Leader { is_new: true }), (true, true));
        // What cannot be used is no reason to wait.
        assert_eq!(follow(of_other()), (false, false));
        assert_eq!(follow(Role::Follower(Published::Unusable)), (false, true));
        assert_eq!(follow(Role::Follower(Published::Unchanged)), (false, true));
    }

    // Its host alone may be the one that Azure does not let in.
    #[tokio::test(start_paused = true)]
    async fn follower_polls_azure_after_a_lease_ttl_of_stale_reports() {
        let (mut group, asks) = group();
        let mut follow = |looked| {
            group.follow(Ok(looked));
            *asks.borrow()
        };
        assert!(!follow(of_leader(&report(1))));
        tokio::time::advance(LEASE_TTL).await;
        assert!(follow(Role::Follower(Published::Unchanged)));
        assert!(!follow(of_leader(&report_with(1, None))));
        tokio::time::advance(LEASE_TTL).await;
        assert!(!follow(Role::Follower(Published::Unchanged)));
    }

    // etcd keeps leases and what is under them over its own restart, and tells them first.
    #[tokio::test(start_paused = true)]
    async fn report_from_before_an_etcd_outage_is_unused_for_a_lease_ttl() {
        let (mut group, asks) = group();
        let mut follow = |looked| {
            group.follow(looked);
            *asks.borrow()
        };
        let of_other = || Ok(of_leader(&report_with(1, None)));
        let is_away = || Err(EtcdError::NoEndpoint("nobody answers".to_owned()));
        assert!(!follow(of_other()));
        assert!(!follow(is_away()));
        // For a moment is nothing.
        assert!(!follow(Ok(Role::Follower(Published::Unchanged))));
        tokio::time::advance(LEASE_TTL).await;
        assert!(follow(is_away()));
        assert!(follow(Ok(Role::Follower(Published::Unchanged))), "it has found out itself since");
        assert!(!follow(of_other()), "and now it is told anew");
        // Where it was away for us alone, nothing is told anew.
        tokio::time::advance(LEASE_TTL).await;
        assert!(follow(is_away()));
        assert!(follow(Ok(Role::Follower(Published::Unchanged))));
        tokio::time::advance(LEASE_TTL).await;
        assert!(!follow(Ok(Role::Follower(Published::Unchanged))));
    }

    #[tokio::test(start_paused = true)]
    async fn leader_publishes_reports_once_per_renew_interval() {
        let (mut group, _asks) = group();
        assert!(group.may_tell());
        group.told_at = Some(Instant::now());
        assert!(!group.may_tell());
        tokio::time::advance(RENEW_INTERVAL).await;
        assert!(group.may_tell());
    }

    #[tokio::test]
    async fn shared_report_is_published_again_under_a_new_lease() {
        let (mut group, _asks) = group();
        let publication = Publication::new(&Shared::new(&report(1)));
        for (looked, is_known) in [
            (Role::Leader { is_new: true }, false),
            (Role::Leader { is_new: false }, true),
            (Role::Unknown, false),
            (Role::Follower(Published::Unchanged), false),
        ] {
            group.shared = Some(publication.clone());
            group.follow(Ok(looked.clone()));
            assert_eq!(group.shared.is_some(), is_known, "{looked:?}");
        }
        group.shared = Some(publication);
        group.follow(Err(EtcdError::NoEndpoint("nobody answers".to_owned())));
        assert_eq!(group.shared, None);
    }

    #[test]
    fn shared_report_round_trips_through_its_encoding() {
        for told in [report(2), Told::default(), report(1000)] {
            let publication = Publication::new(&Shared::new(&told));
            assert!(!publication.is_too_large());
            assert_eq!(publication.payload().map(Shared::into_told), Some(told));
        }
    }

    #[test]
    fn oversized_report_is_not_shared() {
        let publication = Publication::new(&Shared::new(&report(20_000)));
        assert!(publication.is_too_large());
        assert!(publication.payload().is_none());
    }
}
