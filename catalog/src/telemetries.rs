//! The effective telemetry of each service: for each setting, the most specific object wins.
//!
//! This module owns the choice between telemetry objects. It never compiles resources.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::cited::Cited;
use crate::name::ServiceName;
use crate::policy::Level;
use crate::policy::telemetry::{AccessLog, Collector, Telemetry, Tracing};
use crate::specification::MeshSpecification;

/// The telemetry objects of a mesh, by level.
#[derive(Debug, Clone, Default)]
pub struct Telemetries(BTreeMap<Level, Vec<Arc<Telemetry>>>);

/// One kind of telemetry that the sidecars of a service report: an access log or traces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceTelemetry {
    /// The service.
    pub service: ServiceName,
    /// The format and the destination, in words.
    pub description: String,
    /// The telemetry object that sets it.
    pub by: Cited,
}

impl Telemetries {
    /// The telemetry objects of a specification.
    pub fn of(specification: &MeshSpecification) -> Self {
        let mut by_level = BTreeMap::<_, Vec<_>>::new();
        for telemetry in specification.telemetries.values() {
            by_level.entry(telemetry.level.clone()).or_default().push(Arc::clone(telemetry));
        }
        Self(by_level)
    }

    /// The access log of a service, with the object that sets it.
    pub fn access_log(&self, service: &ServiceName) -> Option<(&AccessLog, &Telemetry)> {
        self.most_specific(service, |one| one.access_log.as_ref())
    }

    /// The tracing of a service, with the object that sets it.
    pub fn tracing(&self, service: &ServiceName) -> Option<(&Tracing, &Telemetry)> {
        self.most_specific(service, |one| one.tracing.as_ref())
    }

    /// All telemetry of a service in words, with the objects that set it.
    pub fn telemetry_of(&self, service: &ServiceName) -> Vec<ServiceTelemetry> {
        let log = self.access_log(service).map(|(setting, by)| (setting.to_string(), by));
        let traces = self.tracing(service).map(|(setting, by)| (setting.to_string(), by));
        let describe = |(description, by): (String, &Telemetry)| ServiceTelemetry {
            service: service.clone(),
            description,
            by: Cited::from(by),
        };
        log.into_iter().chain(traces).map(describe).collect()
    }

    /// Whether any telemetry object has this collector.
    pub fn use_collector(&self, collector: &Collector) -> bool {
        self.0.values().flatten().any(|one| one.collectors().any(|known| known == collector))
    }

    /// Whether `other` has the same effective telemetry for a service.
    pub fn are_same_for(&self, other: &Self, service: &ServiceName) -> bool {
        let effective = |all: &Self| {
            (
                all.access_log(service).map(|(setting, _)| setting.clone()),
                all.tracing(service).map(|(setting, _)| setting.clone()),
            )
        };
        effective(self) == effective(other)
    }

    /// A setting of the most specific object that has it. (Validation rejects a second object of one level.)
    fn most_specific<'a, T>(
        &'a self,
        service: &ServiceName,
        setting: impl Fn(&'a Telemetry) -> Option<&'a T>,
    ) -> Option<(&'a T, &'a Telemetry)> {
        let levels = [
            Level::Service(service.clone()),
            Level::Namespace(service.namespace.clone()),
            Level::Mesh,
        ];
        let mut all = levels.iter().filter_map(|level| self.0.get(level)).flatten();
        all.find_map(|one| Some((setting(one)?, &**one)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Spot;
    use crate::name::Name;
    use crate::policy::telemetry::{LogSink, Sampling};

    fn telemetry(name: &str, level: Level) -> Telemetry {
        Telemetry {
            namespace: Name::default_namespace(),
            name: Name::new(name).unwrap(),
            level,
            access_log: None,
            tracing: None,
            spot: Spot::new(&"p.toml".into(), "", 0..0),
        }
    }

    fn log(sink: LogSink) -> AccessLog {
        let format = crate::policy::telemetry::LogFormat::default();
        AccessLog { format, sink, filter: None }
    }

    #[test]
    fn most_specific_telemetry_wins_for_each_setting() {
        let tracing = Tracing {
            collector: Collector { host: "otel".into(), port: Collector::PORT },
            sampling: Sampling::ALL,
            service_name: None,
        };
        let store: ServiceName = "store".parse().unwrap();
        let default = Name::default_namespace();
        let all = [
            Telemetry {
                access_log: Some(log(LogSink::File("/mesh".into()))),
                tracing: Some(tracing),
                ..telemetry("mesh", Level::Mesh)
            },
            Telemetry {
                access_log: Some(log(LogSink::Stdout)),
                ..telemetry("all", Level::Namespace(default))
            },
            Telemetry {
                access_log: Some(log(LogSink::File("/store".into()))),
                ..telemetry("store", Level::Service(store.clone()))
            },
        ];
        let of = |all: &[Telemetry]| {
            let entry = |one: &Telemetry| {
                ((one.namespace.clone(), one.name.clone()), Arc::new(one.clone()))
            };
            Telemetries::of(&MeshSpecification {
                telemetries: all.iter().map(entry).collect(),
                ..MeshSpecification::default()
            })
        };
        let names = |all: &Telemetries, service: &str| {
            let service = service.parse().unwrap();
            let log = all.access_log(&service).map(|(_, by)| by.name.to_string());
            (log, all.tracing(&service).map(|(_, by)| by.name.to_string()))
        };
        let mesh = || Some("mesh".to_owned());
        let whole = of(&all);
        assert_eq!(names(&whole, "store"), (Some("store".to_owned()), mesh()));
        assert_eq!(names(&whole, "till"), (Some("all".to_owned()), mesh()));
        assert_eq!(names(&whole, "lab/till"), (mesh(), mesh()));
        assert_eq!(names(&of(&all[1..]), "lab/till"), (None, None));

        assert!(whole.are_same_for(&of(&all[..]), &store));
        assert!(whole.are_same_for(&of(&[all[0].clone(), all[2].clone()]), &store));
        assert!(!whole.are_same_for(&of(&all[..2]), &store));
        assert!(!whole.are_same_for(&of(&all[1..]), &store));
    }
}
