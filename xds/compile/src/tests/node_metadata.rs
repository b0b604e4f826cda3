//! Node metadata: unknown fields change nothing.

use std::sync::Arc;

use super::mesh::{PartOrder, Shape};
use super::{compile, versions};

#[test]
fn proxy_with_unknown_fields_gets_finding_and_same_resources() {
    let (snapshot, mut proxies) = Shape::fleet(1, true).build(PartOrder::default());
    let snapshot = Arc::new(snapshot);
    let usual = compile((*snapshot).clone(), &proxies);
    for proxy in &mut proxies {
        proxy.metadata.unknown = vec!["colour".to_owned(), "upstreams.weight".to_owned()];
    }
    let compiled = compile((*snapshot).clone(), &proxies);
    assert_eq!(versions(&compiled), versions(&usual));
    for ((proxy, compiled), (_, usual)) in compiled.iter().zip(&usual) {
        let findings = compiled.findings.iter().filter(|one| !usual.findings.contains(one));
        let findings: Vec<_> = findings.map(ToString::to_string).collect();
        let id = proxy.record.id;
        let expected = format!(
            "[IM0661]: proxy {id} states fields that this control plane ignores: `colour`, \
             `upstreams.weight`"
        );
        assert!(findings.len() == 1 && findings[0].contains(&expected), "{findings:?}");
    }
}
