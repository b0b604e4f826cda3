//! The effective upstream traffic settings of each service: for each setting, the most specific object wins.
//!
//! This module owns the choice between objects, and the settings in words. Objects are never merged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cited::Cited;
use crate::locality::Locality;
use crate::name::ServiceName;
use crate::policy::{
    Descriptor, DescriptorEntry, GlobalHttpLimit, GlobalTcpLimit, HttpConnections, Level,
    LimitedRoute, LocalHttpLimit, LocalitySetting, OutlierDetection, Rate, RateLimitService,
    RetryLimit, TcpConnections, UpstreamTrafficSetting,
};
use crate::service::{Port, Service};
use crate::specification::MeshSpecification;

/// The upstream traffic settings of a mesh, by level.
#[derive(Debug, Clone, Default)]
pub struct UpstreamSettings(BTreeMap<Level, Vec<Arc<UpstreamTrafficSetting>>>);

/// One effective setting of a service, in words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EffectiveSetting {
    /// The key of policy: `connection_settings.http.max_requests`.
    pub key: String,
    /// The value, as in policy.
    pub value: String,
    /// The object that sets it.
    pub by: Cited,
}

impl UpstreamSettings {
    /// The upstream traffic settings of `specification`.
    pub fn of(specification: &MeshSpecification) -> Self {
        let mut settings = Self::default();
        for setting in specification.upstream_traffic_settings.values() {
            settings.0.entry(setting.level.clone()).or_default().push(Arc::clone(setting));
        }
        settings
    }

    /// Whether `other` has the same objects of the service, of its namespace and of the mesh. A subset also depends on
    /// the objects of its service.
    pub fn are_same_for(&self, other: &Self, service: &ServiceName) -> bool {
        let levels = [
            Level::Service(service.clone()),
            Level::Namespace(service.namespace.clone()),
            Level::Mesh,
        ];
        levels.iter().all(|level| self.0.get(level) == other.0.get(level))
    }

    /// The setting that `get` finds in the most specific object of `service`, with that object. A subset has
    /// precedence over its service.
    pub fn most_specific<T>(
        &self,
        service: &Service,
        get: impl Fn(&UpstreamTrafficSetting) -> Option<&T>,
    ) -> Option<(&T, &UpstreamTrafficSetting)> {
        let namespace = &service.name.namespace;
        let levels = [
            Level::Service(service.name.clone()),
            Level::Service(service.served_as().clone()),
            Level::Namespace(namespace.clone()),
            Level::Mesh,
        ];
        let objects = levels.iter().filter_map(|level| self.0.get(level)).flatten();
        // (Validation rejects a second object with one setting of one level.)
        objects.map(|object| &**object).find_map(|object| Some((get(object)?, object)))
    }

    /// `connection_settings.tcp` of calls of `service`.
    pub fn tcp(&self, service: &Service) -> Option<&TcpConnections> {
        self.most_specific(service, |object| object.tcp.as_ref()).map(|(tcp, _)| tcp)
    }

    /// `connection_settings.http` of calls of `service`.
    pub fn http(&self, service: &Service) -> Option<&HttpConnections> {
        self.most_specific(service, |object| object.http.as_ref()).map(|(http, _)| http)
    }

    /// `outlier_detection` of calls of `service`.
    pub fn outlier_detection(&self, service: &Service) -> Option<&OutlierDetection> {
        self.most_specific(service, |object| object.outlier_detection.as_ref()).map(|(one, _)| one)
    }

    /// `locality` of calls of `service`. External services have no locality.
    pub fn locality(&self, service: &Service) -> Option<&Arc<LocalitySetting>> {
        let most_specific = self.most_specific(service, |object| object.locality.as_ref());
        most_specific.filter(|_| service.external.is_none()).map(|(one, _)| one)
    }

    /// `rate_limit.local.http` of requests to `service`.
    pub fn local_http(&self, service: &Service) -> Option<&LocalHttpLimit> {
        self.most_specific(service, |object| object.local_http.as_ref()).map(|(one, _)| one)
    }

