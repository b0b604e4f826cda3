//! An xDS resource: encoded once, shared by all streams that send it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::endpoint::v3::ClusterLoadAssignment;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use envoy_types::pb::envoy::config::route::v3::RouteConfiguration;
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::Secret;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use envoy_types::pb::envoy::service::runtime::v3::Runtime;
use envoy_types::pb::google::protobuf::Any;
use prost::{Message, Name, length_delimiter_len};
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::canonical::canonicalize;
use crate::digest::Digest;
use crate::references::References;

/// The supported resource types, in push order: a resource comes after those that it refers to
/// (invariant 6).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// RTDS: a layer of runtime keys.
    Runtime,
    /// ECDS: configurations of filters.
    ExtensionConfig,
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
    /// All types, in order.
    pub const ALL: [Self; 7] = [
        Self::Runtime,
        Self::ExtensionConfig,
        Self::Secret,
        Self::Cluster,
        Self::Endpoint,
        Self::Listener,
        Self::Route,
    ];

    /// The type with this URL.
    pub fn from_url(url: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|resource_type| resource_type.url() == url)
    }

    /// The type's URL on the wire.
    pub fn url(self) -> &'static str {
        match self {
            Self::Runtime => "type.googleapis.com/envoy.service.runtime.v3.Runtime",
            Self::ExtensionConfig => {
                "type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig"
            }
            Self::Secret => "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            Self::Endpoint => "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            Self::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    /// Whether a client may subscribe to all resources of the type: listeners and clusters only.
    /// Above all never to all secrets (xDS protocol, "How the client specifies what resources to
    /// return").
    pub fn allows_wildcard(self) -> bool {
        matches!(self, Self::Cluster | Self::Listener)
    }
}

impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Runtime => "runtime layer",
            Self::ExtensionConfig => "extension config",
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

    /// The name by which clients subscribe to it; the same as on the wire.
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
    Runtime, Runtime, name;
    TypedExtensionConfig, ExtensionConfig, name;
    Secret, Secret, name;
    Cluster, Cluster, name;
    ClusterLoadAssignment, Endpoint, cluster_name;
    Listener, Listener, name;
    RouteConfiguration, Route, name;
}

/// The version of a resource: the hash of its canonical bytes. The same content has the same
/// version on every replica and after every restart (invariant 4).
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

impl Version {
    /// The combined version of several resources, for `version_info` of the state-of-the-world
    /// variant.
    ///
    /// It covers their names and contents and nothing else, so it is the same on every replica and
    /// after every restart (R11, R23). The resources must be sorted by name.
    pub fn of_all<'a>(resources: impl IntoIterator<Item = &'a Arc<Resource>>) -> Self {
        let mut hasher = Xxh3::new();
        for resource in resources {
            hasher.update(&resource.name.len().to_le_bytes());
            hasher.update(resource.name.as_bytes());
            hasher.update(&resource.version.0.to_le_bytes());
        }
        Self(hasher.digest128())
    }
}

/// An encoded resource.
#[derive(Clone)]
pub struct Resource {
    kind: ResourceType,
    name: Arc<str>,
    version: Version,
    /// The digest of its name, and that of its name with its version as on the wire.
    name_digest: Digest,
    version_digest: Digest,
    /// Whether it waits for no reference.
    is_urgent: bool,
    /// The encoding of a `DeltaDiscoveryResponse` with only this resource. Protobuf merges
    /// concatenated messages, so a response is its head followed by such entries.
    entry: Bytes,
    /// The encoding of a `DiscoveryResponse` with only this resource: a slice of `entry`, not a
    /// copy. The content is field 2 of a delta entry's `Resource` and also field 2 of a
    /// `DiscoveryResponse`, an `Any` in both, so it has the same bytes, key and length included.
    sotw_entry: Bytes,
    /// The resources that it refers to, by their names in `entry`.
    references: References,
    /// The references that no field of it has.
    declared_references: Vec<(ResourceType, Arc<str>)>,
    role: Option<Arc<dyn std::any::Any + Send + Sync>>,
}

