//! The client of Envoy's admin interface: state, connections and drain.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;

use crate::local_http::{self, LocalAddress, LocalHttpError};
use crate::release::version_in_build;

/// The time limit of a request.
const LIMIT: Duration = Duration::from_secs(5);

/// The path that closes inbound listeners to new work, without a 503 and without closing ports.
const DRAIN: &str = "/drain_listeners?inboundonly&graceful&skip_exit";

/// The parts of `/config_dump` with listeners. They are read whole: masks reach no field of a listener that came by xDS.
const LISTENERS: [&str; 2] = ["static_listeners", "dynamic_listeners"];

/// Envoy gave no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EnvoyAdminError {
    #[error("Envoy's admin interface failed")]
    Http(#[from] LocalHttpError),
    #[error("Envoy's admin interface has not answered within {} s", LIMIT.as_secs())]
    Timeout,
    #[error("Envoy's admin interface sent an unknown answer")]
    Content(#[from] serde_json::Error),
}

/// A part of `/server_info`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ServerInfo {
    version: String,
    state: String,
    pub(crate) hot_restart_version: String,
    command_line_options: CommandLineOptions,
}

#[derive(Debug, Clone, Deserialize)]
struct CommandLineOptions {
    base_id: String,
    restart_epoch: u32,
}

impl ServerInfo {
    pub(crate) fn is_live(&self) -> bool {
        self.state == "LIVE"
    }

    /// Whether it is that of the Envoy with this base id and epoch.
    pub(crate) fn is_of(&self, base_id: u32, epoch: u32) -> bool {
        let options = &self.command_line_options;
        options.restart_epoch == epoch && options.base_id.parse() == Ok(base_id)
    }

    /// The version, without commit and kind of build.
    pub(crate) fn release(&self) -> String {
        let release = version_in_build(&self.version);
        release.map_or_else(|| self.version.clone(), |release| release.to_string())
    }
}

/// The client.
#[derive(Debug, Clone)]
pub(crate) struct EnvoyAdmin {
    address: LocalAddress,
}

impl EnvoyAdmin {
    pub(crate) fn new(address: &LocalAddress) -> Self {
        Self { address: address.clone() }
    }

    async fn request(&self, method: Method, path: &str) -> Result<Bytes, EnvoyAdminError> {
        let answer = timeout(LIMIT, local_http::exchange(&self.address, method, path)).await;
        Ok(answer.map_err(|_| EnvoyAdminError::Timeout)??)
    }

    pub(crate) async fn server_info(&self) -> Result<ServerInfo, EnvoyAdminError> {
        Ok(serde_json::from_slice(&self.request(Method::GET, "/server_info").await?)?)
    }

    /// Whether Envoy is connected to its control plane. `None` if it has none. (Streams to the agent have a counter of their
    /// own, with a prefix.)
    pub(crate) async fn is_connected(&self) -> Result<Option<bool>, EnvoyAdminError> {
        let stats = self.stats("^control_plane\\.connected_state$").await?;
        Ok(stats.first().map(|(_, value)| *value > 0))
    }

    /// Begins the drain of the inbound listeners.
    pub(crate) async fn drain_inbound(&self) -> Result<(), EnvoyAdminError> {
        self.request(Method::POST, DRAIN).await.map(drop)
    }

    /// The inbound listeners.
    pub(crate) async fn inbound_listeners(&self) -> Result<InboundListeners, EnvoyAdminError> {
        let mut inbound = InboundListeners::default();
        for resource in LISTENERS {
            let path = format!("/config_dump?resource={resource}");
            let dump = self.request(Method::GET, &path).await?;
            inbound.add(&serde_json::from_slice(&dump)?);
        }
        Ok(inbound)
    }

    /// The work that is left at these listeners: connections that are not HTTP, and HTTP requests.
    pub(crate) async fn work_of(
        &self,
        inbound: &InboundListeners,
    ) -> Result<InboundWork, EnvoyAdminError> {
        let stats = self.stats("downstream_(cx|rq)_active$").await?;
        Ok(inbound.work(&stats))
    }

