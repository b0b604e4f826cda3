//! SPIFFE identities of the mesh. Their paths are fixed (docs/reference/names.md) and differ per purpose, so
//! that a certificate of one kind can never be taken for another.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::{Domain, InvalidName, Name, ServiceAccount, ServiceName};
use crate::proxy::ProxyId;

/// The root of all identities of one mesh: the host part of every SPIFFE ID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustDomain(Domain);

impl TrustDomain {
    /// The trust domain of that name.
    pub fn new(domain: Domain) -> Self {
        Self(domain)
    }

    /// The trust domain as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The trust domain of a SPIFFE ID.
    pub fn of(uri: &str) -> Option<Self> {
        uri.strip_prefix("spiffe://")?.split('/').next()?.parse().ok()
    }

    /// `spiffe://<trust domain>/ns/<namespace>/sa/<account>`: what a peer's certificate says.
    pub fn workload(&self, account: &ServiceAccount) -> SpiffeId {
        self.id(&format!("ns/{}/sa/{}", account.namespace, account.name))
    }

    /// What every [`TrustDomain::workload`] begins with, and no other identity of the mesh.
    pub fn workload_prefix(&self) -> String {
        format!("spiffe://{}/ns/", self.0)
    }

    /// `spiffe://<trust domain>/control-plane`: what an Envoy pins when it connects to us.
    pub fn control_plane(&self) -> ControlPlaneId {
        ControlPlaneId(self.id("control-plane"))
    }

    /// `spiffe://<trust domain>/proxy/<uuid>/ns/<namespace>/svc/<service>`.
    pub fn proxy(&self, proxy: ProxyId, first_service: &ServiceName) -> SpiffeId {
        let ServiceName { namespace, name } = first_service;
        self.id(&format!("proxy/{proxy}/ns/{namespace}/svc/{name}"))
    }

    fn id(&self, path: &str) -> SpiffeId {
        SpiffeId(format!("spiffe://{}/{path}", self.0).into())
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TrustDomain {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Ok(Self(Domain::new(text)?))
    }
}

/// A SPIFFE ID in its one canonical form, so that comparing text compares identities.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpiffeId(Arc<str>);

impl SpiffeId {
    /// The ID as a URI.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SpiffeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The SPIFFE ID of the control plane itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlPlaneId(pub SpiffeId);

/// What the URI SAN of a proxy certificate says, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxySpiffeId {
    /// The trust domain that the certificate claims. The caller compares it with its own.
    pub trust_domain: TrustDomain,
    /// The proxy.
    pub proxy: ProxyId,
    /// The proxy's first service.
    pub service: ServiceName,
}

impl ProxySpiffeId {
    /// Reads a proxy's SPIFFE ID; `None` for anything that is not, byte for byte, one of the form
    /// that [`TrustDomain::proxy`] writes: a workload's ID, another case, escapes, extra slashes.
    pub fn parse(uri: &str) -> Option<Self> {
        let (trust_domain, path) = uri.strip_prefix("spiffe://")?.split_once('/')?;
        let mut parts = path.split('/');
        let mut keyed = |key: &str| (parts.next()? == key).then(|| parts.next()).flatten();
        let (uuid, namespace, name) = (keyed("proxy")?, keyed("ns")?, keyed("svc")?);
        let id = Self {
            trust_domain: trust_domain.parse().ok()?,
            proxy: uuid.parse().ok()?,
            service: ServiceName::new(Name::new(namespace).ok()?, Name::new(name).ok()?),
        };
        (id.trust_domain.proxy(id.proxy, &id.service).as_str() == uri).then_some(id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_id_is_read_as_it_was_written_and_nothing_else_is() {
        let trust_domain = TrustDomain::new(Domain::default());
        let proxy: ProxyId = "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap();
        let uri = trust_domain.proxy(proxy, &"shop/bookstore".parse().unwrap());
        let read = ProxySpiffeId::parse(uri.as_str()).unwrap();
        assert_eq!((read.proxy, read.service.to_string()), (proxy, "shop/bookstore".to_owned()));

        let uri = uri.as_str();
        for bad in [
            "spiffe://mesh.internal/ns/shop/sa/bookstore",
            &uri.to_uppercase(),
            &format!("{uri}/"),
            &format!("{uri}/more"),
            &uri.replace("/ns/", "//ns/"),
            &uri.replace("bookstore", "book%73tore"),
            &uri.replace("6f1c3f2e-0b5e", "6f1c3f2e0b5e"),
            &uri.replace("spiffe:", "https:"),
            "",
        ] {
            assert_eq!(ProxySpiffeId::parse(bad), None, "{bad}");
        }
    }
}
