//! Writes to etcd by a client without the key of the mesh.

use proptest::prelude::*;

use super::model::{Mesh, Replica, values};
use crate::canary::Canary;
use crate::mirror::{LoadFault, Received};

/// A mesh with two records, one of which was changed, and a replica that follows it.
fn mesh() -> (Mesh, Replica) {
    let mut mesh = Mesh::new("/ironmesh/default");
    let mut replica = mesh.replica();
    assert!(replica.commit(&mut mesh, &[("a", Some("1")), ("b", Some("1"))]));
    assert!(replica.commit(&mut mesh, &[("a", Some("2"))]));
    assert!(replica.follow(&mesh));
    (mesh, replica)
}

/// The value of a record that a commit has replaced.
fn older(mesh: &Mesh, key: &str) -> Vec<u8> {
    let events = mesh.etcd.history.iter().flatten();
    let mut values =
        events.filter(|event| event.key == key).filter_map(|event| event.value.clone());
    values.next().unwrap()
}

#[test]
fn foreign_writes_have_no_effect_and_are_repaired() {
    for attack in ["edited", "moved", "removed", "older", "added", "canary"] {
        let (mut mesh, mut replica) = mesh();
        let (a, b) = (mesh.record("a"), mesh.record("b"));
        let of_b = mesh.etcd.keys[&b].0.clone();
        let (key, value) = match attack {
            "edited" => (a, Some([of_b.as_slice(), b"x"].concat())),
            "moved" => (a, Some(of_b)),
            "removed" => (a, None),
            "older" => (a.clone(), Some(older(&mesh, &a))),
            "added" => ("/ironmesh/default/state/x".to_owned(), Some(of_b)),
            _ => (mesh.layout.canary().to_owned(), Some(of_b)),
        };
        mesh.etcd.write([(key.clone(), value)]);
        let received = replica.step(&mesh);
        assert!(matches!(received, Some(Received::Foreign(_))), "{attack}: {received:?}");
        assert!(replica.mirror.foreign().contains(&key), "{attack}");
        let expected = values(&[("a", "2"), ("b", "1")]);
        assert_eq!(replica.values(&mesh), expected, "{attack}");
        if attack != "canary" {
            assert!(mesh.load().is_err(), "{attack}: a start does not use it");
        }
        // The next commit of any record repairs it.
        assert!(replica.commit(&mut mesh, &[("c", Some("1"))]));
        assert!(replica.follow(&mesh));
        assert!(replica.mirror.foreign().is_empty(), "{attack}");
        let expected = values(&[("a", "2"), ("b", "1"), ("c", "1")]);
        assert_eq!(mesh.replica().values(&mesh), expected, "{attack}");
        let canary = &mesh.etcd.keys[mesh.layout.canary()].0;
        assert!(Canary::open(&mesh.kek, &mesh.layout, canary).is_ok(), "{attack}");
    }
}

#[test]
fn removed_or_garbled_head_is_replaced() {
    for value in [None, Some(b"x".to_vec())] {
        let (mut mesh, mut replica) = mesh();
        let head = mesh.layout.head().to_owned();
        let is_removed = value.is_none();
        mesh.etcd.write([(head, value)]);
        assert!(matches!(replica.step(&mesh), Some(Received::Foreign(_))));
        if is_removed {
            assert!(!replica.commit(&mut mesh, &[("c", Some("1"))]), "a value comes first");
            assert!(replica.follow(&mesh));
        }
        assert!(replica.commit(&mut mesh, &[("c", Some("1"))]));
        assert!(replica.follow(&mesh) && replica.mirror.foreign().is_empty());
        assert_eq!(mesh.replica().mirror.head().revision, 3);
    }
}