impl PartialEq for Resource {
    fn eq(&self, other: &Self) -> bool {
        // The entry contains the name and the version; references and role follow from these.
        self.kind == other.kind && self.is_urgent == other.is_urgent && self.entry == other.entry
    }
}

impl Eq for Resource {}

impl Resource {
    /// Encodes `message`, once.
    pub fn new<M: Discoverable>(message: &M) -> Self {
        let (message_name, mut value) = (M::full_name(), message.encode_to_vec());
        let done = canonicalize(&message_name, &mut value);
        debug_assert_eq!(done, Ok(()), "prost encodes what the descriptors describe");
        let length_of_value = value.len();
        let version = Version(xxh3_128(&value));
        let body = Any { type_url: M::TYPE.url().to_owned(), value };
        // Field 2 of both messages: one byte of key, the length, the content.
        let field = 1 + length_delimiter_len(body.encoded_len()) + body.encoded_len();
        let (name, version_text) = (message.resource_name(), version.to_string());
        let name_digest = Digest::of_name(name);
        let version_digest = Digest::of_version(&[name, &version_text].concat(), name.len());
        let resource = discovery::Resource {
            name: name.to_owned(),
            version: version_text,
            resource: Some(body),
            ..discovery::Resource::default()
        };
        // Field 1, the version, precedes it; prost encodes fields by their numbers.
        let before = 2 + resource.version.len();
        let length = resource.encoded_len();
        let response = discovery::DeltaDiscoveryResponse {
            resources: vec![resource],
            ..discovery::DeltaDiscoveryResponse::default()
        };
        let entry = Bytes::from(response.encode_to_vec());
        let begin = entry.len() - length + before;
        let sotw_entry = entry.slice(begin..begin + field);
        // The message is the last field of its `Any`.
        let place = begin + field - length_of_value..begin + field;
        let references = References::read(&message_name, &entry, place);
        Self {
            kind: M::TYPE,
            name: name.into(),
            version,
            name_digest,
            version_digest,
            is_urgent: false,
            entry,
            sotw_entry,
            references,
            declared_references: Vec::new(),
            role: None,
        }
    }

    /// Marks a resource that must not wait for the clusters and routes that it refers to, because it
    /// may withdraw access.
    #[must_use]
    pub fn urgent(self) -> Self {
        Self { is_urgent: true, ..self }
    }

    /// Whether it waits for none of the clusters and routes that it refers to.
    pub fn is_urgent(&self) -> bool {
        self.is_urgent
    }

    /// Gives it a role, which only those interpret that know its type. It must be the same for all
    /// resources with its type and name.
    #[must_use]
    pub fn with_role(self, role: impl std::any::Any + Send + Sync) -> Self {
        Self { role: Some(Arc::new(role)), ..self }
    }

    /// Gives it the role of another resource.
    #[must_use]
    pub fn with_role_of(self, other: &Self) -> Self {
        Self { role: other.role.clone(), ..self }
    }

