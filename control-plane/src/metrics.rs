//! `/metrics` in the OpenMetrics format. Each number is read from its owner when it is requested: no second copy can
//! differ from the state.

mod certificates;
mod convergence;
mod endpoints;
mod enrollment;
mod families;
mod findings;
mod fleet;
mod process;
mod store;
mod traces;
mod traffic;
mod xds;

use std::sync::Arc;

use ironmesh_admin::ConnectionLosses;
use ironmesh_catalog::{ActiveSilences, Finding};
use ironmesh_enrollment::EnrollmentCounters;
use ironmesh_store_etcd::EtcdStore;
use ironmesh_xds_server::Hub;
use jiff::Timestamp;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, text};
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::audit::Audit;
use super::change_traces::ChangeTraces;
use super::findings::{FindingCounts, is_hidden};
use super::health_discovery::HealthDiscovery;
use super::journal::Journal;
use super::policy_source::PolicyState;
use super::reconciler::StatusFeeds;
use super::register::Register;
use super::traffic_table::TrafficTable;
pub(crate) use certificates::CertificateCounts;
use families::Families;

/// The owners of the numbers.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) hub: Arc<Hub>,
    pub(crate) register: Arc<Register>,
    pub(crate) policy: watch::Receiver<PolicyState>,
    pub(crate) feeds: StatusFeeds,
    /// The findings about the control plane's own state.
    pub(crate) state_findings: watch::Receiver<Vec<Finding>>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) enrollment: Arc<EnrollmentCounters>,
    /// The lost connections of operators on the network.
    pub(crate) api_losses: Arc<ConnectionLosses>,
    pub(crate) health_discovery: Arc<HealthDiscovery>,
    pub(crate) traffic: Arc<TrafficTable>,
    pub(crate) journal: Journal,
    pub(crate) certificates: CertificateCounts,
    /// Since when the local store cannot be written.
    pub(crate) local_outage: watch::Receiver<Option<Timestamp>>,
    /// The store of the mesh, if it is in etcd.
    pub(crate) etcd_store: Option<Arc<EtcdStore>>,
    /// The traces of changes, if they are exported.
    pub(crate) traces: Option<Arc<ChangeTraces>>,
    /// The silences that are active now.
    pub(crate) silences: ActiveSilences,
    pub(crate) findings: FindingCounts,
}

/// All metrics, as text.
pub(crate) fn exposition(sources: Sources) -> String {
    let mut of_mesh = Registry::with_prefix("ironmesh");
    of_mesh.register_collector(Box::new(sources));
    // These names are the same for all programs.
    let mut of_process = Registry::default();
    of_process.register_collector(Box::new(Process));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = text::encode_registry(&mut text, &of_mesh);
    let _ = text::encode(&mut text, &of_process);
    text
}

/// This process.
#[derive(Debug)]
struct Process;

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        process::encode(&mut Families::new(encoder))
    }
}

impl Collector for Sources {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let mut families = Families::new(encoder);
        let convergence = self.feeds.convergence.borrow().clone();
        self.encode_state(&mut families, convergence.connected())?;
        xds::encode(&mut families, self.hub.counters())?;
        enrollment::encode(&mut families, &self.enrollment, &self.health_discovery)?;
        let lost = self.api_losses.counts().map(|(why, count)| ([why.word()], count));
        let help =
            "Connections of operators on the network that ended without a request, by reason";
        families.counters("api_connections_lost", help, ["reason"], lost)?;
        convergence::encode(&mut families, &convergence)?;
        let now = Timestamp::now();
        // (A copy shares its structure. The reconciler must not wait for a scrape.)
        let endpoints = self.feeds.endpoints.borrow().clone();
        endpoints::encode(&mut families, &endpoints, now)?;
        certificates::encode(&mut families, &self.certificates)?;
        findings::encode(&mut families, &self.findings)?;
        fleet::encode(&mut families, &self.register, now)?;
        store::encode(&mut families, self, now)?;
        traces::encode(&mut families, self.traces.as_deref())?;
        let snapshot = self.feeds.snapshot.borrow().clone();
        traffic::requests(&mut families, &self.traffic, snapshot.as_deref())?;
        traffic::denials(&mut families, &self.audit)
    }
}

impl Sources {
    /// The state of the control plane and of its proxies as a whole.
    fn encode_state(
        &self,
        families: &mut Families<'_>,
        connected: usize,
    ) -> Result<(), std::fmt::Error> {
        let inactive_resources = self.feeds.inactive_resources.borrow();
        let nacked: usize = inactive_resources.values().map(|one| one.nacked.len()).sum();
        let withheld: usize = inactive_resources.values().map(|one| one.withheld.len()).sum();
        drop(inactive_resources);
        let is_shown = |finding: &&Finding| !is_hidden(finding, &self.silences);
        // (A copy shares its structure. The reconciler must not wait for a scrape.)
        let of_mesh = self.feeds.mesh_findings.borrow().clone();
        let of_state = self.state_findings.borrow().clone();
        let mesh_findings = of_mesh.iter().chain(&of_state).filter(is_shown).count();
        let of_proxies = self.feeds.findings.borrow();
        let proxy_findings = of_proxies.values().flatten().filter(is_shown).count();
        drop(of_proxies);
        let is_ready = usize::from(*self.feeds.ready.borrow());
        families.gauge("ready", "Whether xDS is served", is_ready)?;
        let enrolled = self.register.records().len();
        families.gauge("proxies_enrolled", "Enrolled proxies that are in use", enrolled)?;
        families.gauge("proxies_connected", "Proxies with a stream", connected)?;
        families.gauge("xds_streams", "Open xDS streams", self.hub.open_streams())?;
        let help = "Whether the policy source holds a revision that is not active";
        let is_stale = self.policy.borrow().view.stale_since.is_some();
        families.gauge("policy_stale", help, usize::from(is_stale))?;
        families.gauge("resources_nacked", "Resources that proxies NACK", nacked)?;
        let help = "Resources withheld from proxies because others NACK them";
        families.gauge("resources_withheld", help, withheld)?;
        let help = "Findings about the mesh as a whole, and the state of the control plane, that are not silenced";
        families.gauge("mesh_findings", help, mesh_findings)?;
        let help = "Findings about what single proxies request that are not silenced";
        families.gauge("proxy_findings", help, proxy_findings)
    }
}