    /// `rate_limit.local.tcp` of connections to `service`.
    pub fn local_tcp(&self, service: &Service) -> Option<Rate> {
        self.most_specific(service, |object| object.local_tcp.as_ref()).map(|(one, _)| *one)
    }

    /// `rate_limit.global.http` of requests to `service`.
    pub fn global_http(&self, service: &Service) -> Option<&GlobalHttpLimit> {
        self.most_specific(service, |object| object.global_http.as_ref()).map(|(one, _)| one)
    }

    /// `rate_limit.global.tcp` of connections to `service`.
    pub fn global_tcp(&self, service: &Service) -> Option<&GlobalTcpLimit> {
        self.most_specific(service, |object| object.global_tcp.as_ref()).map(|(one, _)| one)
    }

    /// `http_routes` of requests to `service`.
    pub fn http_routes(&self, service: &Service) -> &[LimitedRoute] {
        self.most_specific(service, |object| object.http_routes.as_ref())
            .map_or(&[], |(all, _)| all)
    }

    /// All effective settings of `service`, in the order of the reference.
    pub fn effective(&self, service: &Service) -> Vec<EffectiveSetting> {
        let mut settings = Vec::new();
        let has_http = service.ports.iter().any(|port| port.protocol.is_http());
        if let Some((tcp, by)) = self.most_specific(service, |object| object.tcp.as_ref()) {
            add(&mut settings, by, "connection_settings.tcp", tcp_words(tcp));
        }
        if let Some((http, by)) = self.most_specific(service, |object| object.http.as_ref())
            && has_http
        {
            add(&mut settings, by, "connection_settings.http", http_words(http));
        }
        if let Some((one, by)) =
            self.most_specific(service, |object| object.outlier_detection.as_ref())
        {
            add(&mut settings, by, "outlier_detection", outlier_words(one));
        }
        if let Some((one, by)) = self.most_specific(service, |object| object.locality.as_ref())
            && service.external.is_none()
        {
            add(&mut settings, by, "locality", locality_words(one));
        }
        // An external service has no sidecar that could limit rates.
        if service.external.is_none() {
            self.add_rate_limits(service, &mut settings);
        }
        settings
    }

    fn add_rate_limits(&self, service: &Service, settings: &mut Vec<EffectiveSetting>) {
        let is_http = |port: &Port| port.protocol.is_http();
        let has_http = service.ports.iter().any(is_http);
        if let Some((one, by)) = self.most_specific(service, |object| object.local_http.as_ref())
            && has_http
        {
            add(settings, by, "rate_limit.local", vec![("http", local_http_words(one))]);
        }
        if let Some((rate, by)) = self.most_specific(service, |object| object.local_tcp.as_ref())
            && !service.ports.iter().all(is_http)
        {
            add(settings, by, "rate_limit.local", vec![("tcp", rate.to_string())]);
        }
        let global = self.most_specific(service, |object| object.global_http.as_ref());
        if let Some((one, by)) = global
            && has_http
        {
            add(settings, by, "rate_limit.global", vec![("http", global_http_words(one))]);
        }
        if let Some((one, by)) = self.most_specific(service, |object| object.global_tcp.as_ref())
            && !service.ports.iter().all(is_http)
        {
            add(settings, by, "rate_limit.global", vec![("tcp", global_tcp_words(one))]);
        }
        if let Some((routes, by)) =
            self.most_specific(service, |object| object.http_routes.as_ref())
            && has_http
        {
            for LimitedRoute { path, local_http, descriptors } in routes {
                let key = format!("http_routes `{}` rate_limit", path.text);
                let local = local_http.as_ref().map(|one| ("local.http", local_http_words(one)));
                let global = descriptors.as_ref().filter(|_| global.is_some());
                let global = global.map(|all| ("global.descriptors", descriptors_words(all)));
                add(settings, by, &key, local.into_iter().chain(global).collect());
            }
        }
    }
}

