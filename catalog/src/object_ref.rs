//! References to the objects of the mesh that findings and silences are about, as typed values and as text.
//!
//! This module owns their form. It never looks an object up.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::endpoint::Provider;
use crate::name::{ServiceAccount, ServiceName, ServicePort};
use crate::policy_object::PolicyObject;
use crate::proxy::ProxyId;
use crate::token_id::TokenId;

/// An object of the mesh. Its text is `KIND:NAME`, such as `service:default/store`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ObjectRef {
    /// A proxy, by its UUID: `proxy:UUID`.
    Proxy(ProxyId),
    /// A service: `service:NAMESPACE/NAME`.
    Service(ServiceName),
    /// A port of a service: `port:NAMESPACE/NAME|PORT`.
    Port(ServicePort),
    /// The endpoints of a service at an address: `endpoint:NAMESPACE/NAME|ADDRESS`.
    Endpoint(ServiceName, IpAddr),
    /// An endpoints provider: `provider:NAME`.
    Provider(Provider),
    /// The service certificate of an account: `certificate:NAMESPACE/ACCOUNT`.
    Certificate(ServiceAccount),
    /// A document of policy that is no service: `policy:KIND/NAMESPACE/NAME`.
    Policy(PolicyObject),
    /// A file of policy: `file:PATH`.
    File(String),
    /// A machine, by its address: `machine:ADDRESS`.
    Machine(IpAddr),
    /// A control plane, by its host name: `control_plane:HOST`.
    ControlPlane(String),
    /// A token, by which machines enroll: `token:ID`.
    Token(TokenId),
    /// An object of a kind that only a newer version knows.
    Other {
        /// The kind.
        kind: String,
        /// The name.
        name: String,
    },
}

impl ObjectRef {
    /// The most bytes of an object's text.
    pub const MAX_BYTES: usize = 1024;

    /// The kind of the object, as in its text.
    pub fn kind(&self) -> &str {
        match self {
            Self::Proxy(_) => "proxy",
            Self::Service(_) => "service",
            Self::Port(_) => "port",
            Self::Endpoint(..) => "endpoint",
            Self::Provider(_) => "provider",
            Self::Certificate(_) => "certificate",
            Self::Policy(_) => "policy",
            Self::File(_) => "file",
            Self::Machine(_) => "machine",
            Self::ControlPlane(_) => "control_plane",
            Self::Token(_) => "token",
            Self::Other { kind, .. } => kind,
        }
    }

    /// Whether `other` is this object or a part of it: the ports and endpoints of a service are its parts.
    pub fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Service(service), Self::Port(port)) => port.service == *service,
            (Self::Service(service), Self::Endpoint(of, _)) => of == service,
            _ => self == other,
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.kind())?;
        match self {
            Self::Proxy(id) => write!(f, "{id}"),
            Self::Service(name) => write!(f, "{name}"),
            Self::Port(port) => write!(f, "{port}"),
            Self::Endpoint(service, address) => write!(f, "{service}|{address}"),
            Self::Provider(provider) => f.write_str(provider.name()),
            Self::Certificate(account) => write!(f, "{account}"),
            Self::Policy(PolicyObject { kind, name }) => write!(f, "{kind}/{name}"),
            Self::Machine(address) => write!(f, "{address}"),
            Self::Token(id) => write!(f, "{id}"),
            Self::File(name) | Self::ControlPlane(name) | Self::Other { name, .. } => {
                f.write_str(name)
            }
        }
    }
}

impl FromStr for ObjectRef {
    type Err = InvalidObject;

    fn from_str(text: &str) -> Result<Self, InvalidObject> {
        if text.len() > Self::MAX_BYTES || text.chars().any(char::is_control) {
            return Err(InvalidObject::new("it is too long, or has control characters"));
        }
        let form = "it is `KIND:NAME`, such as `proxy:UUID` or `service:NAMESPACE/NAME`";
        let (kind, name) = text.split_once(':').ok_or_else(|| InvalidObject::new(form))?;
        let is_word = |kind: &str| {
            !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        };
        if !is_word(kind) || name.is_empty() {
            return Err(InvalidObject::new(form));
        }
        Ok(match kind {
            "proxy" => Self::Proxy(parsed(name, "the name of a proxy is its UUID")?),
            "service" => Self::Service(service(name)?),
            "port" => Self::Port(parsed(name, "a port is `port:NAMESPACE/NAME|PORT`")?),
            "endpoint" => {
                let form = "an endpoint is `endpoint:NAMESPACE/NAME|ADDRESS`";
                let (of, address) = name.split_once('|').ok_or_else(|| InvalidObject::new(form))?;
                Self::Endpoint(service(of)?, parsed(address, form)?)
            }
            "provider" => {
                let found = Provider::ALL.into_iter().find(|provider| provider.name() == name);
                let names = Provider::ALL.map(Provider::name).join(", ");
                Self::Provider(found.ok_or_else(|| {
                    InvalidObject(format!("the endpoints providers are: {names}"))
                })?)
            }
            "certificate" => {
                Self::Certificate(parsed(name, "a certificate is `certificate:NAMESPACE/ACCOUNT`")?)
            }
            "policy" => {
                let form = "a document of policy is `policy:KIND/NAMESPACE/NAME`";
                let (kind, name) = name.split_once('/').ok_or_else(|| InvalidObject::new(form))?;
                let kind = kind.to_owned().into();
                Self::Policy(PolicyObject { kind, name: name.to_owned() })
            }
            "file" => Self::File(name.to_owned()),
            "machine" => Self::Machine(parsed(name, "a machine is `machine:ADDRESS`")?),
            "control_plane" => Self::ControlPlane(name.to_owned()),
            "token" => Self::Token(parsed(name, "a token is `token:ID`")?),
            _ => Self::Other { kind: kind.to_owned(), name: name.to_owned() },
        })
    }
}

