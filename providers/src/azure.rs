//! The Azure provider: machines of scale sets, and machines with tags, are endpoints.
//!
//! One task requests lists (`collector`), each for all services that need it (`lists`), as often as
//! the budget allows (`poll`). It builds the report from the lists (`report_builder`).
//! docs/decisions/0040 has the rules and the reasons.
//!
//! It never removes endpoints because Azure does not answer: the last known ones stay, and are
//! stale.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::{AzureQuery, MeshSpecification, Provider, ServiceName};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::{EndpointsProvider, PeerClock, ProviderReport};

mod arm;
mod collector;
mod endpoint;
mod error;
mod error_body;
mod http;
mod id;
mod list_state;
mod lists;
mod look_up;
mod machine_index;
mod machines;
mod options;
mod poll;
mod report_builder;
mod survey;
mod token;
mod urls;
mod wire;

pub use error::AzureError;
pub use look_up::LookUpError;
pub use machine_index::KnownMachine;
pub use options::{AzureCloud, AzureCredential, AzureOptions};
pub use report_builder::SharedReport;
pub use survey::{Call, MissingRight, Survey, survey};

use arm::Arm;
use collector::Collector;
use list_state::Lists;
use look_up::LookUp;

/// The Azure provider. Its task ends when it is dropped.
#[derive(Debug)]
pub struct Azure {
    specification: watch::Sender<Arc<MeshSpecification>>,
    options: AzureOptions,
    adopted: watch::Sender<SharedReport>,
    shared: watch::Receiver<SharedReport>,
    reports: watch::Receiver<ProviderReport>,
    peer_clock: PeerClock,
    lists: watch::Receiver<Arc<Lists>>,
    look_up: LookUp,
    _task: AbortOnDropHandle<()>,
}

impl Azure {
    /// Starts the provider. It polls Azure once it follows a specification, and while `polls` is
    /// true: the leader of a group polls, and the others [adopt](Self::adopt) its report. `clock`
    /// returns the current time.
    ///
    /// # Errors
    ///
    /// If the options are invalid. An unreachable Azure or a missing right is no error: the report
    /// is stale then.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn start(
        options: AzureOptions,
        clock: fn() -> Timestamp,
        polls: watch::Receiver<bool>,
    ) -> Result<Self, AzureError> {
        let arm = Arc::new(Arm::new(&options, clock, false)?);
        let peer_clock = arm.peer_clock();
        let specification = watch::Sender::new(Arc::default());
        let adopted = watch::Sender::new(SharedReport::default());
        let (share, shared) = watch::channel(SharedReport::default());
        let (report_sender, reports) = watch::channel(ProviderReport::default());
        let (list_sender, lists) = watch::channel(Arc::default());
        let look_up = LookUp::new(&options, Arc::clone(&arm));
        let collector = Collector {
            options: options.clone(),
            clock,
            arm,
            specification: specification.subscribe(),
            polls,
            adopted: adopted.subscribe(),
            reports: report_sender,
            shared: share,
            lists: list_sender,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(collector.run()));
        Ok(Self {
            specification,
            options,
            adopted,
            shared,
            reports,
            peer_clock,
            lists,
            look_up,
            _task: task,
        })
    }

    /// Adopts the report of the leader, for services whose queries are the same here. While this
    /// provider polls itself, the adopted report is only its start.
    pub fn adopt(&self, shared: SharedReport) {
        self.adopted.send_if_modified(|adopted| {
            let is_new = *adopted != shared;
            *adopted = shared;
            is_new
        });
    }

    /// Whether a query of a service here differs from that in the last [adopted](Self::adopt)
    /// report: policy or settings differ.
    pub fn queries_differ(&self) -> bool {
        let queries = collector::queries(&self.specification.borrow(), &self.options);
        let adopted = self.adopted.borrow();
        report_builder::fingerprints(&queries)
            .iter()
            .any(|(name, ours)| adopted.queries.get(name) != Some(ours))
    }

    /// Returns the machine with this `vmId`, as the newest list shows it, if policy names its scale set
    /// or its tags. It makes no call.
    pub fn machine(&self, vm_id: Uuid) -> Option<KnownMachine> {
        self.look_up.known(&self.join_queries(), &self.lists.borrow(), vm_id)
    }

    /// Returns the subscriptions, in lower case, with machines that may join without a token.
    pub fn join_subscriptions(&self) -> BTreeSet<String> {
        let queries = self.join_queries();
        let joining = queries.values().flatten().filter(|query| query.join.is_some());
        joining.filter_map(|query| Some(query.subscription.as_ref()?.to_lowercase())).collect()
    }

    /// Returns the machine with this `vmId` as Azure shows it now: nothing in the result was read
    /// before `since`. `None` if no scale set or tag of policy has it.
    ///
    /// It makes a few calls, out of turn: one look-up at a time, whose answers serve all that wait.
    ///
    /// # Errors
    ///
    /// If Azure does not answer in time, or look-ups have used their share of `reads_per_hour`.
    pub async fn look_up(
        &self,
        vm_id: Uuid,
        subscription: Uuid,
        since: Instant,
    ) -> Result<Option<KnownMachine>, LookUpError> {
        self.look_up.run(&self.join_queries(), &self.lists, vm_id, subscription, since).await
    }

    fn join_queries(&self) -> BTreeMap<ServiceName, Vec<AzureQuery>> {
        collector::join_queries(&self.specification.borrow(), &self.options)
    }

    /// Returns a receiver of the report, own or adopted, with the queries that it answers.
    pub fn shared_reports(&self) -> watch::Receiver<SharedReport> {
        self.shared.clone()
    }
}

impl EndpointsProvider for Azure {
    fn provider(&self) -> Provider {
        Provider::Azure
    }

    fn follow(&self, specification: &Arc<MeshSpecification>) {
        self.specification.send_replace(Arc::clone(specification));
    }

    fn peer_clock(&self) -> Option<PeerClock> {
        Some(self.peer_clock.clone())
    }

    fn reports(&self) -> watch::Receiver<ProviderReport> {
        self.reports.clone()
    }
}
