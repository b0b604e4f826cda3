//! What upstream traffic settings come to: of each setting of a service the word of the nearest object
//! that says it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::{
    HttpConnections, Level, OutlierDetection, RetryLimit, TcpConnections, UpstreamTrafficSetting,
};
use crate::service::Service;
use crate::specification::MeshSpecification;
use crate::way::Cited;

/// The upstream traffic settings of a mesh, by what they are about.
#[derive(Debug, Clone, Default)]
pub struct UpstreamSettings(BTreeMap<Level, Vec<Arc<UpstreamTrafficSetting>>>);

/// One thing that is said of a service, in words that can be told and compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Said {
    /// The key of policy: `connection_settings.http.max_requests`.
    pub key: String,
    /// What it is, as policy writes it.
    pub value: String,
    /// Who says so.
    pub by: Cited,
}

impl UpstreamSettings {
    /// Those of `specification`.
    pub fn of(specification: &MeshSpecification) -> Self {
        let mut settings = Self::default();
        for setting in specification.upstream_traffic_settings.values() {
            settings.0.entry(setting.level.clone()).or_default().push(Arc::clone(setting));
        }
        settings
    }

    /// Of the setting that `say` finds in an object: what is said of `service`, and by whom. To a part of a
    /// service applies what is said of the part itself before what is said of the whole.
    pub fn decided<T>(
        &self,
        service: &Service,
        say: impl Fn(&UpstreamTrafficSetting) -> Option<&T>,
    ) -> Option<(&T, &UpstreamTrafficSetting)> {
        let namespace = &service.name.namespace;
        let levels = [
            Level::Service(service.name.clone()),
            Level::Service(service.served_as().clone()),
            Level::Namespace(namespace.clone()),
            Level::Mesh,
        ];
        let objects = levels.iter().filter_map(|level| self.0.get(level)).flatten();
        // (Of one level one says it at most: others are refused by validation.)
        objects.map(|object| &**object).find_map(|object| Some((say(object)?, object)))
    }

    /// `connection_settings.tcp` of calls of `service`.
    pub fn tcp(&self, service: &Service) -> Option<&TcpConnections> {
        self.decided(service, |object| object.tcp.as_ref()).map(|(tcp, _)| tcp)
    }

    /// `connection_settings.http` of calls of `service`.
    pub fn http(&self, service: &Service) -> Option<&HttpConnections> {
        self.decided(service, |object| object.http.as_ref()).map(|(http, _)| http)
    }

    /// `outlier_detection` of calls of `service`.
    pub fn outlier_detection(&self, service: &Service) -> Option<&OutlierDetection> {
        self.decided(service, |object| object.outlier_detection.as_ref()).map(|(one, _)| one)
    }

    /// All that is said of `service`, in the order of the reference.
    pub fn said(&self, service: &Service) -> Vec<Said> {
        let mut said = Vec::new();
        let has_http = service.ports.iter().any(|port| port.protocol.is_http());
        if let Some((tcp, by)) = self.decided(service, |object| object.tcp.as_ref()) {
            tell(&mut said, by, "connection_settings.tcp", tcp_words(tcp));
        }
        if let Some((http, by)) = self.decided(service, |object| object.http.as_ref())
            && has_http
        {
            tell(&mut said, by, "connection_settings.http", http_words(http));
        }
        if let Some((one, by)) = self.decided(service, |object| object.outlier_detection.as_ref()) {
            tell(&mut said, by, "outlier_detection", outlier_words(one));
        }
        said
    }
}

/// What a key below another says.
type Words = (&'static str, String);

fn tell(said: &mut Vec<Said>, by: &UpstreamTrafficSetting, key: &str, words: Vec<Words>) {
    let cited = || Cited {
        object: format!("upstream traffic setting `{}/{}`", by.namespace, by.name),
        spot: by.spot.clone(),
    };
    said.extend(words.into_iter().map(|(below, value)| Said {
        key: format!("{key}.{below}"),
        value,
        by: cited(),
    }));
}

fn tcp_words(tcp: &TcpConnections) -> Vec<Words> {
    let TcpConnections { max_connections, connect_timeout } = tcp;
    let connections = max_connections.map(|most| ("max_connections", most.to_string()));
    let timeout = connect_timeout.map(|time| ("connect_timeout", format!("{time:?}")));
    connections.into_iter().chain(timeout).collect()
}

fn http_words(http: &HttpConnections) -> Vec<Words> {
    let HttpConnections {
        max_requests,
        max_requests_per_connection,
        max_pending_requests,
        retries,
    } = http;
    let number = |key, value: &Option<u32>| value.map(|value| (key, value.to_string()));
    let retries = retries.map(|limit| match limit {
        RetryLimit::Most(most) => ("max_retries", most.to_string()),
        RetryLimit::Budget { percent, min_concurrency: None } => {
            ("retry_budget", format!("{percent} %"))
        }
        RetryLimit::Budget { percent, min_concurrency: Some(least) } => {
            ("retry_budget", format!("{percent} %, {least} in any case"))
        }
    });
    let words = [
        number("max_requests", max_requests),
        number("max_requests_per_connection", max_requests_per_connection),
        number("max_pending_requests", max_pending_requests),
        retries,
    ];
    words.into_iter().flatten().collect()
}

fn outlier_words(detection: &OutlierDetection) -> Vec<Words> {
    let OutlierDetection {
        consecutive_5xx,
        consecutive_gateway_errors,
        interval,
        base_ejection_time,
        max_ejection_percent,
    } = detection;
    let number = |key, value: &Option<u32>| value.map(|value| (key, value.to_string()));
    let counts = [
        number("consecutive_5xx", consecutive_5xx),
        number("consecutive_gateway_errors", consecutive_gateway_errors),
    ];
    let others = [
        ("interval", format!("{interval:?}")),
        ("base_ejection_time", format!("{base_ejection_time:?}")),
        ("max_ejection_percent", format!("{max_ejection_percent} %")),
    ];
    counts.into_iter().flatten().chain(others).collect()
}
