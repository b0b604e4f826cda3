//! One reading of Envoy's statistics: totals since its start, by service port.
//!
//! Tried on Envoy 1.40: the statistics of responses count each request once, also if it is retried, and have the responses
//! that Envoy gives in place of a server. With `usedonly`, what was never counted is omitted. The buckets of `detailed` are
//! those of the histogram itself, of two digits, and are as old as the last flush (5 s).

use std::collections::BTreeMap;
use std::time::Duration;

use ironmesh_agent_envoy::local_http::LocalAddress;
use ironmesh_catalog::{ServicePort, TrafficCounts};
use serde::Deserialize;

use crate::status::{LocalRequestError, ServerInfo, get_both};

/// `^cluster\.[^.]*\|[0-9]+(\|local)?\.upstream_(rq_([2345]xx|completed|active|pending_active|time)|cx_(total|connect_fail|[tr]x_bytes_total))$`
const PATH: &str = "/stats?format=json&usedonly&histogram_buckets=detailed&filter=%5Ecluster%5C.%5B%5E.%5D*%5C%7C%5B0-9%5D%2B(%5C%7Clocal)%3F%5C.upstream_(rq_(%5B2345%5Dxx%7Ccompleted%7Cactive%7Cpending_active%7Ctime)%7Ccx_(total%7Cconnect_fail%7C%5Btr%5Dx_bytes_total))%24";

/// The most bytes of a response. A busy service port takes less than 20 kB.
const MAX_BODY: usize = 16 << 20;

/// The end of the name of a cluster that leads to the application behind the proxy (docs/reference/names.md).
const LOCAL: &str = "|local";

/// The traffic of one direction at one service port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Flow {
    /// What the proxy receives at its own service port, of all callers.
    Inbound(ServicePort),
    /// Its calls to a service port.
    Outbound(ServicePort),
    /// Its calls to all service ports beyond a bound.
    OutboundOther,
}

impl Flow {
    fn of_cluster(cluster: &str) -> Option<Self> {
        match cluster.strip_suffix(LOCAL) {
            Some(port) => port.parse().ok().map(Self::Inbound),
            None => cluster.parse().ok().map(Self::Outbound),
        }
    }
}

/// The totals of a flow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) counts: TrafficCounts,
    pub(super) in_flight: u64,
}

/// One reading.
#[derive(Debug, Default)]
pub(super) struct Statistics {
    /// How many hot restarts led to this Envoy.
    pub(super) epoch: u32,
    /// How long this Envoy has run, in whole seconds.
    pub(super) uptime: Duration,
    pub(super) flows: BTreeMap<Flow, Totals>,
}

#[derive(Debug, Deserialize)]
struct Response {
    #[serde(default)]
    stats: Vec<Entry>,
}

/// A counter or a gauge; or all histograms, as the last entry.
#[derive(Debug, Deserialize)]
struct Entry {
    #[serde(default)]
    name: String,
    #[serde(default)]
    value: u64,
    #[serde(default)]
    histograms: Option<Histograms>,
}

#[derive(Debug, Deserialize)]
struct Histograms {
    #[serde(default)]
    details: Vec<Histogram>,
}

#[derive(Debug, Deserialize)]
struct Histogram {
    name: String,
    totals: Vec<Bucket>,
}

/// A bucket of a histogram, in milliseconds.
#[derive(Debug, Deserialize)]
struct Bucket {
    lower_bound: f64,
    count: u64,
}

impl Statistics {
    /// Reads them.
    pub(super) async fn read(admin: &LocalAddress) -> Result<Self, LocalRequestError> {
        let [info, statistics] = get_both(admin, [ServerInfo::PATH, PATH], MAX_BODY).await?;
        let invalid = |error| LocalRequestError::invalid(admin, &error);
        let info: ServerInfo = serde_json::from_slice(info.as_ref()).map_err(invalid)?;
        Ok(Self {
            epoch: info.epoch(),
            uptime: Duration::from_secs(info.uptime_seconds()),
            flows: parse(statistics.as_ref()).map_err(invalid)?,
        })
    }
}

/// The totals in a response of Envoy.
pub(super) fn parse(response: &[u8]) -> Result<BTreeMap<Flow, Totals>, serde_json::Error> {
    let response: Response = serde_json::from_slice(response)?;
    let mut flows: BTreeMap<Flow, Totals> = BTreeMap::new();
    for entry in response.stats {
        if let Some((flow, statistic)) = name_parts(&entry.name) {
            add(flows.entry(flow).or_default(), statistic, entry.value);
        }
        for histogram in entry.histograms.into_iter().flat_map(|all| all.details) {
            if let Some((flow, "upstream_rq_time")) = name_parts(&histogram.name) {
                let latency = &mut flows.entry(flow).or_default().counts.latency;
                for bucket in histogram.totals {
                    latency.record(whole_milliseconds(bucket.lower_bound), bucket.count);
                }
            }
        }
    }
    Ok(flows)
}

/// The flow and the statistic of `cluster.<name>.<statistic>`.
fn name_parts(name: &str) -> Option<(Flow, &str)> {
    let (cluster, statistic) = name.strip_prefix("cluster.")?.rsplit_once('.')?;
    Some((Flow::of_cluster(cluster)?, statistic))
}

fn add(totals: &mut Totals, statistic: &str, value: u64) {
    let Totals { counts, in_flight } = totals;
    match statistic {
        "upstream_rq_completed" => counts.requests = value,
        "upstream_rq_2xx" => counts.responses_2xx = value,
        "upstream_rq_3xx" => counts.responses_3xx = value,
        "upstream_rq_4xx" => counts.responses_4xx = value,
        "upstream_rq_5xx" => counts.responses_5xx = value,
        "upstream_cx_total" => counts.connections = value,
        "upstream_cx_connect_fail" => counts.connect_failures = value,
        "upstream_cx_tx_bytes_total" => counts.bytes_sent = value,
        "upstream_cx_rx_bytes_total" => counts.bytes_received = value,
        "upstream_rq_active" | "upstream_rq_pending_active" => {
            *in_flight = in_flight.saturating_add(value);
        }
        _ => {}
    }
}

/// The whole number in a lower bound. Envoy counts whole milliseconds.
fn whole_milliseconds(lower_bound: f64) -> u64 {
    let bound = Duration::try_from_secs_f64(lower_bound / 1000.0).unwrap_or_default();
    u64::try_from(bound.as_millis()).unwrap_or(u64::MAX)
}
