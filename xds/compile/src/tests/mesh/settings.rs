//! Random upstream traffic settings, of all levels.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    Descriptor, DescriptorEntry, Distribution, Failover, GlobalHttpLimit, GlobalTcpLimit,
    HttpConnections, Level, LimitedRoute, LocalHttpLimit, Locality, LocalitySetting, Name,
    Nearness, OutlierDetection, PathRegex, Rate, RateLimitService, RateUnit, RetryLimit,
    TcpConnections, UpstreamTrafficSetting,
};
use proptest::prelude::*;

use super::{NAMESPACES, SERVICES, Shape, name, place, spot};

/// A setting in numbers.
#[derive(Debug, Clone)]
pub(in crate::tests) struct SettingShape {
    pub(in crate::tests) about: SettingScope,
    /// Which limits are set, and to how much.
    pub(in crate::tests) much: (usize, u32),
}

#[derive(Debug, Clone, Copy)]
pub(in crate::tests) enum SettingScope {
    Service(usize),
    Namespace(usize),
    Mesh,
}

pub(super) fn setting() -> impl Strategy<Value = SettingShape> {
    let about = prop_oneof![
        (0..SERVICES).prop_map(SettingScope::Service),
        (0..NAMESPACES).prop_map(SettingScope::Namespace),
        Just(SettingScope::Mesh),
    ];
    (about, (0..4_usize, 1..3_u32)).prop_map(|(about, much)| SettingShape { about, much })
}

impl Shape {
    /// The same, with calls that prefer the caller's locality in the whole mesh.
    pub(in crate::tests) fn with_locality_preference(mut self) -> Self {
        self.settings.push(SettingShape { about: SettingScope::Mesh, much: (0, 1) });
        self
    }
}

/// A setting of the mesh that only keeps `percent` of the calls from one zone in that zone.
pub(in crate::tests) fn shares_of_a_zone(percent: u32) -> UpstreamTrafficSetting {
    let to = vec![(place(1), percent), (place(2), 100 - percent)];
    UpstreamTrafficSetting {
        namespace: name("n", 0),
        name: name("u", 0),
        level: Level::Mesh,
        tcp: None,
        http: None,
        outlier_detection: None,
        locality: Some(Arc::new(LocalitySetting {
            distribute: vec![Distribution { from: place(1), to }],
            ..LocalitySetting::default()
        })),
        local_http: None,
        local_tcp: None,
        global_http: None,
        global_tcp: None,
        http_routes: None,
        spot: spot(),
    }
}

type Built = ((Name, Name), Arc<UpstreamTrafficSetting>);

impl Shape {
    /// The settings. At most one per level: the loader rejects others.
    pub(super) fn settings(&self) -> impl Iterator<Item = Built> {
        let mut levels = Vec::new();
        self.settings.iter().enumerate().filter_map(move |(n, shape)| {
            let setting = self.setting(n, shape);
            if levels.contains(&setting.level) {
                return None;
            }
            levels.push(setting.level.clone());
            Some(((setting.namespace.clone(), setting.name.clone()), Arc::new(setting)))
        })
    }

    fn setting(&self, n: usize, shape: &SettingShape) -> UpstreamTrafficSetting {
        let namespace = match shape.about {
            SettingScope::Service(service) => self.service_name(service).namespace,
            SettingScope::Namespace(n) => name("n", n),
            SettingScope::Mesh => name("n", 0),
        };
        let (what, much) = shape.much;
        let http = HttpConnections {
            max_requests: Some(much),
            retries: Some(RetryLimit::Budget { percent: much, min_concurrency: None }),
            ..HttpConnections::default()
        };
        let detection = OutlierDetection {
            consecutive_5xx: Some(much),
            consecutive_gateway_errors: None,
            interval: OutlierDetection::INTERVAL,
            base_ejection_time: OutlierDetection::BASE_EJECTION_TIME,
            max_ejection_percent: OutlierDetection::MAX_EJECTION_PERCENT,
        };
        let tcp = TcpConnections {
            max_connections: Some(much),
            connect_timeout: Some(Duration::from_millis(much.into())),
        };
        UpstreamTrafficSetting {
            level: match shape.about {
                SettingScope::Service(service) => Level::Service(self.service_name(service)),
                SettingScope::Namespace(_) => Level::Namespace(namespace.clone()),
                SettingScope::Mesh => Level::Mesh,
            },
            namespace,
            name: name("u", n),
            tcp: (what != 0).then_some(tcp),
            http: (what != 1).then_some(http),
            outlier_detection: (what != 2).then_some(detection),
            locality: (what != 3).then(|| Arc::new(locality(what, much))),
            local_http: (what != 1).then(|| limit(much)),
            global_http: (what == 3).then(|| GlobalHttpLimit {
                service: RateLimitService { host: "10.0.0.9".into(), port: 8081 },
                domain: "d".into(),
                descriptors: descriptors(),
                timeout: RateLimitService::TIMEOUT,
                fail_open: true,
                enable_x_rate_limit_headers: false,
                status: LocalHttpLimit::STATUS,
            }),
            global_tcp: (what == 0).then(|| GlobalTcpLimit {
                service: RateLimitService { host: "10.0.0.9".into(), port: 8081 },
                domain: "d".into(),
                descriptors: vec![vec![("much".into(), much.to_string().into())]],
                timeout: RateLimitService::TIMEOUT,
                fail_open: true,
            }),
            local_tcp: (what != 0).then(|| limit(much).rate),
            http_routes: (what != 2).then(|| {
                let path = PathRegex { text: "/a".into(), before_query: None };
                vec![LimitedRoute {
                    path,
                    local_http: Some(limit(much)),
                    descriptors: Some(descriptors()),
                }]
            }),
            spot: spot(),
        }
    }
}

/// A locality setting: by nearness, with a failover, or by weights.
fn locality(what: usize, much: u32) -> LocalitySetting {
    let (here, there) = (place(1), place(2));
    let failover = Failover { from: Locality::default(), to: vec![there.clone()] };
    let shares = vec![(here.clone(), 50 + much), (there, 50 - much)];
    LocalitySetting {
        prefer_local: (what != 1).then_some(Nearness::Zone),
        failover: (what == 2).then_some(failover).into_iter().collect(),
        distribute: (what != 0)
            .then(|| Distribution {
                from: if much == 1 { here } else { Locality::default() },
                to: shares,
            })
            .into_iter()
            .collect(),
    }
}

fn limit(much: u32) -> LocalHttpLimit {
    let rate = Rate { number: much, unit: RateUnit::Minute, burst: 0 };
    LocalHttpLimit { rate, status: LocalHttpLimit::STATUS, headers: Vec::new() }
}

fn descriptors() -> Vec<Descriptor> {
    vec![Descriptor(vec![DescriptorEntry::RemoteAddress])]
}
