//! The inbound listener: its HTTP chains contain what is served, not who may call.

use ironmesh_xds_wire::ResourceType;
use proptest::prelude::*;
use serde_json::Value;

use super::compile;
use super::mesh::{PartOrder, Shape, shape};
use crate::inbound::LISTENER;

/// The parts of a mesh that affect who may call, and where calls go: route groups, TCP routes,
/// traffic targets, splits, and the modes of namespaces and of the mesh.
const RULES: u32 = 0b110_0000_1111;

/// Every proxy's inbound listener, without TCP chains: these exist only while there are callers,
/// and count withdrawals.
fn listeners(shape: &Shape) -> Vec<Option<Value>> {
    let (snapshot, proxies) = shape.build(PartOrder::default());
    let listener = |compiled: &crate::Compiled| {
        let listener = compiled.resources.of(ResourceType::Listener).get(LISTENER)?;
        let mut listener = listener.to_json();
        let chains = listener["filterChains"].as_array_mut().expect("a listener has chains");
        chains.retain(|chain| chain.to_string().contains("HttpConnectionManager"));
        (!chains.is_empty()).then_some(listener)
    };
    compile(snapshot, &proxies).iter().map(|(_, compiled)| listener(compiled)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// A changed chain ends its connections.
    #[test]
    fn policy_change_never_edits_an_http_filter_chain(shape in shape(), other in shape()) {
        prop_assert_eq!(listeners(&shape), listeners(&shape.with_parts_of(&other, (RULES, None))));
    }
}
