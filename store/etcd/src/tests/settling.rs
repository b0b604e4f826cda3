//! Commits whose answers were lost.

use super::model::{BY, Mesh};
use crate::batch::{PreparedCommit, fence};
use crate::head::RECENT;
use crate::settling::{Outcome, outcome};

fn settled(mesh: &Mesh, commit: &PreparedCommit) -> Outcome {
    let mirror = mesh.load().unwrap();
    outcome(commit, mirror.head(), mirror.head_modified().unwrap())
}

#[test]
fn stored_commit_is_found_among_the_last_ones() {
    let mut mesh = Mesh::new("/ironmesh/default");
    let (mut one, mut other) = (mesh.replica(), mesh.replica());
    let commit = one.prepare(&mesh, &[("a", Some("1"))]);
    assert_eq!(settled(&mesh, &commit), Outcome::Undecided);
    assert!(one.send(&mut mesh, commit.clone()));
    assert_eq!(settled(&mesh, &commit), Outcome::Stored);
    other.follow(&mesh);
    for number in 0..RECENT {
        assert_eq!(settled(&mesh, &commit), Outcome::Stored);
        assert!(other.commit(&mut mesh, &[("b", Some(&number.to_string()))]));
    }
    assert!(other.commit(&mut mesh, &[("c", None)]));
    assert_eq!(settled(&mesh, &commit), Outcome::Unknown);
}

#[test]
fn fenced_commit_never_executes() {
    let mut mesh = Mesh::new("/ironmesh/default");
    let mut replica = mesh.replica();
    let commit = replica.prepare(&mesh, &[("a", Some("1"))]);
    let fence = fence(&replica.mirror, &mesh.cipher, BY).unwrap();
    assert!(replica.send(&mut mesh, fence));
    assert_eq!(settled(&mesh, &commit), Outcome::Lost);
    assert_eq!(mesh.etcd.commit(&mesh.layout, &commit), None, "it arrives late");
    assert!(replica.commit(&mut mesh, &[("a", Some("2"))]));
    assert_eq!(settled(&mesh, &commit), Outcome::Lost);
    assert_eq!(mesh.replica().values(&mesh), super::model::values(&[("a", "2")]));
}
