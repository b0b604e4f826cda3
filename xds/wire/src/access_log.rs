//! Access log entries of a proxy (`envoy.service.accesslog.v3`), reduced to the fields in use.

use envoy_types::pb::envoy::config::core::v3::RequestMethod;
use envoy_types::pb::envoy::data::accesslog::v3::{
    AccessLogCommon, HttpAccessLogEntry, tls_properties,
};
use envoy_types::pb::envoy::service::accesslog::v3 as accesslog;
use envoy_types::pb::envoy::service::accesslog::v3::stream_access_logs_message::LogEntries;
use tls_properties::certificate_properties::{SubjectAltName, subject_alt_name::San};

use crate::node::Node;

/// One message of an access log stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallLog {
    /// The proxy; only the first message of a stream must have it.
    pub node: Option<Node>,
    /// The calls.
    pub calls: Vec<LoggedCall>,
}

/// A call that a proxy reports. None of it is verified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggedCall {
    /// The cluster of the call; empty without one.
    pub cluster: String,
    /// The URIs in the certificate of the caller.
    pub peer: Vec<String>,
    /// The request; `None` for a TCP connection.
    pub request: Option<LoggedRequest>,
}

/// An HTTP request that a proxy reports.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggedRequest {
    /// Its method; `None` if HTTP does not define it.
    pub method: Option<&'static str>,
    /// Its path, with its query.
    pub path: String,
}

impl From<accesslog::StreamAccessLogsMessage> for CallLog {
    fn from(message: accesslog::StreamAccessLogsMessage) -> Self {
        let node = message.identifier.and_then(|identifier| identifier.node).map(Node::from);
        let calls = match message.log_entries {
            Some(LogEntries::HttpLogs(entries)) => {
                entries.log_entry.into_iter().map(http_call).collect()
            }
            Some(LogEntries::TcpLogs(entries)) => {
                let common = entries.log_entry.into_iter().map(|entry| entry.common_properties);
                common.map(|common| call(common.unwrap_or_default(), None)).collect()
            }
            None => Vec::new(),
        };
        Self { node, calls }
    }
}

fn http_call(entry: HttpAccessLogEntry) -> LoggedCall {
    let request = entry.request.unwrap_or_default();
    let method = match request.request_method() {
        RequestMethod::MethodUnspecified => None,
        method => Some(method.as_str_name()),
    };
    let request = LoggedRequest { method, path: request.path };
    call(entry.common_properties.unwrap_or_default(), Some(request))
}

fn call(common: AccessLogCommon, request: Option<LoggedRequest>) -> LoggedCall {
    let certificate = common.tls_properties.and_then(|tls| tls.peer_certificate_properties);
    let names = certificate.into_iter().flat_map(|certificate| certificate.subject_alt_name);
    let uri = |name: SubjectAltName| match name.san {
        Some(San::Uri(uri)) => Some(uri),
        _ => None,
    };
    let peer = names.filter_map(uri).collect();
    LoggedCall { cluster: common.upstream_cluster, peer, request }
}
