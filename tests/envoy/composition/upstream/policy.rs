//! The policy of the mesh: a service for each pair of settings of its namespace and itself.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use super::super::model::Setting::{self, Retries};
use super::super::model::{ALL, Level, rule};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UpstreamSetting {
    Requests,
    Connections,
    Outliers,
    Locality,
    Local,
    LocalOfRoute,
    Global,
    Log,
}

pub(super) use UpstreamSetting::{
    Connections, Global, Local, LocalOfRoute, Locality, Log, Outliers, Requests,
};

pub(super) const EVERY_UPSTREAM: [UpstreamSetting; 8] =
    [Requests, Connections, Outliers, Locality, Local, LocalOfRoute, Global, Log];

/// The number that identifies the level of a setting; for limits it is the limit.
pub(super) fn number(level: Level) -> u16 {
    match level {
        Level::Mesh => 3,
        Level::Namespace => 2,
        _ => 1,
    }
}

/// The status of a request beyond the limit of a service, or of one of its routes.
pub(super) fn rejection_status(setting: UpstreamSetting, level: Level) -> u16 {
    if setting == LocalOfRoute { 505 + number(level) } else { 420 + number(level) }
}

impl UpstreamSetting {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The object that sets this for a level. `about` is its target.
    pub(super) fn object(self, level: Level, about: &str, others: IpAddr) -> String {
        let number = number(level);
        let level_name = level.name();
        let limit = |setting| {
            let status = rejection_status(setting, level);
            format!("{{ requests = {number}, unit = \"hour\", response_status_code = {status} }}")
        };
        let key = match self {
            Requests => format!("connection_settings.http.max_requests = {}", 1000 + number),
            Connections => {
                format!("connection_settings.tcp.connect_timeout = \"{}s\"", 10 + number)
            }
            Outliers => format!("outlier_detection.consecutive_5xx = {}", 1000 + number),
            Locality => format!(
                "locality.distribute = [{{ to = [{{ locality = \"eu\", weight = {} }}, {{ locality = \"us\", weight = {} }}] }}]",
                10 * number,
                100 - 10 * number
            ),
            Local => format!("rate_limit.local.http = {}", limit(Local)),
            LocalOfRoute => format!(
                "http_routes = [{{ path_regex = \"/se.*\", rate_limit.local.http = {} }}]",
                limit(LocalOfRoute)
            ),
            Global => format!(
                "[upstream_traffic_setting.rate_limit.global.http]\ndomain = \"{level_name}\"\ntimeout = \"10s\"\n\
                 rate_limit_service = {{ host = \"{others}\", port = 8081 }}\n\
                 descriptors = [{{ entries = [{{ request_header = {{ name = \"x-request-name\", key = \"ask\" }} }}] }}]"
            ),
            Log => format!(
                "[telemetry.access_log.sink]\nopen_telemetry = {{ host = \"{others}\" }}\n\
                 attributes = {{ level = \"{level_name}\", ask = \"%REQ(X-REQUEST-NAME)%\", status = \"%RESPONSE_CODE%\" }}"
            ),
        };
        let kind = if self == Log { "telemetry" } else { "upstream_traffic_setting" };
        format!("[[{kind}]]\n{about}\n{key}\n")
    }
}

/// A service in its namespace, and the settings of both.
pub(super) struct Row {
    pub(super) namespace: String,
    pub(super) service: String,
    pub(super) of_namespace: Option<UpstreamSetting>,
    pub(super) of_service: Option<UpstreamSetting>,
}

impl Row {
    /// The nearest level that sets a setting; the mesh always does.
    pub(super) fn level(&self, setting: UpstreamSetting) -> Level {
        if self.of_service == Some(setting) {
            Level::Service
        } else if self.of_namespace == Some(setting) {
            Level::Namespace
        } else {
            Level::Mesh
        }
    }

    pub(super) fn host(&self) -> String {
        format!("{}.{}:14001", self.service, self.namespace)
    }

    /// The predicted statuses of requests for these paths in order: those of the route have a limit
    /// of their own instead of the general one.
    pub(super) fn statuses(&self, paths: &[&str]) -> Vec<u16> {
        let mut left = [Local, LocalOfRoute].map(|one| number(self.level(one)));
        let [of_all, of_route] = &mut left;
        let mut answer = |path: &&str| {
            let (setting, left) = match *path {
                "/search" => (LocalOfRoute, &mut *of_route),
                _ => (Local, &mut *of_all),
            };
            match left.checked_sub(1) {
                Some(fewer) => {
                    *left = fewer;
                    200
                }
                None => rejection_status(setting, self.level(setting)),
            }
        };
        paths.iter().map(&mut answer).collect()
    }
}

