//! One xDS resource: encoded once, shared by all streams that send it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name};
use xxhash_rust::xxh3::xxh3_128;

use crate::canonical::canonicalize;
use crate::descriptors::pool;

/// The resource types that we serve, in the order in which a proxy must be told of them: what
/// something refers to comes before it (invariant 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// SDS: certificates and trust bundles.
    Secret,
    /// CDS.
    Cluster,
    /// EDS: the endpoints of a cluster.
    Endpoint,
    /// LDS.
    Listener,
    /// RDS: route configurations.
    Route,
}

impl ResourceType {
    /// All of them, in order.
    pub const ALL: [Self; 5] =
        [Self::Secret, Self::Cluster, Self::Endpoint, Self::Listener, Self::Route];

    /// The type that `url` names.
    pub fn from_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource_type| resource_type.url() == url)
    }

    /// The type's URL on the wire.
    pub fn url(self) -> &'static str {
        match self {
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    /// Whether a client may ask for all resources of the type: listeners and clusters only. Above
    /// all never for all secrets (xDS protocol, "How the client specifies what resources to return").
    pub fn allows_wildcard(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Secret => "secret",
            Self::Cluster => "cluster",
            Self::Endpoint => "endpoints",
            Self::Listener => "listener",
            Self::Route => "route configuration",
        })
    }
}

/// A message that is an xDS resource.
pub trait Discoverable: Message + Name {
    /// Its type.
    const TYPE: ResourceType;

    /// The name by which clients ask for it; the same as that on the wire.
    fn resource_name(&self) -> &str;
}

macro_rules! discoverable {
    ($($message:ident, $type:ident, $name:ident;)*) => {$(
        impl Discoverable for $message {
            const TYPE: ResourceType = ResourceType::$type;

            fn resource_name(&self) -> &str {
                &self.$name
            }
        }
    )*};
}

discoverable! {
    Secret, Secret, name;
    Cluster, Cluster, name;
    ClusterLoadAssignment, Endpoint, cluster_name;
    Listener, Listener, name;
    RouteConfiguration, Route, name;
}

/// The version of a resource: the hash of its canonical bytes. The same content has the same version
/// on every replica and after every restart (invariant 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u128);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Version {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

/// A resource as it goes out.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    kind: ResourceType,
    name: Arc<str>,
    version: Version,
    /// The encoding of a `DeltaDiscoveryResponse` that has this one resource and nothing else.
    /// Protobuf merges concatenated messages, so a response is its head followed by such entries.
    entry: Bytes,
}

impl Resource {
    /// Encodes `message`, once.
    pub fn new<M: Discoverable>(message: &M) -> Self {
        let mut value = message.encode_to_vec();
        if let Some(descriptor) = pool().get_message_by_name(&M::full_name()) {
            let done = canonicalize(&descriptor, &mut value);
            debug_assert_eq!(done, Ok(()), "prost encodes what the descriptors describe");
        }
        let version = Version(xxh3_128(&value));
        let resource = discovery::Resource {
            name: message.resource_name().to_owned(),
            version: version.to_string(),
            resource: Some(Any { type_url: M::TYPE.url().to_owned(), value }),
            ..discovery::Resource::default()
        };
        let response = discovery::DeltaDiscoveryResponse {
            resources: vec![resource],
            ..discovery::DeltaDiscoveryResponse::default()
        };
        Self {
            kind: M::TYPE,
            name: message.resource_name().into(),
            version,
            entry: response.encode_to_vec().into(),
        }
    }

    /// Its type.
    pub fn resource_type(&self) -> ResourceType {
        self.kind
    }

    /// Its name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What is in it; `None` where that is no such message.
    pub fn message<M: Discoverable + Default>(&self) -> Option<M> {
        if M::TYPE != self.kind {
            return None;
        }
        let response = discovery::DeltaDiscoveryResponse::decode(&*self.entry).ok()?;
        let resource = response.resources.into_iter().next()?.resource?;
        M::decode(&*resource.value).ok()
    }

    /// Its part of a delta response, to be put behind the response's head.
    pub fn delta_entry(&self) -> &Bytes {
        &self.entry
    }
}

impl fmt::Debug for Resource {
    /// Without the content, which may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} {}", self.kind, self.name, self.version)
    }
}

/// Packs a message into an `Any`.
pub fn any<M: Message + Name>(message: &M) -> Any {
    Any { type_url: M::type_url(), value: message.encode_to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_urls_are_those_of_the_messages() {
        fn check<M: Discoverable>() {
            assert_eq!(M::TYPE.url(), M::type_url());
            assert_eq!(ResourceType::from_url(&M::type_url()), Some(M::TYPE));
        }
        check::<Secret>();
        check::<Cluster>();
        check::<ClusterLoadAssignment>();
        check::<Listener>();
        check::<RouteConfiguration>();
    }

    #[test]
    fn a_version_is_the_hash_of_the_content() {
        let cluster =
            |name: &str| Resource::new(&Cluster { name: name.to_owned(), ..Cluster::default() });
        assert_eq!(cluster("a").version(), cluster("a").version());
        assert_ne!(cluster("a").version(), cluster("b").version());
        let text = cluster("a").version().to_string();
        assert_eq!(text.parse(), Ok(cluster("a").version()));
    }
}
