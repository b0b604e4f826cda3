//! Names in the mesh, each a distinct type so that they cannot be confused.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One DNS label: 1 to 63 of `a-z`, `0-9` and `-`, neither first nor last a `-`.
///
/// Namespaces, services, accounts, ports and policy objects are all named by labels, because each
/// of them ends up in a hostname, an SNI or a SPIFFE path.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(Arc<str>);

impl Name {
    /// The longest name, in characters (RFC 1035, section 2.3.4).
    pub const MAX_LENGTH: usize = 63;

    /// The name with this text, if it is valid.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let problem = if text.is_empty() {
            "is empty"
        } else if text.len() > Self::MAX_LENGTH {
            "is longer than 63 characters"
        } else if !text.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
            "may only have `a-z`, `0-9` and `-`"
        } else if text.starts_with('-') || text.ends_with('-') {
            "may not begin or end with `-`"
        } else {
            return Ok(Self(text.into()));
        };
        Err(InvalidName { text: text.to_owned(), problem })
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The default namespace: `default`.
    pub fn default_namespace() -> Self {
        Self::known("default")
    }

    /// A name of this code, which is valid.
    pub(crate) fn known(text: &'static str) -> Self {
        Self(text.into())
    }
}

/// A text that is not a valid name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("name {problem}: `{text}`")]
pub struct InvalidName {
    /// The text.
    pub text: String,
    /// The problem, as a continuation of "the name".
    pub problem: &'static str,
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TryFrom<String> for Name {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(&text)
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

impl FromStr for Name {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Self::new(text)
    }
}

macro_rules! qualified_name {
    ($(#[$doc:meta])* $type:ident) => {
        $(#[$doc])*
        ///
        /// Written `namespace/name`; the namespace is `default` where only a name is given.
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $type {
            /// Its namespace.
            pub namespace: Name,
            /// Its own name, unique in the namespace.
            pub name: Name,
        }

        impl $type {
            /// The name of `name` in `namespace`.
            pub fn new(namespace: Name, name: Name) -> Self {
                Self { namespace, name }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}/{}", self.namespace, self.name)
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, InvalidName> {
                match text.split_once('/') {
                    Some((namespace, name)) => Ok(Self::new(Name::new(namespace)?, Name::new(name)?)),
                    None => Ok(Self::new(Name::default_namespace(), Name::new(text)?)),
                }
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;

            fn try_from(text: String) -> Result<Self, InvalidName> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(name: $type) -> Self {
                name.to_string()
            }
        }
    };
}

qualified_name! {
    /// The name of a service.
    ServiceName
}
qualified_name! {
    /// The name of a service account: the identity as which a service runs, and which policy names.
    ServiceAccount
}

/// One port of one service, by the number that callers use.
///
/// Written `namespace/service|port`, in tables, JSON and names of resources (docs/reference/names.md).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct ServicePort {
    /// The service.
    pub service: ServiceName,
    /// The number of the port.
    pub port: u16,
}

impl ServicePort {
    /// Port `port` of `service`.
    pub fn new(service: ServiceName, port: u16) -> Self {
        Self { service, port }
    }
}

impl FromStr for ServicePort {
    type Err = InvalidName;

    /// Parses the text form of a [`ServicePort`].
    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| InvalidName { text: text.to_owned(), problem };
        let (service, port) = text.split_once('|').ok_or_else(|| invalid("names no port"))?;
        let port = port.parse().map_err(|_| invalid("has no port number behind `|`"))?;
        Ok(Self::new(service.parse()?, port))
    }
}

impl fmt::Display for ServicePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}|{}", self.service, self.port)
    }
}

/// The DNS domain below which services have their hostnames, such as `mesh.internal`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Domain(Arc<str>);

impl Domain {
    /// Checks `text`: one or more [`Name`]s joined by dots.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        for label in text.split('.') {
            Name::new(label).map_err(|e| InvalidName { text: text.to_owned(), ..e })?;
        }
        Ok(Self(text.into()))
    }

    /// The domain as text, without dots at its ends.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `<service>.<namespace>.<domain>`.
    pub fn hostname(&self, service: &ServiceName) -> String {
        format!("{}.{}.{}", service.name, service.namespace, self.0)
    }
}