/// One row for each pair of settings, or none, of a namespace and a service in it.
pub(super) fn rows() -> Vec<Row> {
    let some = || EVERY_UPSTREAM.into_iter().map(Some).chain([None]);
    let name =
        |one: Option<UpstreamSetting>| one.map_or_else(|| "none".to_owned(), UpstreamSetting::name);
    let row = |of_namespace, of_service| Row {
        namespace: format!("n-{}", name(of_namespace)),
        service: name(of_service),
        of_namespace,
        of_service,
    };
    some()
        .flat_map(|of_namespace| some().map(move |of_service| row(of_namespace, of_service)))
        .collect()
}

/// Services with HTTP routes and retries, and with upstream settings of the mesh only.
pub(super) fn routed_services() -> Vec<(String, Vec<(Level, Setting)>)> {
    let mut routed_services: Vec<_> = ALL
        .into_iter()
        .map(|one| (format!("r-{}", one.name()), vec![(Level::Service, one)]))
        .collect();
    routed_services.push(("r-again".to_owned(), vec![(Level::Retry, Retries)]));
    routed_services.push(("r-none".to_owned(), Vec::new()));
    routed_services
}

/// The services, their grants and their HTTP routes.
pub(super) fn services() -> (String, Vec<(String, String)>) {
    let mut names: Vec<_> = rows().into_iter().map(|row| (row.namespace, row.service)).collect();
    names.extend(routed_services().into_iter().map(|(name, _)| ("default".to_owned(), name)));
    names.extend(["shadow-service", "load"].map(|name| ("default".to_owned(), name.to_owned())));
    let mut policy = format!(
        "[[service]]\nname = \"buyer\"\n[[retry]]\nname = \"again\"\nsource = {{ name = \"buyer\" }}\n\
         destinations = [{{ name = \"r-again\" }}]\nretry_policy = {{ retry_on = \"503\", num_retries = {}, \
         retry_backoff_base_interval = \"1ms\" }}\n",
        Level::Retry.retries()
    );
    for (name, http_settings) in routed_services() {
        for (level, setting) in
            http_settings.into_iter().filter(|(level, _)| *level == Level::Service)
        {
            policy += &rule("default", &name, &format!("service = \"{name}\""), level, &[setting]);
        }
    }
    let mut grouped = BTreeMap::new();
    for (namespace, service) in &names {
        let port = if service == "shadow-service" { 8082 } else { 8080 };
        write!(
            policy,
            "[[service]]\nnamespace = \"{namespace}\"\nname = \"{service}\"\n\
             ports = [{{ name = \"web\", port = 14001, protocol = \"http\", target_port = {port} }}]\n\
             [[traffic_target]]\nnamespace = \"{namespace}\"\nname = \"{service}\"\n\
             destination = {{ name = \"{service}\" }}\n\
             sources = [{{ name = \"buyer\", namespace = \"default\" }}]\n\
             rules = [{{ kind = \"HTTPRouteGroup\", name = \"all\" }}]\n"
        )
        .unwrap();
        grouped.entry(namespace.clone()).or_insert_with(|| {
            format!(
                "[[http_route_group]]\nnamespace = \"{namespace}\"\nname = \"all\"\nmatches = [{{ name = \"all\" }}]\n"
            )
        });
    }
    policy.extend(grouped.into_values());
    (policy, names)
}

/// The upstream settings of the mesh, the namespaces and the services.
pub(super) fn settings(others: IpAddr) -> String {
    let mut policy = String::new();
    for one in EVERY_UPSTREAM {
        let name = one.name();
        let about = format!("name = \"{name}\"\nscope = \"mesh\"");
        policy += &one.object(Level::Mesh, &about, others);
        let about = format!("namespace = \"n-{name}\"\nname = \"here\"");
        policy += &one.object(Level::Namespace, &about, others);
    }
    for row in rows() {
        let Row { namespace, service, of_service: Some(one), .. } = row else { continue };
        let about =
            format!("namespace = \"{namespace}\"\nname = \"{service}\"\nservice = \"{service}\"");
        policy += &one.object(Level::Service, &about, others);
    }
    policy
}
