//! The Azure provider: machines of scale sets, and machines with tags, are endpoints.
//!
//! One task requests lists (`collector`), each for all services that need it (`lists`), as often as
//! the budget allows (`poll`). It builds the report from the lists (`report_builder`).
//! docs/decisions/0040 has the rules and the reasons.
//!
//! It never removes endpoints because Azure does not answer: the last known ones stay, and are
//! stale.

use std::sync::Arc;

use ironmesh_catalog::{MeshSpecification, Provider};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

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
mod machines;
mod options;
mod poll;
mod report_builder;
mod survey;
mod token;
mod urls;
mod wire;

pub use error::AzureError;
pub use options::{AzureCloud, AzureCredential, AzureOptions};
pub use report_builder::SharedReport;
pub use survey::{Call, MissingRight, Survey, survey};

use arm::Arm;
use collector::Collector;

/// The Azure provider. Its task ends when it is dropped.
#[derive(Debug)]
pub struct Azure {
    specification: watch::Sender<Arc<MeshSpecification>>,
    options: AzureOptions,
    adopted: watch::Sender<SharedReport>,
    shared: watch::Receiver<SharedReport>,
    reports: watch::Receiver<ProviderReport>,
    peer_clock: PeerClock,
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
        let collector = Collector {
            options: options.clone(),
            clock,
            arm,
            specification: specification.subscribe(),
            polls,
            adopted: adopted.subscribe(),
            reports: report_sender,
            shared: share,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(collector.run()));
        Ok(Self { specification, options, adopted, shared, reports, peer_clock, _task: task })
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