fn parsed<T: FromStr>(text: &str, form: &str) -> Result<T, InvalidObject> {
    text.parse().map_err(|_| InvalidObject::new(form))
}

/// A service with its namespace: an object's text is always whole.
fn service(text: &str) -> Result<ServiceName, InvalidObject> {
    let form = "a service is `service:NAMESPACE/NAME`";
    if text.contains('/') { parsed(text, form) } else { Err(InvalidObject::new(form)) }
}

impl TryFrom<String> for ObjectRef {
    type Error = InvalidObject;

    fn try_from(text: String) -> Result<Self, InvalidObject> {
        text.parse()
    }
}

impl From<ObjectRef> for String {
    fn from(object: ObjectRef) -> Self {
        object.to_string()
    }
}

impl From<ProxyId> for ObjectRef {
    fn from(id: ProxyId) -> Self {
        Self::Proxy(id)
    }
}

impl From<&ServiceName> for ObjectRef {
    fn from(name: &ServiceName) -> Self {
        Self::Service(name.clone())
    }
}

impl From<&ServicePort> for ObjectRef {
    fn from(port: &ServicePort) -> Self {
        Self::Port(port.clone())
    }
}

impl From<Provider> for ObjectRef {
    fn from(provider: Provider) -> Self {
        Self::Provider(provider)
    }
}

/// A text that is no object, with the right form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("object is malformed: {0}")]
pub struct InvalidObject(String);

impl InvalidObject {
    fn new(form: &str) -> Self {
        Self(form.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_each_kind_is_read_again() {
        let texts = [
            "proxy:11112222-0000-4000-8000-000000000001",
            "service:shop/web",
            "port:shop/web|8080",
            "endpoint:shop/web|fd00::1",
            "provider:consul",
            "certificate:shop/web",
            "policy:traffic_target/shop/buyers",
            "file:shop/web.toml",
            "machine:10.0.0.1",
            "control_plane:cp-1.example.com",
            "token:0123456789abcdef",
            "later_kind:any:name",
        ];
        for text in texts {
            let object: ObjectRef = text.parse().unwrap();
            assert_eq!(object.to_string(), text);
            let json = serde_json::to_string(&object).unwrap();
            assert_eq!(serde_json::from_str::<ObjectRef>(&json).unwrap(), object);
            assert_eq!(matches!(object, ObjectRef::Other { .. }), text.starts_with("later"));
        }
    }

    #[test]
    fn malformed_text_is_rejected_with_the_form() {
        let bad = [
            ("", "KIND:NAME"),
            ("proxy", "KIND:NAME"),
            ("proxy:", "KIND:NAME"),
            ("PROXY:x", "KIND:NAME"),
            (":x", "KIND:NAME"),
            ("proxy:till-1", "UUID"),
            ("service:web", "service:NAMESPACE/NAME"),
            ("port:shop/web", "port:NAMESPACE/NAME|PORT"),
            ("endpoint:shop/web", "endpoint:NAMESPACE/NAME|ADDRESS"),
            ("endpoint:shop/web|x", "endpoint:NAMESPACE/NAME|ADDRESS"),
            ("provider:gcp", "static, consul, azure, registered"),
            ("policy:x", "policy:KIND/NAMESPACE/NAME"),
            ("machine:here", "machine:ADDRESS"),
            ("file:a\u{1b}[2J", "control characters"),
        ];
        for (text, form) in bad {
            let error = text.parse::<ObjectRef>().unwrap_err().to_string();
            assert!(error.contains(form), "{text}: {error}");
        }
        let long = format!("file:{}", "a".repeat(ObjectRef::MAX_BYTES));
        assert!(long.parse::<ObjectRef>().is_err());
    }

    #[test]
    fn service_includes_its_ports_and_endpoints_only() {
        let object = |text: &str| text.parse::<ObjectRef>().unwrap();
        let service = object("service:shop/web");
        for part in ["service:shop/web", "port:shop/web|80", "endpoint:shop/web|10.0.0.1"] {
            assert!(service.includes(&object(part)), "{part}");
        }
        for other in ["service:shop/api", "port:shop/api|80", "endpoint:default/web|10.0.0.1"] {
            assert!(!service.includes(&object(other)), "{other}");
        }
        assert!(!object("port:shop/web|80").includes(&service));
    }
}
