//! SPIFFE IDs of the mesh. Their paths are fixed (docs/reference/names.md) and differ by purpose, so a
//! certificate of one kind is never valid as another.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::{Domain, InvalidName, Name, ServiceAccount, ServiceName};
use crate::operator::OperatorName;
use crate::proxy::ProxyId;

/// The root of all identities of one mesh: the host part of every SPIFFE ID.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TrustDomain(Domain);

impl TrustDomain {
    /// The trust domain with this name.
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

    /// `spiffe://<trust domain>/ns/<namespace>/sa/<account>`: the SPIFFE ID in the certificate of a service
    /// account.
    pub fn workload(&self, account: &ServiceAccount) -> SpiffeId {
        self.id(&format!("ns/{}/sa/{}", account.namespace, account.name))
    }

    /// The account with this [`TrustDomain::workload`]; `None` for other identities and other trust domains.
    pub fn account(&self, id: &SpiffeId) -> Option<ServiceAccount> {
        let (trust_domain, account) = id.workload()?;
        (trust_domain == self.as_str()).then_some(account)
    }

    /// The prefix of every [`TrustDomain::workload`], and of no other identity of the mesh.
    pub fn workload_prefix(&self) -> String {
        format!("spiffe://{}/ns/", self.0)
    }

    /// The prefix of every [`TrustDomain::workload`] of `namespace`, and of no other identity of the mesh.
    pub fn namespace_prefix(&self, namespace: &Name) -> String {
        format!("{}{namespace}/sa/", self.workload_prefix())
    }

    /// `spiffe://<trust domain>/control-plane`: the SPIFFE ID that Envoys pin for the control plane.
    pub fn control_plane(&self) -> ControlPlaneId {
        ControlPlaneId(self.id("control-plane"))
    }

    /// `spiffe://<trust domain>/proxy/<uuid>/ns/<namespace>/svc/<service>`.
    pub fn proxy(&self, proxy: ProxyId, first_service: &ServiceName) -> SpiffeId {
        let ServiceName { namespace, name } = first_service;
        self.id(&format!("proxy/{proxy}/ns/{namespace}/svc/{name}"))
    }

    /// `spiffe://<trust domain>/operator/<name>`.
    pub fn operator(&self, name: &OperatorName) -> SpiffeId {
        self.id(&format!("operator/{name}"))
    }

    /// The operator with this [`TrustDomain::operator`]; `None` for other identities and other trust domains.
    pub fn operator_name(&self, uri: &str) -> Option<OperatorName> {
        let path = uri.strip_prefix("spiffe://")?.strip_prefix(self.as_str())?;
        path.strip_prefix("/operator/")?.parse().ok()
    }

    /// `<proxy UUID>.proxy.<trust domain>`: the only DNS name in the service certificates that are issued to one proxy. It
    /// distinguishes the proxies of an account, and is no name that a resolver answers.
    pub fn proxy_dns_name(&self, proxy: ProxyId) -> String {
        format!("{proxy}.proxy.{}", self.0)
    }

    /// `<serial number>.shared.<trust domain>`: the only DNS name in a service certificate that the proxies of an account
    /// share. It distinguishes the certificate from its successors, and is no name that a resolver answers.
    pub fn shared_dns_name(&self, serial: &str) -> String {
        format!("{serial}.shared.{}", self.0)
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

/// A SPIFFE ID in canonical form, so that equal texts mean equal identities.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SpiffeId(Arc<str>);

impl TryFrom<String> for SpiffeId {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(&text)
    }
}

impl From<SpiffeId> for String {
    fn from(id: SpiffeId) -> Self {
        id.as_str().to_owned()
    }
}

impl SpiffeId {
    /// The longest ID, in bytes (SPIFFE ID, section 2.3).
    pub const MAX_LENGTH: usize = 2048;

    /// The SPIFFE ID with this text, if it is valid; `spiffe://` is optional, as in SMI.
    ///
    /// The rules are those of the SPIFFE ID specification, section 2: a trust domain of `a-z`, `0-9`,
    /// `.`, `-` and `_`; segments of letters, digits, `.`, `-` and `_`, none of them empty, `.` or `..`.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| Err(InvalidName { text: text.to_owned(), problem });
        let rest = text.strip_prefix("spiffe://").unwrap_or(text);
        let Some((trust_domain, path)) = rest.split_once('/') else {
            return invalid("has a trust domain and no path");
        };
        let is_of_host = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_');
        let is_of_path = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        if trust_domain.is_empty() || !trust_domain.bytes().all(is_of_host) {
            return invalid("needs a trust domain of `a-z`, `0-9`, `.`, `-` and `_`");
        }
        for segment in path.split('/') {
            if matches!(segment, "" | "." | "..") {
                return invalid("has an empty segment, `.` or `..` in its path");
            }
            if !segment.bytes().all(is_of_path) {
                return invalid("may only have letters, digits, `.`, `-` and `_` in its path");
            }
        }
        let id = format!("spiffe://{rest}");
        if id.len() > Self::MAX_LENGTH {
            return invalid("is longer than 2048 bytes");
        }
        Ok(Self(id.into()))
    }

    /// The trust domain and the account, if it has the form of a service account's ID.
    pub fn workload(&self) -> Option<(&str, ServiceAccount)> {
        let (trust_domain, path) = self.0.strip_prefix("spiffe://")?.split_once("/ns/")?;
        let (namespace, name) = path.split_once("/sa/")?;
        let account = ServiceAccount::new(Name::new(namespace).ok()?, Name::new(name).ok()?);
        (!trust_domain.contains('/')).then_some((trust_domain, account))
    }

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

/// The parts of the URI SAN of a proxy certificate.
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
    /// Parses a proxy's SPIFFE ID; `None` unless it equals, byte for byte, one that [`TrustDomain::proxy`]
    /// writes: not a workload's ID, another case, escapes, extra slashes.
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
    fn spiffe_id_is_validated_and_maps_to_an_own_domain_account() {
        let mesh = TrustDomain::new(Domain::default());
        let account: ServiceAccount = "shop/bookstore".parse().unwrap();
        let id = SpiffeId::new("mesh.internal/ns/shop/sa/bookstore").unwrap();
        assert_eq!(id, mesh.workload(&account));
        assert_eq!(mesh.account(&id), Some(account));
        for other in [
            "spiffe://other.internal/ns/shop/sa/bookstore",
            "spiffe://mesh.internal/control-plane",
            "spiffe://mesh.internal/ns/shop/sa/Bookstore",
            "spiffe://mesh.internal/ns/shop/sa/bookstore/more",
            "spiffe://mesh.internal/ns/shop/more/sa/bookstore",
            "spiffe://mesh.internal.evil/ns/shop/sa/bookstore",
        ] {
            assert_eq!(mesh.account(&SpiffeId::new(other).unwrap()), None, "{other}");
        }
        for bad in [
            "",
            "mesh.internal",
            "spiffe://mesh.internal/",
            "spiffe:///ns/a",
            "https://mesh.internal/ns/a",
            "mesh.internal/ns//a",
            "mesh.internal/ns/../a",
            "mesh.internal/ns/a%2fb",
            "Mesh.internal/ns/a",
            "mesh.internal:80/ns/a",
            "mesh.internal/ns/ü",
            &format!("mesh.internal/{}", "a".repeat(2048)),
        ] {
            assert!(SpiffeId::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn proxy_spiffe_id_parses_only_in_canonical_form() {
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
