//! What a proxy tells of calls: the access log and the traces that policy says for a service.
//!
//! It stands in the filter chains of the service and in the listeners of its own calls, since Envoy takes
//! it nowhere else. An edit of it drains the connections of these chains and of no others
//! (docs/decisions/0038).

mod access_log;
mod collector;
mod tracing;

use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{AccessLog, Collector, ServiceName, Tracing};
use ironmesh_xds_wire::pb::envoy::config::accesslog::v3 as pb;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager;

pub(crate) use collector::cluster;

/// What the sidecars of a service tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Telling<'a> {
    /// Whose sidecars these are.
    service: &'a ServiceName,
    access_log: Option<&'a AccessLog>,
    tracing: Option<&'a Tracing>,
}

impl<'a> Telling<'a> {
    /// What `telemetries` say of `service`.
    pub(crate) fn of(telemetries: &'a Telemetries, service: &'a ServiceName) -> Self {
        Self {
            service,
            access_log: telemetries.access_log(service).map(|(said, _)| said),
            tracing: telemetries.tracing(service).map(|(said, _)| said),
        }
    }

    /// Who is told.
    pub(crate) fn collectors(self) -> impl Iterator<Item = &'a Collector> {
        let of_log = self.access_log.and_then(|log| log.sink.collector());
        of_log.into_iter().chain(self.tracing.map(|tracing| &tracing.collector))
    }

    /// The access log of requests.
    pub(crate) fn of_requests(self) -> Option<pb::AccessLog> {
        self.access_log.map(|log| access_log::of_requests(log, self.service))
    }

    /// The access log of TCP connections.
    pub(crate) fn of_connections(self) -> Option<pb::AccessLog> {
        self.access_log.map(|log| access_log::of_connections(log, self.service))
    }

    /// The traces of requests.
    pub(crate) fn tracing(self) -> Option<http_connection_manager::Tracing> {
        self.tracing.map(|said| tracing::tracing(said, self.service))
    }

    /// What the service is called by those who are told.
    fn name(service: &ServiceName) -> String {
        format!("{}.{}", service.name, service.namespace)
    }
}