impl Default for Domain {
    fn default() -> Self {
        Self("mesh.internal".into())
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for Domain {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        Self::new(&text)
    }
}

impl From<Domain> for String {
    fn from(domain: Domain) -> Self {
        domain.0.as_ref().to_owned()
    }
}

/// A DNS name outside the mesh, in lower case: `api.example.com`, or `*.example.com` for all names below it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hostname(Arc<str>);

impl Hostname {
    /// The longest hostname, in characters (RFC 1035, section 2.3.4).
    pub const MAX_LENGTH: usize = 253;

    /// The hostname with this text, if it is valid: at least two labels, none of which begins or ends with `-`,
    /// and not an IP address.
    pub fn new(text: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| Err(InvalidName { text: text.to_owned(), problem });
        let lower = text.to_ascii_lowercase();
        let name = lower.strip_prefix("*.").unwrap_or(&lower);
        if lower.len() > Self::MAX_LENGTH {
            return invalid("is longer than 253 characters");
        }
        if !name.contains('.') {
            return invalid("has one label only, where a full domain name is expected");
        }
        for label in name.split('.') {
            let is_of_label = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
            if label.is_empty() || label.len() > Name::MAX_LENGTH {
                return invalid("has a label that is empty or longer than 63 characters");
            }
            if !label.bytes().all(is_of_label) || label.starts_with('-') || label.ends_with('-') {
                return invalid("may only have labels of letters, digits, `-` and `_`");
            }
        }
        let last = name.rsplit('.').next().unwrap_or(name);
        if last.bytes().all(|b| b.is_ascii_digit()) {
            return invalid("is an address, not a name");
        }
        Ok(Self(lower.into()))
    }

    /// The hostname as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is a wildcard for all names below it.
    pub fn is_wildcard(&self) -> bool {
        self.0.starts_with("*.")
    }

    /// Whether `other` equals it or is one of the names that it covers.
    pub fn covers(&self, other: &Self) -> bool {
        let is_below = |below| other.0.len() > str::len(below) && other.0.ends_with(below);
        self == other || self.0.strip_prefix('*').is_some_and(is_below)
    }
}

impl fmt::Display for Hostname {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_one_dns_label() {
        for good in ["a", "bookstore-v1", "0", &"x".repeat(63)] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a/b", "ü", "a_b", &"x".repeat(64)] {
            assert!(Name::new(bad).is_err(), "{bad:?} was accepted");
        }
    }

    #[test]
    fn hostname_is_a_dns_name_of_at_least_two_labels() {
        for good in ["a.b", "API.example.com", "_sip.example.com", "*.example.com", "1.example"] {
            assert_eq!(Hostname::new(good).unwrap().as_str(), good.to_lowercase());
        }
        let long = format!("{}.example", ["a".repeat(62).as_str(); 4].join("."));
        for bad in [
            "",
            "api",
            "*",
            "*.com.*",
            "*.com",
            "a..b",
            ".a.b",
            "a.b.",
            "-a.b",
            "a.b-",
            "a b.c",
            "ü.de",
            "10.0.0.1",
            "a.b:80",
            "http://a.b",
            "fd00::1",
            "a.*.b",
            "*a.b.c",
            &long,
        ] {
            assert!(Hostname::new(bad).is_err(), "{bad:?} was accepted");
        }
        assert!(Hostname::new("*.example.com").unwrap().is_wildcard());
    }

    #[test]
    fn hostname_covers_itself_and_wildcard_covers_names_below_it() {
        let covers = |one: &str, other: &str| {
            Hostname::new(one).unwrap().covers(&Hostname::new(other).unwrap())
        };
        for (one, other) in [
            ("a.example", "a.example"),
            ("*.a.example", "*.a.example"),
            ("*.a.example", "b.a.example"),
            ("*.a.example", "c.b.a.example"),
            ("*.a.example", "*.b.a.example"),
        ] {
            assert!(covers(one, other), "{one} {other}");
        }
        for (one, other) in [
            ("*.a.example", "a.example"),
            ("*.a.example", "ba.example"),
            ("*.b.a.example", "*.a.example"),
            ("b.a.example", "*.a.example"),
        ] {
            assert!(!covers(one, other), "{one} {other}");
        }
    }

    #[test]
    fn service_without_namespace_is_in_the_default_namespace() {
        let service: ServiceName = "bookstore".parse().unwrap();
        assert_eq!(service.to_string(), "default/bookstore");
        assert!("a/b/c".parse::<ServiceName>().is_err());
    }

    #[test]
    fn service_port_has_documented_cluster_and_server_names() {
        let port = ServicePort::new("shop/bookstore".parse().unwrap(), 14001);
        assert_eq!(port.to_string(), "shop/bookstore|14001");
    }
}
