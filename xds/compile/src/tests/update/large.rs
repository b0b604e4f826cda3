//! What the edit of one thing comes to in a large policy, and what it costs.

use std::sync::Arc;

use ironmesh_catalog::{Snapshot, TcpAccesses};

use super::super::mesh::{Edit, Order, Shape};
use super::super::{compile, versions};
use super::{by_id, follow};
use crate::Compiler;

/// Makes an edit in a mesh of so many teams, in which others were made before, and sees that what comes out
/// is what comes out of nothing. Tells how many resources that proxies share are encoded then, how many with
/// the proxies' own, and how many proxies are sent something.
fn make(teams: usize, before: &[Edit], edit: Edit) -> (u64, u64, usize) {
    let shape = Shape::teams(teams).with(before);
    let (inputs, proxies) = shape.inputs(Order::default());
    let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
    let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
    let compiled: Vec<_> =
        proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
    let encoded = compiler.encoded();
    let next = snapshot.revise(shape.with(&[edit]).inputs(Order::default()).0);
    let changes = compiler.update(Arc::new(next.clone()));
    let shared = compiler.encoded() - encoded;
    let after = follow(&mut compiler, &changes, &by_id(&compiled), &proxies);
    let all = compiler.encoded() - encoded;

    let (before, after) = (versions(&compiled), versions(&after));
    let reached = before.iter().filter(|(id, set)| after[*id] != **set).count();
    assert_eq!(after, versions(&compile(next, &proxies)), "{edit:?} after {before:?}");
    (shared, all, reached)
}

#[test]
fn edit_cost_is_independent_of_policy_size() {
    // By both clients that may call the server: a table of routes each, the upstream's of one of them, and
    // the clusters that are new to them; by the server, its inbound routes.
    let expected = [
        (Edit::Rule, (4, 11, 3)),
        (Edit::NoTarget, (4, 11, 3)),
        (Edit::NewTarget, (3, 8, 2)),
        (Edit::Match, (4, 11, 3)),
        (Edit::TcpRoute, (4, 11, 3)),
        (Edit::Weight, (3, 5, 1)),
        (Edit::Port, (5, 10, 1)),
        (Edit::LessPorts, (3, 6, 2)),
        (Edit::Account, (7, 14, 2)),
        // All of the namespace may call it, and those who run as three accounts of it.
        (Edit::Permissive, (15, 26, 3)),
        (Edit::Private, (6, 14, 2)),
        // In these tests a service with parts also bounds its connections, in its proxy's inbound listener.
        (Edit::Part, (14, 21, 3)),
        (Edit::NewService, (0, 0, 0)),
        (Edit::Gone, (2, 4, 3)),
        (Edit::TimeOfService, (3, 6, 2)),
        (Edit::Retry, (3, 5, 1)),
        // The clusters of both ports for both callers, and what else is about the server; whom it asks, too.
        (Edit::Setting, (8, 16, 3)),
        (Edit::NamespaceSetting, (10, 22, 4)),
        // Its inbound routes, and what its proxy has of its own.
        (Edit::IngressRule, (1, 5, 1)),
        // Nothing that is shared: the collector's cluster, and the listeners of the one who tells. (The client
        // that has the server as an upstream is looked at, too.)
        (Edit::Told, (0, 7, 1)),
        (Edit::Egress, (3, 5, 1)),
    ];
    for teams in [2, 20] {
        for (edit, cost) in expected {
            assert_eq!(make(teams, &[], edit), cost, "{edit:?} where there are {teams} teams");
        }
    }
}

/// One edit by itself for each reason why something may be another.
#[test]
fn incremental_compile_equals_full_compile() {
    let edits: [(&[Edit], Edit); _] = [
        (&[], Edit::Rule),
        (&[], Edit::NoTarget),
        (&[], Edit::NewTarget),
        (&[], Edit::Match),
        (&[], Edit::TcpRoute),
        (&[], Edit::Weight),
        (&[], Edit::Port),
        (&[], Edit::LessPorts),
        (&[], Edit::Account),
        (&[], Edit::Permissive),
        (&[], Edit::Open),
        (&[], Edit::Namespace),
        (&[], Edit::Mesh),
        (&[], Edit::Private),
        (&[], Edit::Slashes),
        (&[], Edit::Part),
        (&[], Edit::Gone),
        (&[], Edit::NoSplits),
        (&[Edit::NoSplits], Edit::Gone),
        // Who serves TCP alone tells of its connections then, and all else is as it was.
        (&[Edit::LessPorts, Edit::Mesh], Edit::Namespace),
        // Who may call the second version knows of the server in front of it.
        (&[Edit::NewTarget, Edit::NoTarget], Edit::Weight),
        // A part of a permissive service may be called in plaintext where the whole has a list.
        (&[Edit::Part, Edit::Open], Edit::Listed),
        // What callers may ask of an external service is in their own routes.
        (&[Edit::Outside, Edit::NewTarget], Edit::Match),
        // It has its hostname where no service of the mesh has it.
        (&[Edit::Outside, Edit::NewTarget], Edit::Gone),
        // Also who may not call it says so at the hosts of the service.
        (&[Edit::NoTarget], Edit::Anywhere),
        (&[], Edit::Setting),
        (&[], Edit::NamespaceSetting),
        (&[], Edit::MeshSetting),
        // A part of a service is spared as the whole is.
        (&[Edit::Part], Edit::Setting),
        // Where the circle is cut is another place for all who come there.
        (&[Edit::Circle], Edit::IntoCircle),
        (&[], Edit::TimeOfMesh),
        (&[], Edit::TimeOfNamespace),
        (&[], Edit::TimeOfService),
        (&[], Edit::TimeOfRequests),
        (&[], Edit::Retry),
        // The server has neither a split nor a target that names the group.
        (&[Edit::NoSplits, Edit::TimeOfRequests], Edit::Match),
        (&[], Edit::IngressRule),
        // Its routes are as they were.
        (&[Edit::IngressRule], Edit::MovedWayIn),
        // No target is about who is called.
        (&[Edit::IngressRule], Edit::Match),
        (&[], Edit::Told),
        (&[Edit::Told], Edit::AllTold),
        // Who calls the outside is told what it may ask there, and nobody else.
        (&[], Edit::Egress),
        (&[Edit::Egress], Edit::NoEgress),
        (&[Edit::Egress, Edit::NoTarget, Edit::NoSplits], Edit::Match),
        (&[], Edit::Passthrough),
        (&[], Edit::AllPass),
        // What lets all pass lets nobody pass to what is of the mesh, or of an external service.
        (&[Edit::Passthrough, Edit::NoTarget, Edit::NoSplits], Edit::Anywhere),
        (&[Edit::AllPass, Edit::NoSplits], Edit::Gone),
    ];
    for (before, edit) in edits {
        let (_, _, reached) = make(2, before, edit);
        assert!(reached > 0, "{edit:?} after {before:?} is no edit");
    }
}
