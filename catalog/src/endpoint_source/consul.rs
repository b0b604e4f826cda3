//! The query of policy for endpoints in Consul.

use std::fmt;
use std::sync::Arc;

/// A query to Consul for the instances of one of its services.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConsulQuery {
    /// The name of the service in Consul.
    pub service: Arc<str>,
    /// The datacenter. Default: that of the settings.
    pub datacenter: Option<Arc<str>>,
    /// The namespace in Consul Enterprise. Default: that of the settings.
    pub namespace: Option<Arc<str>>,
    /// The partition in Consul Enterprise. Default: that of the settings.
    pub partition: Option<Arc<str>>,
    /// A filter of the instances, in Consul's filter language. Default: all instances.
    pub filter: Option<Arc<str>>,
    /// The tagged address of an instance that is used (`lan_ipv4`, `wan`). Default, and without such a tag: its
    /// own address.
    pub tagged_address: Option<Arc<str>>,
}

impl ConsulQuery {
    /// All instances of the service of this name, with the defaults of the settings.
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
        let mut given = parts.iter().filter_map(|(what, value)| Some((what, value.as_ref()?)));
        given.try_for_each(|(what, value)| write!(f, ", {what} `{value}`"))
    }
}