/// A nested key with its value in words.
type Words = (&'static str, String);

fn add(
    settings: &mut Vec<EffectiveSetting>,
    by: &UpstreamTrafficSetting,
    key: &str,
    words: Vec<Words>,
) {
    let cited = || Cited {
        object: format!("upstream traffic setting `{}/{}`", by.namespace, by.name),
        spot: by.spot.clone(),
    };
    settings.extend(words.into_iter().map(|(below, value)| EffectiveSetting {
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
            ("retry_budget", format!("{percent} %, at least {least}"))
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

fn locality_words(setting: &LocalitySetting) -> Vec<Words> {
    let LocalitySetting { prefer_local, failover, distribute } = setting;
    let from = |place: &Locality| {
        if place.is_empty() { String::new() } else { format!("from {place} ") }
    };
    let near = prefer_local.map(|near| ("prefer_local", near.to_string()));
    let order = failover.iter().map(|one| {
        let to: Vec<_> = one.to.iter().map(Locality::to_string).collect();
        ("failover", format!("{}to {}", from(&one.from), to.join(", then ")))
    });
    let shares = distribute.iter().map(|one| {
        let to = one.to.iter().map(|(place, percent)| format!("{percent} % to {place}"));
        ("distribute", format!("{}{}", from(&one.from), to.collect::<Vec<_>>().join(", ")))
    });
    near.into_iter().chain(order).chain(shares).collect()
}

fn local_http_words(limit: &LocalHttpLimit) -> String {
    let LocalHttpLimit { rate, status, headers } = limit;
    let headers: Vec<_> = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let headers =
        if headers.is_empty() { String::new() } else { format!(" with {}", headers.join(", ")) };
    format!("{rate}, else {status}{headers}")
}

fn global_http_words(limit: &GlobalHttpLimit) -> String {
    let descriptors = descriptors_words(&limit.descriptors);
    let quota = quota(&limit.service, &limit.domain, limit.timeout, limit.fail_open);
    format!("{quota}, by {descriptors}, else {}", limit.status)
}

fn global_tcp_words(limit: &GlobalTcpLimit) -> String {
    let one = |entries: &Vec<(Arc<str>, Arc<str>)>| {
        let entries = entries.iter().map(|(key, value)| format!("{key}={value}"));
        format!("({})", entries.collect::<Vec<_>>().join(" "))
    };
    let descriptors: Vec<_> = limit.descriptors.iter().map(one).collect();
    let quota = quota(&limit.service, &limit.domain, limit.timeout, limit.fail_open);
    format!("{quota}, by {}", descriptors.join(", "))
}

/// The rate limit service, its domain, and the result without an answer, in words.
fn quota(service: &RateLimitService, domain: &str, timeout: Duration, fail_open: bool) -> String {
    let fallback = if fail_open { "allowed" } else { "rejected" };
    format!(
        "quota of {service} for domain `{domain}` ({fallback} without an answer in {timeout:?})"
    )
}

fn descriptors_words(all: &[Descriptor]) -> String {
    let entry = |entry: &DescriptorEntry| match entry {
        DescriptorEntry::GenericKey { key, value } => {
            format!("{}={value}", key.as_deref().unwrap_or("generic_key"))
        }
        DescriptorEntry::RemoteAddress => "remote_address".to_owned(),
        DescriptorEntry::RequestHeader { name, key } => format!("{key}=<{name}>"),
        DescriptorEntry::HeaderValueMatch { key, value, .. } => {
            format!("{}={value}", key.as_deref().unwrap_or("header_match"))
        }
    };
    let one = |one: &Descriptor| one.0.iter().map(entry).collect::<Vec<_>>().join(" ");
    let all: Vec<_> = all.iter().map(|descriptor| format!("({})", one(descriptor))).collect();
    all.join(", ")
}