    /// The number of connections that are not HTTP, to all listeners.
    pub(crate) async fn tcp_connections(&self) -> Result<u64, EnvoyAdminError> {
        let stats = self.stats("downstream_cx_active$").await?;
        Ok(tcp_connections(&stats))
    }

    /// The counters and gauges whose names match a regular expression.
    async fn stats(&self, filter: &str) -> Result<Vec<(String, u64)>, EnvoyAdminError> {
        let filter = percent_encoded(filter);
        let text = self.request(Method::GET, &format!("/stats?filter={filter}")).await?;
        let text = String::from_utf8_lossy(&text);
        let stats = text.lines().filter_map(|line| line.rsplit_once(": "));
        Ok(stats.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect())
    }
}

/// A text as part of a query.
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        // Writing to a `String` never fails.
        let _ = write!(encoded, "%{byte:02X}");
        encoded
    })
}

/// The inbound listeners, by their names in Envoy's stats.
#[derive(Debug, Default)]
pub(crate) struct InboundListeners {
    listeners: BTreeSet<String>,
    /// The stat prefixes of their HTTP connection managers.
    http: BTreeSet<String>,
}

/// What the peers of the inbound listeners still use. An idle HTTP connection is not work: Envoy tells its peer of the
/// drain only with the next response, and after the callers' ACKs there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InboundWork {
    pub(crate) tcp_connections: u64,
    pub(crate) http_requests: u64,
}

impl InboundListeners {
    fn add(&mut self, dump: &Value) {
        let configs = dump.get("configs").and_then(Value::as_array).into_iter().flatten();
        let listeners = configs.flat_map(|config| {
            let states = ["/listener", "/active_state/listener", "/draining_state/listener"];
            states.map(|state| config.pointer(state)).into_iter().flatten()
        });
        let is_inbound = |listener: &&Value| {
            listener.get("traffic_direction").is_some_and(|one| one == "INBOUND")
        };
        for listener in listeners.filter(is_inbound) {
            self.listeners.extend(name_in_stats(listener));
            self.http.extend(http_prefixes(listener));
        }
    }

    fn work(&self, stats: &[(String, u64)]) -> InboundWork {
        let sum = |is_ours: &dyn Fn(&str) -> bool| -> u64 {
            stats.iter().filter(|(name, _)| is_ours(name)).map(|(_, value)| *value).sum()
        };
        let of_http = |name: &str, gauge| {
            let prefix = name.strip_prefix("http.").and_then(|name| name.strip_suffix(gauge));
            prefix.is_some_and(|prefix| self.http.contains(prefix))
        };
        let connections =
            sum(&|name| listener_of_stat(name).is_some_and(|one| self.listeners.contains(one)));
        let of_http_connections = sum(&|name| of_http(name, ".downstream_cx_active"));
        InboundWork {
            tcp_connections: connections.saturating_sub(of_http_connections),
            http_requests: sum(&|name| of_http(name, ".downstream_rq_active")),
        }
    }
}

/// The stat prefixes of the HTTP connection managers of a listener.
fn http_prefixes(listener: &Value) -> impl Iterator<Item = String> {
    let chains = listener.get("filter_chains").and_then(Value::as_array).into_iter().flatten();
    let chains = chains.chain(listener.get("default_filter_chain"));
    let filters = chains.filter_map(|chain| chain.get("filters")?.as_array()).flatten();
    filters.filter_map(|filter| {
        let config = filter.get("typed_config")?;
        let kind = config.get("@type")?.as_str()?;
        let prefix = config.get("stat_prefix")?.as_str()?;
        kind.ends_with(".HttpConnectionManager").then(|| prefix.to_owned())
    })
}

