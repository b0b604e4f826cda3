//! Endpoints: where the processes of a service are, and through which proxy they are reached.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};

use crate::name::ServiceName;
use crate::proxy::ProxyId;

/// What an endpoints provider found: one process of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// The address of its machine.
    pub address: IpAddr,
    /// The port where the application listens; the service port's target where it is left out.
    pub port: Option<u16>,
    /// Its share of the service's traffic, relative to the others.
    pub weight: u32,
    /// The proxy in front of it, where the provider carries a key that tells.
    pub proxy: Option<ProxyId>,
    /// What is said of it besides: the version that it runs, say.
    pub labels: Labels,
}

/// Labels of an endpoint: any words, by any names. A copy costs nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Labels(Arc<BTreeMap<Arc<str>, Arc<str>>>);

impl Labels {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each name with its word, in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, word)| (&**name, &**word))
    }

    /// Whether all of `selector` are among them.
    pub fn include(&self, selector: &Self) -> bool {
        selector.0.iter().all(|(name, word)| self.0.get(name) == Some(word))
    }
}

impl<N: Into<Arc<str>>, W: Into<Arc<str>>> FromIterator<(N, W)> for Labels {
    fn from_iter<I: IntoIterator<Item = (N, W)>>(labels: I) -> Self {
        Self(Arc::new(labels.into_iter().map(|(name, word)| (name.into(), word.into())).collect()))
    }
}

impl fmt::Display for Labels {
    /// Writes `name=word,name=word`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (name, word)) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { "," };
            write!(f, "{comma}{name}={word}")?;
        }
        Ok(())
    }
}

/// All that the providers know: the endpoints of each service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Discovered(pub OrdMap<ServiceName, Arc<Vec<Endpoint>>>);

/// An endpoint as callers dial it: the mesh address of a proxy, with the weight of all that is
/// behind it. (The same address twice in one answer would be one host with the first weight.)
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct MeshEndpoint {
    /// The proxy's mesh address; in plaintext, the application's own.
    pub address: SocketAddr,
    /// How it is spoken to.
    pub transport: Transport,
    /// The sum of the weights behind the address, at least 1.
    pub weight: u32,
}

/// How an endpoint is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Transport {
    /// By mutual TLS: a proxy is in front of it.
    MutualTls,
    /// In plaintext: no proxy is in front of it, and its service is permissive.
    Plaintext,
}
