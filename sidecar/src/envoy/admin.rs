//! Envoy's admin interface, which can change and show everything, so only Envoy's own user reaches it. A separate listener
//! offers the parts that other local users may read.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::bootstrap::{Bootstrap, socket};
use crate::Admin;

/// The name of the socket in the folder of the bootstrap.
const SOCKET: &str = "admin.sock";

/// The mode of the socket: 0600. (Envoy reads it as a decimal number.)
const MODE: u32 = 0o600;

/// The longest path of a Unix socket on Linux in bytes, without its terminating zero.
const MAX_PATH_BYTES: usize = 107;

/// The cluster of the admin interface.
const CLUSTER: &str = "ironmesh-admin";

/// The cluster of the agent.
const AGENT_CLUSTER: &str = "ironmesh-agent";

/// The paths that other local users may read.
const READABLE: [&str; 2] = ["/stats/prometheus", "/ready"];

/// The path of Envoy's admin socket in the folder of its proxy.
pub fn admin_socket(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

/// The path of the agent's socket for the proxy in `folder`: beside the folder, because the agent runs before it exists.
/// Its path is as long as that of Envoy's admin socket. Without an agent, Envoy answers 503.
pub fn agent_socket(folder: &Path) -> PathBuf {
    let mut name = folder.file_name().unwrap_or_default().to_owned();
    name.push(".agent.sock");
    folder.with_file_name(name)
}

/// The path of Envoy's admin socket is longer than Linux allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the path of Envoy's admin socket would have {length} bytes, and Linux allows {MAX_PATH_BYTES}: `{path}`; \
     choose a shorter folder, or `--admin-tcp`"
)]
pub struct AdminSocketPathTooLong {
    path: PathBuf,
    length: usize,
}

/// Fails if the path of Envoy's admin socket in `folder` is too long.
pub fn check_admin_socket_path(folder: &Path) -> Result<(), AdminSocketPathTooLong> {
    let path = folder.join(SOCKET);
    let length = path.as_os_str().len();
    if length > MAX_PATH_BYTES { Err(AdminSocketPathTooLong { path, length }) } else { Ok(()) }
}

/// A route of the metrics listener, for GET of one whole path.
fn route(path: &str, action: &Value) -> Value {
    json!({
        "match": {
            "path": path,
            "headers": [{ "name": ":method", "string_match": { "exact": "GET" } }],
        },
        "route": action,
    })
}

/// A cluster of one endpoint on this machine.
pub(super) fn local_cluster(name: &str, address: &Value) -> Value {
    json!({
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address } }] }],
        },
    })
}

impl Bootstrap<'_> {
    pub(super) fn admin_address(&self) -> Value {
        match self.workload.admin {
            Admin::Socket => json!({ "pipe": { "path": self.path(SOCKET), "mode": MODE } }),
            Admin::Tcp => self.local_socket(self.ports.admin),
        }
    }

    pub(super) fn admin_cluster(&self) -> Value {
        let mut address = self.admin_address();
        // Only the process that creates the socket sets its mode.
        if let Some(pipe) = address.get_mut("pipe").and_then(Value::as_object_mut) {
            pipe.remove("mode");
        }
        local_cluster(CLUSTER, &address)
    }

    /// The cluster of the agent; none if the path of its socket is too long.
    pub(super) fn agent_cluster(&self) -> Option<Value> {
        let path = agent_socket(&self.workload.folder);
        let fits = path.as_os_str().len() <= MAX_PATH_BYTES;
        fits.then(|| local_cluster(AGENT_CLUSTER, &json!({ "pipe": { "path": path } })))
    }

    fn local_socket(&self, port: u16) -> Value {
        socket(&self.workload.local_address().to_string(), port)
    }

    /// The listener for the readable paths, and for nothing else: it matches whole paths and only the method GET.
    pub(super) fn metrics_listener(&self) -> Value {
        let of_envoy = READABLE.map(|path| route(path, &json!({ "cluster": CLUSTER })));
        let of_agent = self.agent_cluster().map(|_| {
            let action = json!({ "cluster": AGENT_CLUSTER, "prefix_rewrite": "/metrics" });
            route("/agent/metrics", &action)
        });
        let routes: Vec<_> = of_envoy.into_iter().chain(of_agent).collect();
        json!({
            "name": "ironmesh-metrics",
            "address": self.local_socket(self.ports.metrics),
            "filter_chains": [{ "filters": [{
                "name": "envoy.filters.network.http_connection_manager",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                    "stat_prefix": "ironmesh_metrics",
                    "codec_type": "HTTP1",
                    "common_http_protocol_options": { "idle_timeout": "60s" },
                    "request_headers_timeout": "10s",
                    "request_timeout": "15s",
                    "http_filters": [{
                        "name": "envoy.filters.http.router",
                        "typed_config": {
                            "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
                        },
                    }],
                    "route_config": { "virtual_hosts": [{
                        "name": "metrics",
                        "domains": ["*"],
                        "routes": routes,
                    }]},
                },
            }]}],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_path_has_at_most_107_bytes() {
        // `/` and `/admin.sock` are 12 bytes.
        let folder = |length: usize| PathBuf::from(format!("/{}", "x".repeat(length - 12)));
        assert_eq!(check_admin_socket_path(&folder(107)), Ok(()));
        let error = check_admin_socket_path(&folder(108)).unwrap_err().to_string();
        assert!(error.contains("108 bytes") && error.contains("--admin-tcp"), "{error}");
    }
}
