//! Fleets: one service with many callers.

use std::collections::BTreeMap;

use ironmesh_catalog::{EscapedSlashes, Mode};

use super::outward::OutwardShape;
use super::telemetry::TelemetryShape;
use super::{
    MATCHES, NAMESPACES, ProxyShape, RuleShape, ServiceShape, Shape, SplitShape, SubjectKind,
    TargetShape,
};

impl Shape {
    /// A service with one proxy, `callers` callers of one account, and as many of another account
    /// that may not call it.
    pub(in crate::tests) fn fleet(callers: usize, participates: bool) -> Self {
        let service = |account, ports: &[usize]| ServiceShape {
            namespace: account % NAMESPACES,
            account: account / NAMESPACES,
            ports: ports.to_vec(),
            mode: None,
            is_listed: false,
            found: Vec::new(),
            is_drained: false,
            is_private: false,
            escaped_slashes: EscapedSlashes::Reject,
            has_part: false,
            upstreams: Vec::new(),
            outside: None,
        };
        let proxy = |service, participates| ProxyShape {
            services: vec![service],
            upstreams: Vec::new(),
            participates,
            is_on_loopback: false,
            is_suspect: false,
            is_vacant: false,
            is_next_too: false,
            has_hosts: false,
        };
        let others = |service| std::iter::repeat_with(move || proxy(service, false)).take(callers);
        Self {
            mode: Mode::Strict,
            namespaces: Vec::new(),
            services: vec![service(0, &[0]), service(1, &[]), service(2, &[])],
            groups: [((0, 0), vec![0])].into(),
            routes: BTreeMap::new(),
            targets: vec![TargetShape {
                namespace: 0,
                destination: (0, SubjectKind::Account),
                sources: vec![(1, 0, SubjectKind::Account)],
                rules: vec![RuleShape::Http(0, None)],
            }],
            splits: Vec::new(),
            treated: Vec::new(),
            settings: Vec::new(),
            has_other_bindings: false,
            telemetry: TelemetryShape::new(),
            outward: OutwardShape::default(),
            revoked: Vec::new(),
            reissued: Vec::new(),
            proxies: [proxy(0, participates)]
                .into_iter()
                .chain(others(1))
                .chain(others(2))
                .collect(),
            ingress: Vec::new(),
        }
    }

    /// This fleet with a split of its service over two more services, for requests that one match
    /// matches. One caller has it as an upstream.
    pub(in crate::tests) fn with_split(mut self, weights: [u32; 2], a_match: usize) -> Self {
        self.groups = [((0, 0), (0..MATCHES).collect())].into();
        let behind = self.services.len()..;
        for _ in weights {
            self.services.extend(self.services.first().cloned());
        }
        self.splits.push(SplitShape {
            apex: 0,
            matches: vec![(0, Some(vec![a_match]))],
            backends: behind.zip(weights).collect(),
        });
        if let Some(caller) = self.proxies.get_mut(1) {
            caller.upstreams = vec![(0, None, 15079)];
        }
        self
    }
}
