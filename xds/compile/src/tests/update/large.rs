//! The effect and the cost of single edits in a large policy.

use std::sync::Arc;

use ironmesh_catalog::{Inputs, Records, RevokedCallers, Snapshot, TcpAccesses};
use ironmesh_xds_wire::ResourceType;

use super::super::mesh::{Edit, PartOrder, Shape};
use super::super::{compile, versions};
use super::{by_id, follow};
use crate::{Compiler, names};

/// Makes an edit in a mesh of `teams` teams after some earlier edits, and checks that the result
/// equals full compilation.
///
/// Returns the number of shared resources encoded, the number including the proxies' own, and the
/// number of proxies that are sent something.
fn make(teams: usize, before: &[Edit], edit: Edit) -> (u64, u64, usize) {
    let shape = Shape::teams(teams).with(before);
    let (inputs, proxies) = shape.inputs(PartOrder::default());
    let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
    let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
    let compiled: Vec<_> =
        proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
    let encoded = compiler.encoded();
    let next = snapshot.revise(shape.with(&[edit]).inputs(PartOrder::default()).0);
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
    // Both clients that may call the server: the routes of each visibility, the upstream's routes of one, and the
    // clusters that are new to them. The server: its inbound routes.
    let expected = [
        (Edit::Rule, (5, 11, 3)),
        // The clients have one visibility afterwards.
        (Edit::NoTarget, (3, 10, 3)),
        (Edit::NewTarget, (2, 8, 2)),
        (Edit::Match, (4, 11, 3)),
        (Edit::TcpRoute, (5, 11, 3)),
        (Edit::Weight, (3, 5, 1)),
        (Edit::Port, (4, 9, 1)),
        (Edit::LessPorts, (3, 6, 2)),
        // And for the server, the chains of single callers of its TCP port, three resources.
        (Edit::Account, (8, 17, 2)),
        // All accounts of the namespace may call it; proxies run as three of them.
        (Edit::Permissive, (9, 22, 3)),
        (Edit::Private, (7, 14, 2)),
        // In these tests a service with a subset also limits its connections, in its proxy's
        // inbound listener.
        (Edit::Part, (10, 17, 3)),
        (Edit::NewService, (0, 0, 0)),
        (Edit::Gone, (2, 4, 3)),
        (Edit::TimeOfService, (3, 6, 2)),
        (Edit::Retry, (2, 5, 1)),
        // The clusters of both ports, which callers share, and other resources of the server,
        // including its rate limit service.
        (Edit::Setting, (6, 14, 3)),
        (Edit::NamespaceSetting, (8, 20, 4)),
        // Its inbound routes, and its proxy's own resources.
        (Edit::IngressRule, (1, 5, 1)),
        // Nothing shared: the collector's cluster, and the listeners of the proxy that logs.
        (Edit::Telemetry, (0, 5, 1)),
        (Edit::Egress, (2, 5, 1)),
        // The listeners of one client: the new one, that of its other upstream and the one by `Host`.
        (Edit::Upstreams, (0, 3, 1)),
    ];
    for teams in [2, 20] {
        let costs = expected.map(|(edit, _)| (edit, make(teams, &[], edit)));
        assert_eq!(costs, expected, "where there are {teams} teams");
    }
}

/// One edit for each reason for which a resource may change.
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
        (&[], Edit::SecondOfAccount),
        (&[], Edit::NoSplits),
        (&[Edit::NoSplits], Edit::Gone),
        // Afterwards a service with TCP only logs its connections, and everything else is
        // unchanged.
        (&[Edit::LessPorts, Edit::Mesh], Edit::Namespace),
        // A caller of the second version knows the server, its apex.
        (&[Edit::NewTarget, Edit::NoTarget], Edit::Weight),
        // A subset of a permissive service may be called in plaintext if the service has a list.
        (&[Edit::Part, Edit::Open], Edit::Listed),
        // The rules of an external service are in the routes of its callers.
        (&[Edit::Outside, Edit::NewTarget], Edit::Match),
        // It may use its hostname once no service of the mesh has that name.
        (&[Edit::Outside, Edit::NewTarget], Edit::Gone),
        // Even callers without a grant get a response at the hosts of the service.
        (&[Edit::NoTarget], Edit::Anywhere),
        (&[], Edit::Setting),
        (&[], Edit::NamespaceSetting),
        (&[], Edit::MeshSetting),
        // A subset has the limits of the service.
        (&[Edit::Part], Edit::Setting),
        // The circle is cut elsewhere for all callers of its services.
        (&[Edit::Circle], Edit::IntoCircle),
        (&[], Edit::TimeOfMesh),
        (&[], Edit::TimeOfNamespace),
        (&[], Edit::TimeOfService),
        (&[], Edit::TimeOfRequests),
        (&[], Edit::Retry),
        // The server has neither a split nor a target that names the group.
        (&[Edit::NoSplits, Edit::TimeOfRequests], Edit::Match),
        (&[], Edit::IngressRule),
        // Its routes are unchanged.
        (&[Edit::IngressRule], Edit::MovedIngress),
        // No target covers the service.
        (&[Edit::IngressRule], Edit::Match),
        (&[], Edit::Telemetry),
        (&[Edit::Telemetry], Edit::MeshTelemetry),
        // An egress affects only its sources.
        (&[], Edit::Egress),
        (&[Edit::Egress], Edit::NoEgress),
        (&[Edit::Egress, Edit::NoTarget, Edit::NoSplits], Edit::Match),
        (&[], Edit::Passthrough),
        (&[], Edit::AllPass),
        // Passthrough excludes names of the mesh and of external services.
        (&[Edit::Passthrough, Edit::NoTarget, Edit::NoSplits], Edit::Anywhere),
        (&[Edit::AllPass, Edit::NoSplits], Edit::Gone),
        // Every server refuses the caller, whatever policy says about it.
        (&[], Edit::Revoked),
        (&[Edit::Revoked], Edit::Revoked),
        (&[Edit::Revoked], Edit::NoneRevoked),
        (&[], Edit::Upstreams),
        (&[Edit::Upstreams], Edit::OtherUpstream),
        (&[Edit::Upstreams], Edit::LessPorts),
        (&[Edit::OtherUpstream], Edit::LessPorts),
        (&[Edit::OtherUpstream], Edit::NoTarget),
        (&[], Edit::Reissued),
        (&[Edit::Reissued], Edit::Reissued),
        // The clusters of reissued accounts follow policy like all others.
        (&[Edit::Reissued], Edit::Setting),
        (&[Edit::Reissued], Edit::Permissive),
        (&[Edit::Reissued], Edit::NoTarget),
    ];
    for (before, edit) in edits {
        let (_, _, reached) = make(2, before, edit);
        assert!(reached > 0, "{edit:?} after {before:?} is no edit");
    }
}

