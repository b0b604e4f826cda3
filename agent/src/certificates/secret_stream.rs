//! The state of one delta SDS stream, without sockets (xDS protocol, "Incremental xDS").
//!
//! It only ever adds: it sends a secret once there is a certificate, and again when there is a newer one. It sends no empty
//! response and no removal.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ironmesh_catalog::ServiceSecret;
use ironmesh_xds_wire::any;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{DataSource, data_source::Specifier};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    Secret, TlsCertificate, secret,
};
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};

use super::table::CertificateTable;
use super::workload_identity::WorkloadIdentity;

/// The type URL of secrets.
const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";

/// The most bytes of Envoy's words that are logged.
const MAX_NACK: usize = 1000;

/// The state of a stream. Its subscriptions end when it is dropped.
#[derive(Debug)]
pub(super) struct SecretStream {
    table: Arc<CertificateTable>,
    /// The version that the client has or was offered, by secret. A version is the digest of the leaf.
    subscriptions: BTreeMap<ServiceSecret, Option<String>>,
    responses: u64,
}

impl SecretStream {
    pub(super) fn new(table: Arc<CertificateTable>) -> Self {
        Self { table, subscriptions: BTreeMap::new(), responses: 0 }
    }

    /// Takes a request: subscriptions, and an ACK or NACK. A NACKed version is not offered again on this stream.
    pub(super) fn receive(&mut self, request: DeltaDiscoveryRequest) {
        if let Some(error) = request.error_detail {
            let words: String = error.message.chars().take(MAX_NACK).collect();
            self.table.nacked(&words);
        }
        let initial = request.initial_resource_versions;
        for name in request.resource_names_subscribe {
            self.subscribe(&name, &initial);
        }
        for name in request.resource_names_unsubscribe {
            let Ok(secret) = name.parse() else { continue };
            if self.subscriptions.remove(&secret).is_some() {
                self.table.unsubscribe(&secret);
            }
        }
    }

    /// A repeated subscription is answered again, unless the client states its version.
    fn subscribe(&mut self, name: &str, initial: &HashMap<String, String>) {
        let secret: ServiceSecret = match name.parse() {
            Ok(secret) => secret,
            Err(error) => {
                let action = "it is not answered";
                tracing::warn!(reason = %error, action, "Envoy asks for an unknown secret");
                return;
            }
        };
        let is_new = !self.subscriptions.contains_key(&secret);
        if is_new && !self.table.subscribe(&secret) {
            let action = "it is not answered";
            tracing::warn!(%secret, action, "Envoy asks for too many secrets");
            return;
        }
        self.subscriptions.insert(secret, initial.get(name).cloned());
    }

    /// The response with the certificates that the client has not; none if there are none.
    pub(super) fn respond(&mut self) -> Option<DeltaDiscoveryResponse> {
        let mut resources = Vec::new();
        for (secret, version) in &mut self.subscriptions {
            let Some(held) = self.table.held(secret) else { continue };
            if version.as_ref() != Some(&held.leaf.digest) {
                *version = Some(held.leaf.digest.clone());
                resources.push(resource(&held));
            }
        }
        if resources.is_empty() {
            return None;
        }
        self.responses += 1;
        Some(DeltaDiscoveryResponse {
            resources,
            type_url: SECRET.to_owned(),
            nonce: self.responses.to_string(),
            ..DeltaDiscoveryResponse::default()
        })
    }
}

impl Drop for SecretStream {
    fn drop(&mut self) {
        for secret in self.subscriptions.keys() {
            self.table.unsubscribe(secret);
        }
    }
}

fn resource(held: &WorkloadIdentity) -> Resource {
    let name = held.secret.to_string();
    let certificate = TlsCertificate {
        certificate_chain: Some(inline(&held.chain)),
        private_key: Some(inline(held.key.expose())),
        ..TlsCertificate::default()
    };
    let secret =
        Secret { name: name.clone(), r#type: Some(secret::Type::TlsCertificate(certificate)) };
    let version = held.leaf.digest.clone();
    Resource { name, version, resource: Some(any(&secret)), ..Resource::default() }
}

fn inline(text: &str) -> DataSource {
    let specifier = Some(Specifier::InlineString(text.to_owned()));
    DataSource { specifier, ..DataSource::default() }
}
