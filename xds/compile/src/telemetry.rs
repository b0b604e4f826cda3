//! Telemetry: the access log and the traces that policy sets for a service.
//!
//! It is part of the service's filter chains and of the listeners of its own calls, since Envoy
//! accepts it nowhere else. A change drains the connections of these chains only
//! (docs/decisions/0038).

mod access_log;
mod collector;
mod tracing;

use ironmesh_catalog::{AccessLog, Code, Collector, Finding, LogSink, Proxy, ServiceName, Tracing};
use ironmesh_xds_wire::pb::envoy::config::accesslog::v3 as pb;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager;

use crate::mesh_view::MeshView;

pub(crate) use collector::cluster;

/// The telemetry of one service at one proxy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServiceTelemetry<'a> {
    /// The service.
    service: &'a ServiceName,
    access_log: Option<&'a AccessLog>,
    /// The proxy with the service's chains and listeners.
    proxy: &'a Proxy,
    tracing: Option<&'a Tracing>,
}

impl<'a> ServiceTelemetry<'a> {
    /// The telemetry of `service` at `proxy`.
    pub(crate) fn of(mesh: MeshView<'a>, service: &'a ServiceName, proxy: &'a Proxy) -> Self {
        Self {
            service,
            proxy,
            access_log: mesh.access_log(service).map(|(one, _)| one),
            tracing: mesh.tracing(service),
        }
    }

    /// The collectors that receive it.
    pub(crate) fn collectors(self) -> impl Iterator<Item = &'a Collector> {
        let of_log = self.access_log.and_then(|log| log.sink.collector());
        of_log.into_iter().chain(self.tracing.map(|tracing| &tracing.collector))
    }

    /// The access log of requests.
    pub(crate) fn request_log(self) -> Option<pb::AccessLog> {
        self.written().map(|written| access_log::request_log(&written))
    }

    /// The access log of TCP connections.
    pub(crate) fn connection_log(self) -> Option<pb::AccessLog> {
        self.written().map(|written| access_log::connection_log(&written))
    }

    /// The traces of requests.
    pub(crate) fn tracing(self) -> Option<http_connection_manager::Tracing> {
        self.tracing.map(|one| tracing::tracing(one, self.service))
    }

    /// The access log, unless it goes to a file and the proxy's bootstrap allows no folder for
    /// logs.
    fn written(self) -> Option<Written<'a>> {
        let (log, service) = (self.access_log?, self.service);
        let file = match &log.sink {
            LogSink::File(name) => self.proxy.metadata.access_log_dir.as_ref()?.file(name),
            LogSink::Stdout | LogSink::OpenTelemetry { .. } => String::new(),
        };
        Some(Written { log, service, file })
    }

    /// The name of the service at collectors.
    fn name(service: &ServiceName) -> String {
        format!("{}.{}", service.name, service.namespace)
    }
}

/// An access log of a service at one proxy.
struct Written<'a> {
    log: &'a AccessLog,
    service: &'a ServiceName,
    /// The path of the file, if the log goes to one.
    file: String,
}

/// Policy sets a log file, and the proxy's bootstrap allows no folder for logs.
const NO_LOG_FOLDER: Code = Code(664);

/// The finding about a proxy that writes no access log for `service`, because its bootstrap allows
/// no folder.
pub(crate) fn unwritten_log(
    mesh: MeshView<'_>,
    service: &ServiceName,
    proxy: &Proxy,
) -> Option<Finding> {
    let (log, by) = mesh.access_log(service)?;
    let LogSink::File(name) = &log.sink else { return None };
    if proxy.metadata.access_log_dir.is_some() {
        return None;
    }
    let id = proxy.record.id;
    let message =
        format!("proxy {id} does not write the access log `{name}`: it has no folder for logs");
    let help = "write its bootstrap again with `--access-log-dir DIR`, or log to another sink";
    let finding = Finding::warning(NO_LOG_FOLDER, Some(by.spot.clone()), message);
    Some(finding.object(id).label("logs to a file").help(help))
}