    /// Its role, if it has one of this type.
    pub fn role<R: std::any::Any>(&self) -> Option<&R> {
        self.role.as_ref()?.downcast_ref()
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

    /// The digest of its name.
    pub(crate) fn name_digest(&self) -> Digest {
        self.name_digest
    }

    /// The digest of its name with its version as on the wire.
    pub(crate) fn version_digest(&self) -> Digest {
        self.version_digest
    }

    /// Declares a reference that no field of it has: so it waits for that resource too. It must be
    /// the same for all resources with its type and name.
    #[must_use]
    pub fn referring_to(mut self, of: ResourceType, name: impl Into<Arc<str>>) -> Self {
        self.declared_references.push((of, name.into()));
        self
    }

    /// The types and names of the resources that it refers to: sorted and each once, and then the
    /// declared ones. It finds those in every message that Envoy's API has, as
    /// `xtask/src/descriptors/reference_fields.rs` lists them.
    pub fn references(&self) -> impl Iterator<Item = (ResourceType, &str)> {
        let declared = self.declared_references.iter().map(|(of, name)| (*of, &**name));
        self.references.all(&self.entry).chain(declared)
    }

    /// The names of the resources of a type that it refers to.
    pub fn references_to(&self, of: ResourceType) -> impl Iterator<Item = &str> {
        let declared = self.declared_references.iter().filter(move |(one, _)| *one == of);
        self.references.to(of, &self.entry).chain(declared.map(|(_, name)| &**name))
    }

    /// Whether it refers to the resource with this type and name.
    pub fn refers_to(&self, of: ResourceType, name: &str) -> bool {
        let mut declared = self.declared_references.iter();
        self.references.contain(of, name, &self.entry)
            || declared.any(|(one, known)| *one == of && **known == *name)
    }

    /// The decoded content; `None` if it is no such message.
    pub fn message<M: Discoverable + Default>(&self) -> Option<M> {
        if M::TYPE != self.kind {
            return None;
        }
        let response = discovery::DeltaDiscoveryResponse::decode(&*self.entry).ok()?;
        let resource = response.resources.into_iter().next()?.resource?;
        M::decode(&*resource.value).ok()
    }

    /// Its part of a delta response, to be appended to the response's head.
    pub fn delta_entry(&self) -> &Bytes {
        &self.entry
    }

    /// Its part of a state-of-the-world response, to be appended to the response's head.
    pub fn sotw_entry(&self) -> &Bytes {
        &self.sotw_entry
    }
}

impl fmt::Debug for Resource {
    /// Omits the content, which may be a key.
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
    fn type_urls_match_their_messages() {
        fn check<M: Discoverable>() {
            assert_eq!(M::TYPE.url(), M::type_url());
            assert_eq!(ResourceType::from_url(&M::type_url()), Some(M::TYPE));
        }
        check::<Runtime>();
        check::<TypedExtensionConfig>();
        check::<Secret>();
        check::<Cluster>();
        check::<ClusterLoadAssignment>();
        check::<Listener>();
        check::<RouteConfiguration>();
    }

    #[test]
    fn sotw_entry_is_a_slice_of_the_delta_entry() {
        // Around the sizes at which lengths take one byte more.
        for size in (0..400).chain(16_000..16_500) {
            let cluster = Cluster { name: "n".repeat(size), ..Cluster::default() };
            let resource = Resource::new(&cluster);
            let (whole, part) = (resource.delta_entry(), resource.sotw_entry());
            assert!(whole.as_ptr_range().contains(&part.as_ptr()), "it is a copy");
            let decoded = discovery::DiscoveryResponse::decode(part.clone()).unwrap();
            let [body] = &decoded.resources[..] else { panic!("{decoded:?}") };
            assert_eq!(body.type_url, Cluster::type_url());
            assert_eq!(Cluster::decode(&*body.value).unwrap(), cluster);
            let alone = discovery::DiscoveryResponse {
                resources: decoded.resources.clone(),
                ..discovery::DiscoveryResponse::default()
            };
            assert_eq!(decoded, alone, "nothing else is in there");
        }
    }

    /// R11, R23 (sotw).
    #[test]
    fn version_of_several_resources_covers_names_and_contents() {
        let cluster = |name: &str, content: &str| {
            Arc::new(Resource::new(&Cluster {
                name: name.to_owned(),
                alt_stat_name: content.to_owned(),
                ..Cluster::default()
            }))
        };
        let of = |clusters: &[(&str, &str)]| {
            let all: Vec<_> = clusters.iter().map(|(name, text)| cluster(name, text)).collect();
            Version::of_all(&all)
        };
        let both = of(&[("a", "1"), ("b", "1")]);
        assert_eq!(both, of(&[("a", "1"), ("b", "1")]));
        for other in [&[("a", "1"), ("b", "2")][..], &[("a", "1")], &[("a", "1"), ("c", "1")], &[]]
        {
            assert_ne!(both, of(other), "{other:?}");
        }
    }

    /// R23 (delta).
    #[test]
    fn version_is_the_hash_of_the_content() {
        let cluster =
            |name: &str| Resource::new(&Cluster { name: name.to_owned(), ..Cluster::default() });
        assert_eq!(cluster("a").version(), cluster("a").version());
        assert_ne!(cluster("a").version(), cluster("b").version());
        let text = cluster("a").version().to_string();
        assert_eq!(text.parse(), Ok(cluster("a").version()));
    }
}
