//! What a client reports is compared with its set as a whole if it is equal, and else name by name.
//! Both ways lead to the same state.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint};
use ironmesh_xds_wire::{DeltaRequest, InitialVersions, NameList, ResourceSet, ResourceType};
use proptest::prelude::*;
use tokio::time::Instant;

use super::client::subscribe;
use crate::delta::DeltaStream;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, resource};

/// A difference between what a client reports and what its set has.
#[derive(Debug, Clone, Copy)]
enum Difference {
    Missing(usize),
    Doubled(usize),
    OtherVersion(usize),
    UnknownVersion(usize),
    Surplus(u8),
}

fn difference() -> impl Strategy<Value = Difference> {
    prop_oneof![
        (0..5_usize).prop_map(Difference::Missing),
        (0..5_usize).prop_map(Difference::Doubled),
        (0..5_usize).prop_map(Difference::OtherVersion),
        (0..5_usize).prop_map(Difference::UnknownVersion),
        (0..8_u8).prop_map(Difference::Surplus),
    ]
}

/// Mostly none.
fn differences() -> impl Strategy<Value = Vec<Difference>> {
    prop_oneof![2 => Just(Vec::new()), 1 => prop::collection::vec(difference(), 1..4)]
}

/// The contents of clusters and their endpoints, by name.
fn contents() -> impl Strategy<Value = BTreeMap<u8, u32>> {
    prop::collection::btree_map(0..6_u8, 0..3_u32, 0..6)
}

fn resources(contents: &BTreeMap<u8, u32>) -> ResourceSet {
    let mut set = ResourceSet::default();
    for (name, content) in contents {
        set.insert(cluster(&name.to_string(), *content));
        set.insert(endpoints(&name.to_string(), *content));
    }
    set
}

/// The names and versions of `set` with these differences.
fn reported(
    of: ResourceType,
    set: &ResourceSet,
    differences: &[Difference],
) -> Vec<(String, String)> {
    let all = set.of(of).values();
    let mut all: Vec<_> =
        all.map(|one| (one.name().to_string(), one.version().to_string())).collect();
    for difference in differences {
        match *difference {
            Difference::Surplus(name) => {
                let surplus = resource(of, &name.to_string(), 0);
                all.push((name.to_string(), surplus.version().to_string()));
            }
            Difference::Missing(at) if at < all.len() => drop(all.remove(at)),
            Difference::Doubled(at) if at < all.len() => all.push(all[at].clone()),
            Difference::OtherVersion(at) if at < all.len() => {
                all[at].1 = resource(of, &all[at].0, 9).version().to_string();
            }
            Difference::UnknownVersion(at) if at < all.len() => all[at].1 = "unknown".to_owned(),
            _ => {}
        }
    }
    all
}

/// The same request in another form: one name is repeated, and each version has a sign before it. So
/// it has no digest of any set.
fn disguised(request: &DeltaRequest) -> DeltaRequest {
    let first = request.subscribe.iter().take(1);
    let versions = request.initial_versions.iter();
    DeltaRequest {
        subscribe: request.subscribe.iter().chain(first).collect(),
        initial_versions: Arc::new(
            versions.map(|(name, version)| (name, format!("+{version}"))).collect(),
        ),
        ..request.clone()
    }
}

/// The case of a test.
#[derive(Debug, Clone)]
struct Case {
    before: ResourceSet,
    after: ResourceSet,
    nacked: BTreeMap<(ResourceType, Arc<str>), ironmesh_xds_wire::Version>,
    unanswered: BTreeSet<Arc<str>>,
    has_set_first: bool,
}

impl Case {
    /// The outputs and the states of a stream with these requests.
    fn run(&self, requests: &[DeltaRequest]) -> Vec<String> {
        let (mut stream, mut now) = (DeltaStream::new(&self.nacked), Instant::now());
        stream.resend_endpoints(&self.unanswered);
        let mut log = Vec::new();
        if self.has_set_first {
            log.push(format!("{:?}", stream.on_set(self.before.clone(), now)));
        }
        for request in requests {
            log.push(format!("{:?}", stream.on_request(request, now)));
        }
        if !self.has_set_first {
            log.push(format!("{:?}", stream.on_set(self.before.clone(), now)));
        }
        for set in [&self.before, &self.after] {
            log.push(state(&stream));
            now += REMOVAL_GRACE;
            log.push(format!("{:?}", stream.on_timeout(now)));
            log.push(format!("{:?}", stream.on_set(set.clone(), now)));
        }
        log.push(state(&stream));
        log
    }
}

/// What a stream has stored of its client.
fn state(stream: &DeltaStream) -> String {
    let acked = [Cluster, Endpoint].map(|of| {
        let acked = stream.acked(of);
        let versions = acked.names().map(|name| (name.to_string(), acked.get(name)));
        versions.collect::<BTreeMap<_, _>>()
    });
    format!("acked {acked:?}, until {:?}", stream.deadline().is_some())
}

proptest! {
    #[test]
    fn comparison_as_a_whole_equals_that_of_each_name(
        before in contents(),
        after in contents(),
        nacked in prop::collection::btree_map((any::<bool>(), 0..6_u8), 0..3_u32, 0..3),
        unanswered in prop::collection::btree_set(0..6_u8, 0..3),
        in_versions in differences(),
        in_names in differences(),
        has_set_first in any::<bool>(),
    ) {
        let (before, after) = (resources(&before), resources(&after));
        let mut requests = Vec::new();
        for of in [Cluster, Endpoint] {
            let versions = reported(of, &before, &in_versions);
            let initial_versions: InitialVersions =
                versions.iter().map(|(name, version)| (name, version)).collect();
            let names: NameList = if of == Cluster {
                NameList::default()
            } else {
                reported(of, &before, &in_names).iter().map(|(name, _)| name).collect()
            };
            requests.push(DeltaRequest {
                subscribe: names,
                initial_versions: Arc::new(initial_versions),
                ..subscribe(of, &[])
            });
        }
        let nacked = nacked.into_iter().map(|((is_cluster, name), content)| {
            let of = if is_cluster { Cluster } else { Endpoint };
            let one = resource(of, &name.to_string(), content);
            ((of, Arc::clone(one.name())), one.version())
        });
        let unanswered = unanswered.iter().map(|name| name.to_string().into()).collect();
        let nacked = nacked.collect();
        let case = Case { before, after, nacked, unanswered, has_set_first };
        let disguised: Vec<_> = requests.iter().map(disguised).collect();
        prop_assert_eq!(case.run(&requests), case.run(&disguised));
    }
}
