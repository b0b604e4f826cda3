//! What policy says of the endpoints that Consul knows.

use std::fmt;
use std::sync::Arc;

/// What Consul is asked for: the instances of one of its services.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsulQuery {
    /// What the service is called in Consul.
    pub service: Arc<str>,
    /// Where it is asked for; what the settings say where it is left out.
    pub datacenter: Option<Arc<str>>,
    /// Consul's namespace, of its Enterprise edition; likewise.
    pub namespace: Option<Arc<str>>,
    /// Consul's partition, of its Enterprise edition; likewise.
    pub partition: Option<Arc<str>>,
    /// Which instances, in Consul's filter language; all of them where it is left out.
    pub filter: Option<Arc<str>>,
    /// Which of the tagged addresses of an instance is taken (`lan_ipv4`, `wan`); its own where it is left
    /// out, or where the instance has no such one.
    pub tagged_address: Option<Arc<str>>,
}

impl ConsulQuery {
    /// All instances of the service of this name, where the settings say.
    pub fn of(service: impl Into<Arc<str>>) -> Self {
        Self {
            service: service.into(),
            datacenter: None,
            namespace: None,
            partition: None,
            filter: None,
            tagged_address: None,
        }
    }
}

impl fmt::Display for ConsulQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "those of `{}` in Consul", self.service)?;
        let parts = [
            ("datacenter", &self.datacenter),
            ("namespace", &self.namespace),
            ("partition", &self.partition),
            ("filter", &self.filter),
            ("tagged address", &self.tagged_address),
        ];
        let mut told = parts.iter().filter_map(|(what, value)| Some((what, value.as_ref()?)));
        told.try_for_each(|(what, value)| write!(f, ", {what} `{value}`"))
    }
}
