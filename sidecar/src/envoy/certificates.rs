//! How Envoy reaches the agent for its service certificates: a socket that only Envoy's user may open.

use std::path::{Path, PathBuf};

use ironmesh_catalog::CertificateSource;
use serde_json::{Value, json};

use super::CERTIFICATES_CLUSTER;
use super::admin::local_cluster;
use super::bootstrap::Bootstrap;

/// The name of the socket in the folder of the proxy. It is shorter than that of the admin socket, whose path is checked.
const SOCKET: &str = "sds.sock";

/// The path of the socket at which the agent serves the certificates of the proxy in `folder`.
pub fn certificates_socket(folder: &Path) -> PathBuf {
    folder.join(SOCKET)
}

impl Bootstrap<'_> {
    /// The cluster of the agent for certificates, if the proxy gets them from there.
    pub(super) fn certificates_cluster(&self) -> Option<Value> {
        let is_agent = self.workload.metadata.certificates == CertificateSource::Agent;
        is_agent.then(|| {
            let path = certificates_socket(&self.workload.folder);
            let mut cluster =
                local_cluster(CERTIFICATES_CLUSTER, &json!({ "pipe": { "path": path } }));
            if let Some(fields) = cluster.as_object_mut() {
                fields.insert(
                    "typed_extension_protocol_options".to_owned(),
                    json!({ "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                        "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                        "explicit_http_config": { "http2_protocol_options": {} },
                    }}),
                );
            }
            cluster
        })
    }
}
