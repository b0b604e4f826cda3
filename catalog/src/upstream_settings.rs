//! What upstream traffic settings come to: of each setting of a service the word of the nearest object
//! that says it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cited::Cited;
use crate::locality::Locality;
use crate::policy::{
    Descriptor, Entry, GlobalHttpLimit, GlobalTcpLimit, HttpConnections, Level, LimitedRoute,
    LocalHttpLimit, LocalitySetting, OutlierDetection, Rate, RateLimitService, RetryLimit,
    TcpConnections, UpstreamTrafficSetting,
};
use crate::service::{Port, Service};
use crate::specification::MeshSpecification;

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

    /// `locality` of calls of `service`. What is outside of the mesh has no place.
    pub fn locality(&self, service: &Service) -> Option<&Arc<LocalitySetting>> {
        let decided = self.decided(service, |object| object.locality.as_ref());
        decided.filter(|_| service.external.is_none()).map(|(one, _)| one)
    }

    /// `rate_limit.local.http` of requests to `service`.
    pub fn local_http(&self, service: &Service) -> Option<&LocalHttpLimit> {
        self.decided(service, |object| object.local_http.as_ref()).map(|(one, _)| one)
    }

    /// `rate_limit.local.tcp` of connections to `service`.
    pub fn local_tcp(&self, service: &Service) -> Option<Rate> {
        self.decided(service, |object| object.local_tcp.as_ref()).map(|(one, _)| *one)
    }

    /// `rate_limit.global.http` of requests to `service`.
    pub fn global_http(&self, service: &Service) -> Option<&GlobalHttpLimit> {
        self.decided(service, |object| object.global_http.as_ref()).map(|(one, _)| one)
    }

    /// `rate_limit.global.tcp` of connections to `service`.
    pub fn global_tcp(&self, service: &Service) -> Option<&GlobalTcpLimit> {
        self.decided(service, |object| object.global_tcp.as_ref()).map(|(one, _)| one)
    }

    /// `http_routes` of requests to `service`.
    pub fn http_routes(&self, service: &Service) -> &[LimitedRoute] {
        self.decided(service, |object| object.http_routes.as_ref()).map_or(&[], |(all, _)| all)
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
        if let Some((one, by)) = self.decided(service, |object| object.locality.as_ref())
            && service.external.is_none()
        {
            tell(&mut said, by, "locality", locality_words(one));
        }
        // What is outside of the mesh has no sidecar that could count.
        if service.external.is_none() {
            self.tell_rates(service, &mut said);
        }
        said
    }

    fn tell_rates(&self, service: &Service, said: &mut Vec<Said>) {
        let is_http = |port: &Port| port.protocol.is_http();
        let has_http = service.ports.iter().any(is_http);
        if let Some((one, by)) = self.decided(service, |object| object.local_http.as_ref())
            && has_http
        {
            tell(said, by, "rate_limit.local", vec![("http", local_http_words(one))]);
        }
        if let Some((rate, by)) = self.decided(service, |object| object.local_tcp.as_ref())
            && !service.ports.iter().all(is_http)
        {
            tell(said, by, "rate_limit.local", vec![("tcp", rate.to_string())]);
        }
        let global = self.decided(service, |object| object.global_http.as_ref());
        if let Some((one, by)) = global
            && has_http
        {
            tell(said, by, "rate_limit.global", vec![("http", global_http_words(one))]);
        }
        if let Some((one, by)) = self.decided(service, |object| object.global_tcp.as_ref())
            && !service.ports.iter().all(is_http)
        {
            tell(said, by, "rate_limit.global", vec![("tcp", global_tcp_words(one))]);
        }
        if let Some((routes, by)) = self.decided(service, |object| object.http_routes.as_ref())
            && has_http
        {
            for LimitedRoute { path, local_http, descriptors } in routes {
                let key = format!("http_routes `{}` rate_limit", path.text);
                let local = local_http.as_ref().map(|one| ("local.http", local_http_words(one)));
                let global = descriptors.as_ref().filter(|_| global.is_some());
                let global = global.map(|all| ("global.descriptors", descriptors_words(all)));
                tell(said, by, &key, local.into_iter().chain(global).collect());
            }
        }
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
    let entry = |entry: &Entry| match entry {
        Entry::GenericKey { key, value } => {
            format!("{}={value}", key.as_deref().unwrap_or("generic_key"))
        }
        Entry::RemoteAddress => "remote_address".to_owned(),
        Entry::RequestHeader { name, key } => format!("{key}=<{name}>"),
        Entry::HeaderValueMatch { key, value, .. } => {
            format!("{}={value}", key.as_deref().unwrap_or("header_match"))
        }
    };
    let one = |one: &Descriptor| one.0.iter().map(entry).collect::<Vec<_>>().join(" ");
    let all: Vec<_> = all.iter().map(|descriptor| format!("({})", one(descriptor))).collect();
    all.join(", ")
}
