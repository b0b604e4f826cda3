//! The versions of the fleet: how many proxies have which version of Envoy and of the agent, and which are below the
//! supported minimum.
//!
//! All of it follows from the join records, so that every control plane of a mesh gives the same answer, and a disconnected
//! proxy counts with its last known version. This module upgrades nothing.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_api::{ComponentVersions, MAX_OUTDATED, OutdatedProxy, VersionCount, VersionReport};
use ironmesh_catalog::codes::PROXY_BELOW_MINIMUM;
use ironmesh_catalog::{CertificateSource, Finding, JoinRecord, ObjectRef, Records};

use crate::admission::OLDEST_ENVOY;
use crate::api::natural_key;

/// The oldest agent that this version supports: that of the newest release.
const OLDEST_AGENT: [u64; 3] = [0, 2, 0];

/// The most proxies that a finding names.
const NAMED: usize = 5;

/// The most versions of a program that metrics tell apart.
const MAX_LABELLED: usize = 20;

/// A program whose version is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Component {
    Envoy,
    Agent,
}

impl Component {
    fn minimum(self) -> [u64; 3] {
        match self {
            Self::Envoy => {
                [OLDEST_ENVOY.major, OLDEST_ENVOY.minor, OLDEST_ENVOY.patch].map(u64::from)
            }
            Self::Agent => OLDEST_AGENT,
        }
    }

    fn version_of(self, record: &JoinRecord) -> Option<&str> {
        match self {
            Self::Envoy => record.versions.envoy.as_deref(),
            Self::Agent => record.versions.agent.as_deref(),
        }
    }

    /// Whether a proxy has it.
    fn is_run_by(self, record: &JoinRecord) -> bool {
        match self {
            Self::Envoy => true,
            Self::Agent => has_agent(record),
        }
    }

    /// Whether a version is below the minimum. One without numbers is not compared.
    fn is_outdated(self, version: &str) -> bool {
        numbers(version).is_some_and(|numbers| numbers < self.minimum())
    }
}

/// Whether an agent runs on the machine of a proxy, as far as it is known.
fn has_agent(record: &JoinRecord) -> bool {
    record.versions.agent.is_some() || record.certificates == CertificateSource::Agent
}

/// The first three numbers of a version.
fn numbers(version: &str) -> Option<[u64; 3]> {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = release.split('.').map(|part| part.parse().ok());
    let first = parts.next()??;
    let mut next = || parts.next().map_or(Some(0), |part| part);
    Some([first, next()?, next()?])
}

/// The report about proxies in use.
pub(crate) fn report(in_use: &Records) -> VersionReport {
    VersionReport {
        envoy: versions(Component::Envoy, in_use),
        agent: versions(Component::Agent, in_use),
        without_agent: in_use.values().filter(|record| !has_agent(record)).count(),
    }
}

fn versions(component: Component, in_use: &Records) -> ComponentVersions {
    let mut counts: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    let mut outdated: Vec<&Arc<JoinRecord>> = Vec::new();
    for record in in_use.values().filter(|record| component.is_run_by(record)) {
        let version = component.version_of(record);
        *counts.entry(version).or_default() += 1;
        if version.is_some_and(|version| component.is_outdated(version)) {
            outdated.push(record);
        }
    }
    let mut versions: Vec<_> = counts
        .into_iter()
        .map(|(version, count)| VersionCount {
            version: version.map(str::to_owned),
            count,
            below_minimum: version.is_some_and(|version| component.is_outdated(version)),
        })
        .collect();
    versions.sort_by_cached_key(|one| {
        let version = one.version.clone();
        Reverse((version.as_deref().and_then(numbers), version))
    });
    outdated.sort_by_cached_key(|record| {
        let name = record.display_name();
        (natural_key(name.as_str()), name, record.id)
    });
    let named = outdated.iter().take(MAX_OUTDATED).map(|record| OutdatedProxy {
        id: record.id,
        name: record.display_name(),
        version: component.version_of(record).unwrap_or_default().to_owned(),
    });
    ComponentVersions {
        minimum: component.minimum().map(|number| number.to_string()).join("."),
        versions,
        below_minimum: outdated.len(),
        outdated: named.collect(),
    }
}

/// The findings about programs below the minimum, one for each program.
pub(crate) fn findings(in_use: &Records) -> Vec<Finding> {
    let report = report(in_use);
    let about = |program: &str, versions: &ComponentVersions, help: &str| {
        if versions.below_minimum == 0 {
            return None;
        }
        let some = versions.outdated.iter().take(NAMED);
        let some: Vec<_> = some.map(|one| format!("{} ({})", one.name, one.version)).collect();
        let hidden = versions.below_minimum - some.len();
        let more = if hidden == 0 { String::new() } else { format!(" and {hidden} more") };
        let proxies = if versions.below_minimum == 1 { "proxy has" } else { "proxies have" };
        let text = format!(
            "{} {proxies} {program} below the oldest supported version {}: {}{more}",
            versions.below_minimum,
            versions.minimum,
            some.join(", ")
        );
        let finding = Finding::warning(PROXY_BELOW_MINIMUM, None, text).help(help.to_owned());
        let is_whole = versions.outdated.len() == versions.below_minimum;
        let objects = versions.outdated.iter().map(|one| ObjectRef::Proxy(one.id));
        Some(finding.objects(objects.filter(|_| is_whole)))
    };
    let of_envoy = "install a newer Envoy on these machines, and restart it: the control plane rejects older ones";
    let of_agent = "install this version of Ironmesh on these machines, and restart `ironmesh-agent` and `ironmesh-envoy`";
    let envoy = about("an Envoy", &report.envoy, of_envoy);
    envoy.into_iter().chain(about("an agent", &report.agent, of_agent)).collect()
}