/// `stat_prefix`, or the address with `_` in place of each colon: `10.0.0.5_15003`, `[fd00__1]_15003`.
fn name_in_stats(listener: &Value) -> Option<String> {
    if let Some(prefix) = listener.get("stat_prefix").and_then(Value::as_str) {
        return Some(prefix.to_owned());
    }
    let address = listener.pointer("/address/socket_address")?;
    let (host, port) = (address.get("address")?.as_str()?, address.get("port_value")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Some(format!("{host}_{port}").replace(':', "_"))
}

/// The listener of a gauge `listener.NAME.downstream_cx_active`; `None` for those of workers and of the admin
/// interface, and of internal listeners, whose connections are also those of another listener.
fn listener_of_stat(name: &str) -> Option<&str> {
    let name = name.strip_prefix("listener.")?.strip_suffix(".downstream_cx_active")?;
    let is_part = name.contains(".worker_") || name.ends_with(".main_thread");
    (!is_part && name != "admin" && !name.starts_with(['@', '/'])).then_some(name)
}

fn tcp_connections(stats: &[(String, u64)]) -> u64 {
    let all = stats.iter().filter(|(name, _)| listener_of_stat(name).is_some());
    let http = stats
        .iter()
        .filter(|(name, _)| name.starts_with("http.") && !name.starts_with("http.admin."));
    let sum = |(_, value): &(String, u64)| *value;
    all.map(sum).sum::<u64>().saturating_sub(http.map(sum).sum())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn inbound_listeners_have_the_names_of_stats() {
        let listener = |direction: &str, host: &str| {
            let address = json!({ "socket_address": { "address": host, "port_value": 15003 } });
            json!({ "address": address, "traffic_direction": direction })
        };
        let dump = json!({ "configs": [
            { "listener": listener("INBOUND", "10.0.0.5") },
            { "active_state": { "listener": listener("INBOUND", "fd00::1") } },
            { "active_state": { "listener": listener("OUTBOUND", "127.0.0.1") } },
            { "active_state": { "listener": { "address": { "pipe": {} }, "traffic_direction": "INBOUND" } } },
        ]});
        let mut inbound = InboundListeners::default();
        inbound.add(&dump);
        assert_eq!(inbound.listeners, names(["10.0.0.5_15003", "[fd00__1]_15003"]));
    }

    fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
        names.map(str::to_owned).into()
    }

    #[test]
    fn idle_http_connections_are_no_work() {
        let manager = json!({ "stat_prefix": "inbound_web", "@type": "type.googleapis.com/v3.HttpConnectionManager" });
        let tcp =
            json!({ "stat_prefix": "inbound_sql", "@type": "type.googleapis.com/v3.TcpProxy" });
        let chain = |filter: &Value| json!({ "filters": [{ "typed_config": filter }] });
        let listener = json!({
            "address": { "socket_address": { "address": "10.0.0.5", "port_value": 15003 } },
            "traffic_direction": "INBOUND",
            "filter_chains": [chain(&manager), chain(&tcp)],
        });
        let mut inbound = InboundListeners::default();
        inbound.add(&json!({ "configs": [{ "active_state": { "listener": listener } }] }));
        assert_eq!(inbound.http, names(["inbound_web"]));
        let stats = [
            ("listener.10.0.0.5_15003.downstream_cx_active", 5),
            ("listener.127.0.0.1_5432.downstream_cx_active", 2),
            ("http.inbound_web.downstream_cx_active", 4),
            ("http.inbound_web.downstream_rq_active", 3),
            ("http.outbound.downstream_rq_active", 7),
        ];
        let work = inbound.work(&stats.map(|(name, value)| (name.to_owned(), value)));
        assert_eq!(work, InboundWork { tcp_connections: 1, http_requests: 3 });
    }

    #[test]
    fn tcp_connections_are_those_without_http() {
        let stats = [
            ("listener.10.0.0.5_15003.downstream_cx_active", 5),
            ("listener.10.0.0.5_15003.worker_0.downstream_cx_active", 5),
            ("listener.127.0.0.1_5432.downstream_cx_active", 2),
            ("listener.@ironmesh/id/0/80.downstream_cx_active", 1),
            ("listener.admin.downstream_cx_active", 1),
            ("http.web.downstream_cx_active", 4),
            ("http.admin.downstream_cx_active", 1),
        ];
        assert_eq!(tcp_connections(&stats.map(|(name, value)| (name.to_owned(), value))), 3);
    }
}
