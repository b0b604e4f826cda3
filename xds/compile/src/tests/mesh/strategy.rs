//! Random shapes.

use ironmesh_catalog::{EscapedSlashes, Mode, Resolution};
use proptest::collection::{btree_map, btree_set, vec};
use proptest::option;
use proptest::prelude::*;

use super::ingress::ingress;
use super::instance::instance;
use super::outward::outward;
use super::settings;
use super::telemetry::telemetry;
use super::treated::treated;
use super::{
    ACCOUNTS, GROUPS, HOSTNAMES, MATCHES, NAMESPACES, PARTS, PORTS, ProxyShape, ROUTES, RuleShape,
    SERVICES, ServiceShape, Shape, SplitShape, SubjectKind, TargetShape,
};

pub(in crate::tests) fn shape() -> impl Strategy<Value = Shape> {
    let ports =
        btree_set(0..PORTS.len(), 0..=PORTS.len()).prop_map(|set| set.into_iter().collect());
    let mode = || {
        prop_oneof![
            4 => Just(None),
            1 => Just(Some(Mode::Permissive)),
            1 => Just(Some(Mode::Audit)),
            1 => Just(Some(Mode::Strict)),
        ]
    };
    let resolution =
        prop_oneof![Just(Resolution::Static), Just(Resolution::Dns), Just(Resolution::Passthrough)];
    let outside =
        prop_oneof![4 => Just(None), 1 => (resolution, 0..HOSTNAMES.len()).prop_map(Some)];
    let flags = (any::<[bool; 4]>(), prop::bool::weighted(0.1));
    let found = vec((0..7_usize, instance()), 0..4);
    // Service number `SERVICES` is one that policy does not define.
    let upstream = || (0..=SERVICES, option::of(0..PORTS.len()), 15078..15084_u16);
    let upstreams = prop_oneof![2 => Just(Vec::new()), 1 => vec(upstream(), 0..3)];
    let service = (0..NAMESPACES, 0..ACCOUNTS, ports, mode(), flags, outside, (found, upstreams));
    let service = service.prop_map(|(namespace, account, ports, mode, flags, outside, others)| {
        let (found, upstreams) = others;
        let ([is_listed, is_private, has_part, keeps], is_drained) = flags;
        ServiceShape {
            namespace,
            account,
            ports,
            mode,
            is_listed,
            found,
            is_drained,
            is_private,
            escaped_slashes: if keeps { EscapedSlashes::Keep } else { EscapedSlashes::Reject },
            has_part,
            upstreams,
            outside,
        }
    });
    let sources = vec((0..NAMESPACES, 0..ACCOUNTS, subject_kind()), 0..3);
    let matches = option::of(vec(0..=MATCHES, 0..4));
    let rule = prop_oneof![
        (0..=GROUPS, matches).prop_map(|(group, matches)| RuleShape::Http(group, matches)),
        (0..=ROUTES).prop_map(RuleShape::Tcp),
    ];
    let destination = (0..ACCOUNTS, subject_kind());
    let target = (0..NAMESPACES, destination, sources, vec(rule, 0..4));
    let target = target.prop_map(|(namespace, destination, sources, rules)| TargetShape {
        namespace,
        destination,
        sources,
        rules,
    });
    let backends = btree_map(0..=SERVICES, 0..3_u32, 1..4);
    let matches = vec((0..=GROUPS, option::of(vec(0..=MATCHES, 0..3))), 0..3);
    let split = (0..SERVICES, matches, backends);
    let split = split.prop_map(|(apex, matches, backends)| SplitShape { apex, matches, backends });
    let flags = (any::<[bool; 4]>(), [0.2; 2].map(prop::bool::weighted));
    let proxy = (btree_set(0..=SERVICES, 1..4), vec(upstream(), 0..4), flags);
    let proxy = proxy.prop_map(|(services, upstreams, flags)| {
        let ([participates, is_on_loopback, is_suspect, has_hosts], [is_next_too, is_vacant]) =
            flags;
        ProxyShape {
            services: services.into_iter().collect(),
            upstreams,
            participates,
            is_on_loopback,
            is_suspect,
            is_vacant,
            is_next_too,
            has_hosts,
        }
    });
    let groups = btree_map(
        (0..NAMESPACES, 0..GROUPS),
        vec(0..MATCHES, 0..=MATCHES),
        0..=NAMESPACES * GROUPS,
    );
    let splits = (vec(split, 0..5), vec(treated(), 0..5), vec(settings::setting(), 0..4));
    let routes = btree_map(
        (0..NAMESPACES, 0..ROUTES),
        option::of(vec(0..PORTS.len(), 1..3)),
        0..=NAMESPACES * ROUTES,
    );
    let rules = (groups, routes, telemetry());
    let modes = (mode(), vec(mode(), NAMESPACES), any::<bool>(), outward());
    let revocations = (vec(0..9_usize, 0..3), vec((0..NAMESPACES, 0..ACCOUNTS), 0..3));
    let proxies = (vec(proxy, 1..6), vec(ingress(), 0..10), revocations);
    (modes, vec(service, SERVICES), rules, vec(target, 0..12), splits, proxies).prop_map(
        |(
            modes,
            services,
            (groups, routes, telemetry),
            targets,
            (splits, treated, settings),
            (proxies, ingress, (revoked, reissued)),
        )| {
            let (mode, namespaces, has_other_bindings, outward) = modes;
            Shape {
                mode: mode.unwrap_or(Mode::Strict),
                namespaces,
                services,
                groups,
                routes,
                targets,
                splits,
                treated,
                settings,
                has_other_bindings,
                telemetry,
                outward,
                proxies,
                ingress,
                revoked,
                reissued,
            }
        },
    )
}

/// The parts that change in the next snapshot, as bits, and for lists whether all elements or one.
pub(in crate::tests) fn step() -> impl Strategy<Value = (u32, Option<usize>)> {
    let parts = prop_oneof![1 => 0..1_u32 << PARTS, 2 => (0..PARTS).prop_map(|part| 1 << part)];
    (parts, option::of(0..8_usize))
}

fn subject_kind() -> impl Strategy<Value = SubjectKind> {
    prop_oneof![3 => Just(SubjectKind::Account), 1 => Just(SubjectKind::Binding), 1 => Just(SubjectKind::Identity)]
}
