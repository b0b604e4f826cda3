//! What a proxy tells of calls: the access log and the traces that policy says for a service.
//!
//! It stands in the filter chains of the service and in the listeners of its own calls, since Envoy takes
//! it nowhere else. An edit of it drains the connections of these chains and of no others
//! (docs/decisions/0038).

mod access_log;
mod collector;
mod tracing;

use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{AccessLog, Code, Collector, Finding, LogSink, Proxy, ServiceName, Tracing};
use ironmesh_xds_wire::pb::envoy::config::accesslog::v3 as pb;
use ironmesh_xds_wire::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager;

pub(crate) use collector::cluster;

/// What the sidecars of a service tell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Telling<'a> {
    /// Whose sidecars these are.
    service: &'a ServiceName,
    access_log: Option<&'a AccessLog>,
    /// The proxy that has these sidecars' chains and listeners.
    proxy: &'a Proxy,
    tracing: Option<&'a Tracing>,
}

impl<'a> Telling<'a> {
    /// What `telemetries` say of `service`, at `proxy`.
    pub(crate) fn of(
        telemetries: &'a Telemetries,
        service: &'a ServiceName,
        proxy: &'a Proxy,
    ) -> Self {
        Self {
            service,
            proxy,
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
        self.written().map(|written| access_log::of_requests(&written))
    }

    /// The access log of TCP connections.
    pub(crate) fn of_connections(self) -> Option<pb::AccessLog> {
        self.written().map(|written| access_log::of_connections(&written))
    }

    /// The traces of requests.
    pub(crate) fn tracing(self) -> Option<http_connection_manager::Tracing> {
        self.tracing.map(|said| tracing::tracing(said, self.service))
    }

    /// The access log, unless it goes to a file and the proxy's bootstrap allows no folder for logs.
    fn written(self) -> Option<Written<'a>> {
        let (log, service) = (self.access_log?, self.service);
        let file = match &log.sink {
            LogSink::File(name) => self.proxy.statement.access_log_dir.as_ref()?.file(name),
            LogSink::Stdout | LogSink::OpenTelemetry { .. } => String::new(),
        };
        Some(Written { log, service, file })
    }

    /// What the service is called by those who are told.
    fn name(service: &ServiceName) -> String {
        format!("{}.{}", service.name, service.namespace)
    }
}

/// An access log of a service at one proxy.
struct Written<'a> {
    log: &'a AccessLog,
    service: &'a ServiceName,
    /// The path of the file, where the log goes to one.
    file: String,
}

/// Policy has a proxy log to a file, and the proxy's bootstrap allows no folder for that.
const NO_LOG_FOLDER: Code = Code(664);

/// The finding on a proxy that writes no access log for `service`, because its bootstrap allows no folder.
pub(crate) fn unwritten_log(
    telemetries: &Telemetries,
    service: &ServiceName,
    proxy: &Proxy,
) -> Option<Finding> {
    let (log, by) = telemetries.access_log(service)?;
    let LogSink::File(name) = &log.sink else { return None };
    if proxy.statement.access_log_dir.is_some() {
        return None;
    }
    let id = proxy.record.id;
    let message =
        format!("proxy {id} does not write the access log `{name}`: it has no folder for logs");
    let help = "write its bootstrap again with `--access-log-dir DIR`, or log to another sink";
    let finding = Finding::warning(NO_LOG_FOLDER, Some(by.spot.clone()), message);
    Some(finding.label("logs to a file").help(help))
}