#[test]
fn head_that_is_removed_twice_hides_no_commit() {
    let (mut mesh, mut replica) = mesh();
    let mut other = mesh.replica();
    let head = mesh.layout.head().to_owned();
    for _ in 0..2 {
        mesh.etcd.write([(head.clone(), None)]);
        assert!(other.follow(&mesh));
        assert!(!other.commit(&mut mesh, &[("c", Some("1"))]));
        assert!(other.follow(&mesh) && other.commit(&mut mesh, &[("c", Some("1"))]));
    }
    mesh.etcd.write([(head, None)]);
    // This one has seen the first removal alone.
    replica.step(&mesh);
    assert!(!replica.commit(&mut mesh, &[("d", Some("1"))]));
    assert!(replica.follow(&mesh) && replica.commit(&mut mesh, &[("d", Some("1"))]));
    assert_eq!(replica.values(&mesh), values(&[("a", "2"), ("b", "1"), ("c", "1"), ("d", "1")]));
}

#[test]
fn older_head_stops_commits_and_changes_nothing() {
    let (mut mesh, mut replica) = mesh();
    let head = mesh.layout.head().to_owned();
    let older = older(&mesh, &head);
    mesh.etcd.write([(head, Some(older))]);
    assert!(matches!(replica.step(&mesh), Some(Received::Older { found: 0 })));
    assert!(!replica.commit(&mut mesh, &[("c", Some("1"))]));
    assert_eq!(replica.values(&mesh), values(&[("a", "2"), ("b", "1")]));
    assert!(matches!(mesh.load(), Err(LoadFault::DigestDiffers { revision: 0 })));
}

#[test]
fn whole_older_state_is_told_by_its_revision_alone() {
    let mut mesh = Mesh::new("/ironmesh/default");
    let mut replica = mesh.replica();
    assert!(replica.commit(&mut mesh, &[("a", Some("1"))]));
    let backup = mesh.etcd.keys.clone();
    assert!(replica.commit(&mut mesh, &[("a", Some("2"))]));
    assert!(replica.follow(&mesh));
    let writes: Vec<_> = backup.into_iter().map(|(key, (value, _))| (key, Some(value))).collect();
    mesh.etcd.write(writes);
    assert!(matches!(replica.step(&mesh), Some(Received::Older { found: 1 })));
    assert_eq!(replica.values(&mesh), values(&[("a", "2")]));
    assert_eq!(mesh.load().unwrap().head().revision, 1, "a start compares it with its mark");
}

#[test]
fn records_of_another_mesh_or_key_are_foreign() {
    let (mut mesh, mut replica) = mesh();
    let (other, mut of_other) = {
        let mut other = Mesh::new("/ironmesh/default");
        let replica = other.replica();
        other.etcd.revision = 1;
        (other, replica)
    };
    let commit = of_other.prepare(&other, &[("a", Some("9"))]);
    let mut other = other;
    assert!(of_other.send(&mut other, commit.clone()));
    mesh.etcd.write(commit.writes);
    assert!(matches!(replica.step(&mesh), Some(Received::Foreign(_))));
    assert_eq!(replica.values(&mesh), values(&[("a", "2"), ("b", "1")]));
    let canary = &other.etcd.keys[other.layout.canary()].0;
    assert!(Canary::open(&mesh.kek, &mesh.layout, canary).is_err());
}

#[test]
fn own_commits_are_known_although_their_events_arrive_late() {
    let mut mesh = Mesh::new("/ironmesh/default");
    let mut replica = mesh.replica();
    for value in ["1", "2", "3"] {
        assert!(replica.commit(&mut mesh, &[("a", Some(value))]));
    }
    // A client writes between two commits, and the second one replaces it.
    let a = mesh.record("a");
    mesh.etcd.write([(a, Some(b"x".to_vec()))]);
    assert!(replica.commit(&mut mesh, &[("a", Some("4"))]));
    assert!(replica.follow(&mesh));
    assert!(replica.mirror.foreign().is_empty());
    assert_eq!(replica.values(&mesh), values(&[("a", "4")]));
}

