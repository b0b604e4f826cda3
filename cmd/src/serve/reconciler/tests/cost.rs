//! What costs nothing when it has been done once.

use super::place::Place;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "buyer"
"#;

#[test]
fn who_serves_nothing_is_decided_at_once() {
    let mut place = Place::open(POLICY);
    let _buyer = place.proxy(1, &["buyer"]);
    place.pass();
    assert!(place.reconciler.undecided.is_empty());
    let mut store = place.proxy(2, &["store"]);
    place.pass();
    assert_eq!(place.reconciler.undecided.len(), 1, "it has taken nothing yet");
    store.take_all();
    place.pass();
    assert!(place.reconciler.undecided.is_empty());
}
