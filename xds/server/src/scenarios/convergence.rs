//! Convergence: after any events in any order, the client ends with the published set (R63, R64).

use std::time::Duration;

use ironmesh_xds_wire::ResourceType;
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

use super::dialect::Dialect;
use super::walk::{NAMES, SUBSCRIBABLE, Step, Walk};

in_both_variants! {
    random_walk_converges_to_the_published_set,
}

/// R6, R9, R19, R21, R38, R44, R46, R51, R52, R53, R54, R55, R57, R63, R64:
/// all but the last two hold at each step.
fn random_walk_converges_to_the_published_set<V: Dialect>() {
    proptest!(|(steps in vec(step(), 1..80))| {
        let mut walk = Walk::<V>::new();
        for step in &steps {
            walk.apply(step);
        }
        walk.end();
    });
}

fn step() -> impl Strategy<Value = Step> {
    let of = || select(&ResourceType::ALL[..]);
    let names = || btree_set(select(&SUBSCRIBABLE[..]), 0..3);
    let edit = (of(), select(&NAMES[..]), prop::option::weighted(0.8, 0..5_u32));
    prop_oneof![
        6 => edit.prop_map(|(of, name, content)| Step::Edit(of, name, content)),
        3 => Just(Step::Publish),
        4 => (of(), names(), names())
            .prop_map(|(of, added, dropped)| Step::Request { of, added, dropped }),
        10 => (of(), any::<bool>()).prop_map(|(of, in_part)| Step::Answer { of, in_part }),
        1 => (0..=5_usize, any::<bool>())
            .prop_map(|(before_set, elsewhere)| Step::Reconnect { before_set, elsewhere }),
        1 => (0..20_000_u64).prop_map(|millis| Step::Pass(Duration::from_millis(millis))),
    ]
}