#[test]
fn events_that_were_lost_are_a_gap_and_no_foreign_write() {
    let (mut mesh, mut replica) = mesh();
    let mut other = mesh.replica();
    assert!(other.commit(&mut mesh, &[("c", Some("1"))]));
    let lost = mesh.etcd.history.pop();
    assert!(other.commit(&mut mesh, &[("d", Some("1"))]));
    assert!(lost.is_some());
    assert!(matches!(replica.step(&mesh), Some(Received::Gap)));
    assert!(!replica.commit(&mut mesh, &[("e", Some("1"))]), "it would replace a commit");
    let loaded = mesh.replica();
    assert_eq!(loaded.values(&mesh), values(&[("a", "2"), ("b", "1"), ("c", "1"), ("d", "1")]));
}

/// What happens to an etcd with two replicas.
#[derive(Debug, Clone)]
enum Step {
    /// A replica writes or removes a record.
    Commit { replica: usize, key: u8, value: Option<u8> },
    /// A replica reads this many transactions.
    Read { replica: usize, count: usize },
    /// A replica loads everything again if it must.
    Load { replica: usize },
    /// A client without the key puts any value that etcd ever had at a key, or removes the key.
    Attack { key: prop::sample::Index, value: Option<prop::sample::Index> },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let replica = 0..2_usize;
    let commit = (replica.clone(), 0..4_u8, prop::option::weighted(0.8, any::<u8>()))
        .prop_map(|(replica, key, value)| Step::Commit { replica, key, value });
    let load = replica.clone().prop_map(|replica| Step::Load { replica });
    let read = (replica, 1..4_usize).prop_map(|(replica, count)| Step::Read { replica, count });
    let attack = (any::<prop::sample::Index>(), any::<Option<prop::sample::Index>>())
        .prop_map(|(key, value)| Step::Attack { key, value });
    prop::collection::vec(prop_oneof![4 => commit, 4 => read, 1 => attack, 1 => load], 1..40)
}

proptest! {
    /// Whatever is written to etcd: a mirror has the records of exactly the commits up to its revision.
    #[test]
    fn mirrors_have_the_records_of_commits_alone(steps in steps()) {
        let mut mesh = Mesh::new("/ironmesh/default");
        let mut replicas = [mesh.replica(), mesh.replica()];
        let mut honest = vec![values(&[])];
        for step in steps {
            match step {
                Step::Commit { replica, key, value } => {
                    let (key, value) = (key.to_string(), value.map(|value| value.to_string()));
                    let replica = &mut replicas[replica];
                    if replica.commit(&mut mesh, &[(&key, value.as_deref())]) {
                        let mut after = honest.last().unwrap().clone();
                        match value {
                            Some(value) => after.insert(key, value),
                            None => after.remove(&key),
                        };
                        honest.push(after);
                    }
                }
                Step::Read { replica, count } => {
                    for _ in 0..count {
                        replicas[replica].step(&mesh);
                    }
                }
                Step::Load { replica } => {
                    let mirror = &replicas[replica].mirror;
                    let loaded = mesh.load().ok().filter(|loaded| {
                        mirror.must_load() && loaded.head().revision >= mirror.head().revision
                    });
                    if loaded.is_some() {
                        replicas[replica] = mesh.replica();
                    }
                }
                Step::Attack { key, value } => {
                    let history = mesh.etcd.history.iter().flatten();
                    let values: Vec<_> = history.filter_map(|event| event.value.clone()).collect();
                    let keys: Vec<_> = mesh.etcd.keys.keys().cloned().collect();
                    if keys.is_empty() {
                        continue;
                    }
                    let value = value.map(|value| value.get(&values).clone());
                    mesh.etcd.write([(key.get(&keys).clone(), value)]);
                }
            }
            for replica in &replicas {
                let revision = usize::try_from(replica.mirror.head().revision).unwrap();
                prop_assert_eq!(&replica.values(&mesh), &honest[revision]);
            }
        }
        // A start uses a state that commits made, or none.
        if let Ok(loaded) = mesh.load() {
            let revision = usize::try_from(loaded.head().revision).unwrap();
            prop_assert_eq!(&mesh.replica().values(&mesh), &honest[revision]);
        }
    }
}
