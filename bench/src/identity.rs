//! The identity of a client, from a folder of `ironmesh proxy bootstrap`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use bytes::Bytes;
use ironmesh_catalog::TrustBundle;
use ironmesh_cert::{SpiffeServerVerifier, tls};
use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::Value;

use crate::messages::Variant;
use crate::node;

/// The identity of one client.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Its node id.
    pub id: String,
    /// Its node cluster, which is its service.
    pub cluster: String,
    /// The address of the control plane in its bootstrap.
    pub control_plane: SocketAddr,
    /// Its node metadata.
    pub metadata: Value,
    /// Its zone.
    pub zone: String,
    tls: Arc<ClientConfig>,
}

impl Identity {
    /// Reads the identity in `folder`. The server's certificate is verified with `roots`, otherwise with those in the
    /// folder.
    pub fn read(folder: &Path, roots: Option<&str>) -> anyhow::Result<Self> {
        let read = |name: &str| fs_err::read_to_string(folder.join(name));
        let bootstrap: Value = serde_json::from_str(&read("envoy.yaml")?)?;
        let text = |pointer: &str| {
            let text = bootstrap.pointer(pointer).and_then(Value::as_str);
            text.map(ToOwned::to_owned).with_context(|| format!("its envoy.yaml has no {pointer}"))
        };
        let address = bootstrap.pointer(
            "/static_resources/clusters/0/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address",
        );
        let address = address.context("its envoy.yaml names no control plane")?;
        let host = address.get("address").and_then(Value::as_str).unwrap_or_default();
        let port = address.get("port_value").and_then(Value::as_u64).unwrap_or_default();
        let roots = roots.map_or_else(|| read("ca.crt"), |roots| Ok(roots.to_owned()))?;
        Ok(Self {
            id: text("/node/id")?,
            cluster: text("/node/cluster")?,
            control_plane: format!("{host}:{port}")
                .parse()
                .with_context(|| format!("the control plane has no IP address: {host}"))?,
            metadata: bootstrap.pointer("/node/metadata/ironmesh").cloned().unwrap_or_default(),
            zone: String::new(),
            tls: client_tls(&read("proxy.crt")?, &read("proxy.key")?, &roots)?,
        })
    }

    pub(crate) fn node(&self, variant: Variant) -> [Bytes; 2] {
        node::field(variant, &self.id, &self.cluster, &self.zone, &self.metadata)
    }

    pub(crate) fn tls(&self) -> &Arc<ClientConfig> {
        &self.tls
    }
}

/// The folders of `proxy bootstrap --count` below `folder`, in order.
pub fn folders(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut folders = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path.join("envoy.yaml").exists() {
            folders.push(path);
        }
    }
    folders.sort();
    Ok(folders)
}

/// TLS as in Envoy's bootstrap: version 1.3 with a client certificate, for HTTP/2.
fn client_tls(chain: &str, key: &str, roots: &str) -> anyhow::Result<Arc<ClientConfig>> {
    let trusted = tls::roots(&TrustBundle { roots: roots.to_owned() })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<_, _>>()?;
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(SpiffeServerVerifier::any(trusted)))
        .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    // Envoy does not resume its sessions with a control plane either.
    config.resumption = rustls::client::Resumption::disabled();
    Ok(Arc::new(config))
}