/// The control plane compiles every connected client, also one whose record is not in use any more.
#[test]
fn proxy_without_a_record_follows_policy_until_it_is_forgotten() {
    let (inputs, proxies) = Shape::teams(2).inputs(PartOrder::default());
    let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
    let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
    for proxy in &proxies {
        compiler.compile(proxy);
    }
    let after = |snapshot: &Snapshot, edits: &[Edit]| {
        let inputs = Shape::teams(2).with(edits).inputs(PartOrder::default()).0;
        snapshot.revise(Inputs { records: Records::new(), ..inputs })
    };
    let first = after(&snapshot, &[Edit::NewService]);
    compiler.update(Arc::new(first.clone()));
    let second = after(&first, &[Edit::NewService, Edit::NoTarget]);
    let changes = compiler.update(Arc::new(second.clone()));
    assert_eq!(changes.proxies.len(), 3, "a target was withdrawn: {changes:?}");
    for proxy in &proxies {
        compiler.compile(proxy);
        compiler.forget(proxy.record.id);
    }
    let changes = compiler.update(Arc::new(after(&second, &[Edit::NewService])));
    assert!(changes.proxies.is_empty(), "{changes:?}");
}

/// The lists alone, and the numbers of accounts alone, with nothing for HTTP ports.
#[test]
fn tcp_revocation_reaches_every_server() {
    let (inputs, proxies) = Shape::teams(2).inputs(PartOrder::default());
    let revoked = Shape::teams(2).with(&[Edit::Revoked]).inputs(PartOrder::default()).0;
    let last_listed = revoked.revoked_callers.last_listed.clone();
    let lists = RevokedCallers { lists: Some("lists".into()), ..RevokedCallers::default() };
    let numbers = RevokedCallers { last_listed, ..RevokedCallers::default() };
    for callers in [lists, numbers] {
        let snapshot = Snapshot::assemble(inputs.clone(), TcpAccesses::default());
        let mut compiler = Compiler::new(Arc::new(snapshot.clone()));
        let compiled: Vec<_> =
            proxies.iter().map(|proxy| (proxy.clone(), compiler.compile(proxy))).collect();
        let inputs = Inputs { revoked_callers: Arc::new(callers), ..inputs.clone() };
        let next = snapshot.revise(inputs);
        let changes = compiler.update(Arc::new(next.clone()));
        let after = follow(&mut compiler, &changes, &by_id(&compiled), &proxies);
        assert_eq!(versions(&after), versions(&compile(next, &proxies)));
        assert_ne!(versions(&after), versions(&compiled), "it changes something");
    }
}

#[test]
fn revocation_changes_only_inbound_routes_and_lists_of_callers() {
    let shape = Shape::teams(2);
    let (inputs, proxies) = shape.inputs(PartOrder::default());
    let snapshot = Snapshot::assemble(inputs, TcpAccesses::default());
    let before = compile(snapshot.clone(), &proxies);
    let next = snapshot.revise(shape.with(&[Edit::Revoked]).inputs(PartOrder::default()).0);
    let after = compile(next, &proxies);
    let (mut routes, mut secrets) = (0, 0);
    for ((_, before), (_, after)) in before.iter().zip(&after) {
        assert_eq!(before.resources.iter().count(), after.resources.iter().count());
        for (old, new) in before.resources.iter().zip(after.resources.iter()) {
            if old.version() != new.version() {
                match new.resource_type() {
                    ResourceType::Route => {
                        assert!(new.name().starts_with(names::INBOUND) && new.is_urgent());
                        routes += 1;
                    }
                    // The chains of the caller's account.
                    ResourceType::Listener => {
                        assert!(new.name().starts_with("callers|"), "{}", new.name());
                    }
                    of => {
                        assert_eq!(of, ResourceType::Secret, "{}", new.name());
                        assert!(new.name().starts_with(names::CALLERS), "{}", new.name());
                        secrets += 1;
                    }
                }
            }
        }
    }
    assert!(routes > 0 && secrets > 0, "{routes} {secrets}");
}
