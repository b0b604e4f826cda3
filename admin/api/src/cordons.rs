//! The JSON types of cordons: an operator takes a proxy out of service, and returns it.

use std::fmt;

use ironmesh_catalog::network_address;
use ironmesh_catalog::{Cordon, CordonMode, MachineDrainState, ProxyId, ProxyName, ServicePort};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most laggards that a [`CordonResult`] names.
pub const MAX_CORDON_LAGGARDS: usize = 20;

/// The body of a request to cordon, drain or uncordon the proxy that its path names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CordonRequest {
    /// The reason, shown wherever the cordon is: one line of at most [`crate::MAX_REASON`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Whether to predict the effects, and to change nothing.
    #[serde(default)]
    pub dry_run: bool,
}

/// What an operator does with a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CordonChange {
    /// Callers send it no new requests.
    Cordon,
    /// The same, and its machine is drained.
    Drain,
    /// It returns to service.
    Uncordon,
}

impl CordonChange {
    /// The last part of the path of the request.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Cordon => "cordon",
            Self::Drain => "drain",
            Self::Uncordon => "uncordon",
        }
    }
}

/// The cordon of a proxy, on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CordonView {
    /// How far the proxy is out of service.
    pub mode: CordonMode,
    /// Since when callers send it no new requests.
    pub since: Timestamp,
    /// Who made the latest change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that the operator gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// When the drain was ordered; none of a cordon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drain_since: Option<Timestamp>,
    /// How far its machine is with the drain, as its agent reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineDrainState>,
    /// Since when its machine is in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_since: Option<Timestamp>,
}

impl From<Cordon> for CordonView {
    fn from(cordon: Cordon) -> Self {
        let (mode, drain) = (cordon.mode(), cordon.drain);
        let machine = drain.as_ref().and_then(|drain| drain.machine);
        Self {
            mode,
            since: cordon.since,
            by: cordon.by,
            reason: cordon.reason,
            drain_since: drain.map(|drain| drain.since),
            machine: machine.map(|machine| machine.state),
            machine_since: machine.map(|machine| machine.since),
        }
    }
}

impl fmt::Display for CordonView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Seconds are precise enough for people.
        write!(f, "{} since {:.0}", self.mode.participle(), self.since)?;
        self.by.iter().try_for_each(|by| write!(f, " by {by}"))?;
        self.reason.iter().try_for_each(|reason| write!(f, ": {reason}"))
    }
}

/// The program that runs the Envoy of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MachineKind {
    /// The agent of its machine, which drains it when it is ordered to.
    Agent,
    /// The agent of its machine, which is of an earlier version, and knows no such orders.
    OlderAgent,
    /// A person, or a program that Ironmesh does not know.
    ByHand,
    /// It is not known: the proxy has never connected.
    #[serde(other)]
    Unknown,
}

/// The result of a cordon, a drain or their end, or its prediction.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct CordonResult {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// Whether nothing was changed, because the request only asked for a prediction.
    pub dry_run: bool,
    /// Whether the proxy was in this state before the request.
    pub is_old: bool,
    /// Its cordon; none if it is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<CordonView>,
    /// The cordon that an uncordon ends: a drained machine has to return.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<CordonView>,
    /// Whether every connected caller has ACKed the cordon.
    pub acked: bool,
    /// The callers at this control plane that have not, at most [`MAX_CORDON_LAGGARDS`].
    #[serde(default)]
    pub laggards: Vec<ProxyName>,
    /// The count of further laggards.
    #[serde(default)]
    pub more_laggards: usize,
    /// The host names of the other control planes of which some caller has not ACKed it.
    #[serde(default)]
    pub pending_control_planes: Vec<String>,
    /// Whether the proxy is connected to a control plane.
    pub connected: bool,
    /// What runs its Envoy.
    pub machine: MachineKind,
    /// In how many seconds the agent of its machine learns of the change, at most; none without an agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent_learns_in_seconds: Option<u64>,
    /// The address that callers dial.
    #[schema(value_type = network_address::SocketAddress)]
    pub mesh_address: std::net::SocketAddr,
    /// The service ports for which callers dialled the proxy at the time of the request.
    #[serde(default)]
    pub endpoints: Vec<ServicePort>,
    /// Those of them without any other available endpoint.
    #[serde(default)]
    pub without_endpoint: Vec<ServicePort>,
}
