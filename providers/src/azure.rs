//! Azure: the machines of scale sets, and those with tags, are endpoints.
//!
//! One task asks for lists (`collector`), each for all services that need it (`lists`), as often as it may
//! (`poll`), and puts together what services are to know (`board`). How Azure is asked and believed, and why, is in docs/decisions/0040.
//!
//! It never decides that endpoints are gone because nobody answers: what was known stays, and is stale.

use std::sync::Arc;

use ironmesh_catalog::{MeshSpecification, Provider};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::{EndpointsProvider, PeerClock, ProviderReport};

mod arm;
mod board;
mod collector;
mod endpoint;
mod error;
mod held;
mod http;
mod id;
mod lists;
mod machines;
mod options;
mod places;
mod poll;
mod refusal;
mod survey;
mod token;
mod wire;

pub use board::Told;
pub use error::AzureError;
pub use options::{AzureCloud, AzureCredential, AzureOptions};
pub use survey::{Call, MissingRight, Survey, survey};

use arm::Arm;
use collector::Collector;

/// The Azure provider. All that it runs ends when it is dropped.
#[derive(Debug)]
pub struct Azure {
    specification: watch::Sender<Arc<MeshSpecification>>,
    options: AzureOptions,
    taken: watch::Sender<Told>,
    told: watch::Receiver<Told>,
    sightings: watch::Receiver<ProviderReport>,
    peer_clock: PeerClock,
    _task: AbortOnDropHandle<()>,
}

impl Azure {
    /// Begins to ask, as soon as there is policy to follow, and while `turn` says so: one control plane of a
    /// group asks, and the others [take](Self::take) what it has found. `clock` says what time it is.
    ///
    /// # Errors
    ///
    /// Where the options are not what they should be. That nobody can be reached, or may be asked, is none:
    /// that is told as staleness.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub fn start(
        options: AzureOptions,
        clock: fn() -> Timestamp,
        turn: watch::Receiver<bool>,
    ) -> Result<Self, AzureError> {
        let arm = Arc::new(Arm::new(&options, clock, false)?);
        let peer_clock = arm.peer_clock();
        let specification = watch::Sender::new(Arc::default());
        let taken = watch::Sender::new(Told::default());
        let (tell, told) = watch::channel(Told::default());
        let (sight, sightings) = watch::channel(ProviderReport::default());
        let collector = Collector {
            options: options.clone(),
            clock,
            arm,
            specification: specification.subscribe(),
            turn,
            taken: taken.subscribe(),
            sightings: sight,
            told: tell,
        };
        let task = AbortOnDropHandle::new(tokio::spawn(collector.run()));
        Ok(Self { specification, options, taken, told, sightings, peer_clock, _task: task })
    }

    /// Takes what the control plane whose turn it is has found, as far as it asks the same as we. While it is
    /// our own turn, it is where we begin and no more: what we find ourselves counts.
    pub fn take(&self, told: Told) {
        self.taken.send_if_modified(|taken| {
            let is_new = *taken != told;
            *taken = told;
            is_new
        });
    }

    /// Whether some service asks here what it does not ask there from where was [taken](Self::take) last:
    /// the policy or the settings are others.
    pub fn asks_otherwise(&self) -> bool {
        let asked = collector::asked(&self.specification.borrow(), &self.options);
        let taken = self.taken.borrow();
        board::questions(&asked).iter().any(|(name, ours)| taken.questions.get(name) != Some(ours))
    }

    /// What is known, by us or by whom we follow, with what was asked for it.
    pub fn told(&self) -> watch::Receiver<Told> {
        self.told.clone()
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

    fn sightings(&self) -> watch::Receiver<ProviderReport> {
        self.sightings.clone()
    }
}
