//! `consul` of `[service.endpoints]`: a Consul query. Only Consul interprets filters.

use std::sync::Arc;

use ironmesh_catalog::{ConsulQuery, Name};

use crate::limits::{CONSUL_FILTER, CONSUL_NAME};
use crate::table::{FindingReported, Value};

/// Reads the Consul query of a service, whose name is `None` if it is not known.
pub(super) fn read(value: Value<'_>, name: Option<&Name>) -> Result<ConsulQuery, FindingReported> {
    let mut table = value.table("a Consul query")?;
    let mut text = |key, longest| {
        table.optional(key, |value: Value<'_>| value.text(longest).map(Arc::<str>::from))
    };
    let service = text("service", CONSUL_NAME);
    let datacenter = text("datacenter", CONSUL_NAME);
    let namespace = text("namespace", CONSUL_NAME);
    let partition = text("partition", CONSUL_NAME);
    let filter = text("filter", CONSUL_FILTER);
    let tagged_address = text("tagged_address", CONSUL_NAME);
    table.finish();
    let own_name = name.map(|name| name.as_str().into());
    Ok(ConsulQuery {
        service: service?.or(own_name).ok_or(FindingReported)?,
        datacenter: datacenter?,
        namespace: namespace?,
        partition: partition?,
        filter: filter?,
        tagged_address: tagged_address?,
    })
}