/// The counts for metrics: the versions that most proxies have, by program, and `other` and `unknown` for the rest.
pub(crate) fn labelled(report: &VersionReport) -> Vec<(&'static str, Vec<(String, usize)>)> {
    let component = |versions: &ComponentVersions| {
        let mut by_count: Vec<_> = versions.versions.iter().collect();
        by_count.sort_by_key(|one| Reverse(one.count));
        let known = by_count.iter().filter(|one| one.version.is_some());
        let unknown = by_count.iter().filter(|one| one.version.is_none()).map(|one| one.count);
        let mut labelled: Vec<_> = known
            .clone()
            .take(MAX_LABELLED)
            .filter_map(|one| Some((one.version.clone()?, one.count)))
            .collect();
        labelled.push(("other".to_owned(), known.skip(MAX_LABELLED).map(|one| one.count).sum()));
        labelled.push(("unknown".to_owned(), unknown.sum()));
        labelled
    };
    vec![("envoy", component(&report.envoy)), ("agent", component(&report.agent))]
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ironmesh_catalog::{ProxyId, ProxyVersions};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn records(all: &[(Option<&str>, Option<&str>)]) -> Records {
        let record = |(number, (envoy, agent)): (usize, &(Option<&str>, Option<&str>))| {
            let number = u8::try_from(number + 1).unwrap();
            let id = ProxyId(Uuid::from_u128(number.into()));
            let address = SocketAddr::from(([10, 0, 0, number], 15003));
            let services = vec!["store".parse().unwrap()];
            let record =
                JoinRecord::new(id, services, address, Timestamp::UNIX_EPOCH, Timestamp::MAX);
            let versions = ProxyVersions {
                envoy: envoy.map(str::to_owned),
                agent: agent.map(str::to_owned),
                ..ProxyVersions::default()
            };
            let name = Some(format!("store-{number}").parse().unwrap());
            (id, Arc::new(JoinRecord { name, versions, ..record }))
        };
        all.iter().enumerate().map(record).collect()
    }

    #[test]
    fn versions_are_counted_the_newest_first_and_old_ones_named() {
        let all = [
            (Some("1.9.3"), Some("0.0.9")),
            (Some("1.40.0"), Some("0.10.0")),
            (Some("1.100.0-dev"), Some("0.2.0")),
            (Some("1.40.0"), None),
            (None, None),
        ];
        let report = report(&records(&all));
        let text = |versions: &ComponentVersions| -> Vec<(String, usize, bool)> {
            let versions = versions.versions.iter();
            let name = |one: &VersionCount| one.version.clone().unwrap_or_default();
            versions.map(|one| (name(one), one.count, one.below_minimum)).collect()
        };
        let one = |version: &str, count, is_old| (version.to_owned(), count, is_old);
        let envoy = [
            one("1.100.0-dev", 1, false),
            one("1.40.0", 2, false),
            one("1.9.3", 1, true),
            one("", 1, false),
        ];
        assert_eq!(text(&report.envoy), envoy);
        let agent = [one("0.10.0", 1, false), one("0.2.0", 1, false), one("0.0.9", 1, true)];
        assert_eq!(text(&report.agent), agent);
        assert_eq!((report.without_agent, report.envoy.below_minimum), (2, 1));
        assert_eq!(report.envoy.outdated[0].name.as_str(), "store-1");
        assert_eq!(report.envoy.minimum, "1.39.0");

        let [of_envoy, of_agent] = &findings(&records(&all))[..] else { panic!() };
        let text = of_envoy.to_string();
        assert!(text.starts_with("warning[IM0754]: 1 proxy has an Envoy below"), "{text}");
        assert!(text.contains("1.39.0: store-1 (1.9.3)"), "{text}");
        assert!(of_agent.to_string().contains("store-1 (0.0.9)"), "{of_agent}");
        assert!(findings(&records(&all[1..])).is_empty());
    }

    #[test]
    fn many_old_proxies_are_counted_and_some_named() {
        let all = vec![(Some("1.2.3"), None); 130];
        let records = records(&all);
        let report = report(&records);
        assert_eq!((report.envoy.below_minimum, report.envoy.outdated.len()), (130, MAX_OUTDATED));
        let text = findings(&records)[0].to_string();
        assert!(
            text.contains("store-5 (1.2.3) and 125 more") && !text.contains("store-6"),
            "{text}"
        );
    }

    #[test]
    fn metrics_tell_the_most_frequent_versions_apart() {
        let versions: Vec<_> = (0..30).map(|minor| format!("1.{}.0", 50 + minor)).collect();
        let mut all: Vec<_> = versions.iter().map(|version| (Some(&**version), None)).collect();
        all.extend([(Some("1.79.0"), None), (None, None), (None, None)]);
        let labelled = labelled(&report(&records(&all)));
        let (component, envoy) = &labelled[0];
        assert_eq!((*component, envoy.len()), ("envoy", MAX_LABELLED + 2));
        assert_eq!(envoy[0], ("1.79.0".to_owned(), 2));
        assert_eq!(envoy[20..], [("other".to_owned(), 10), ("unknown".to_owned(), 2)]);
        assert_eq!(envoy.iter().map(|(_, count)| count).sum::<usize>(), all.len());
    }

    #[test]
    fn only_numbers_of_a_version_are_compared() {
        assert_eq!(numbers("1.40.2-dev+x"), Some([1, 40, 2]));
        assert_eq!(numbers("2"), Some([2, 0, 0]));
        for bad in ["", "x.1", "1.x.2", "1..2"] {
            assert_eq!(numbers(bad), None, "{bad}");
        }
        assert!(!Component::Envoy.is_outdated("1.x.2"));
        assert!(Component::Envoy.is_outdated("1.38.9") && !Component::Envoy.is_outdated("1.39.0"));
    }
}
