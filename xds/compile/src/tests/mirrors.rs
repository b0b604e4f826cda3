//! Mirrors: a service gets no copies of calls that it answers itself.

use std::collections::BTreeSet;

use ironmesh_analysis::verdict::{VerdictBasis, verdict};
use ironmesh_analysis::{Question, Request};
use ironmesh_catalog::ServicePort;
use ironmesh_xds_wire::ResourceType;

use super::mesh::{PartOrder, Shape};
use super::{compile_shape, content, each};

#[test]
fn call_routed_to_the_mirror_target_is_not_mirrored() {
    let port = |service: &str| ServicePort::new(service.parse().unwrap(), 80).to_string();
    let [whole, first, second] = ["n0/s0", "n0/s3", "n0/s4"].map(port);
    // Calls to the mirror by its own name are not mirrored.
    let by_name = [(whole.as_str(), true), (&first, false), (&second, false)];
    for (weights, by_split) in
        [([1, 0], (first.as_str(), false)), ([0, 1], (&second, true)), ([1, 1], ("several", true))]
    {
        // Some requests have other backends than the rest.
        let shape = Shape::fleet(1, true).with_split(weights, 1).with_mirror(0, 3);
        let compiled = compile_shape(&shape);
        let services = ["n1/s1".parse().unwrap()];
        let (_, caller) =
            compiled.iter().find(|(proxy, _)| proxy.record.services == services).unwrap();
        let routes = content(caller, ResourceType::Route);
        let mut seen = BTreeSet::new();
        for configuration in routes.values() {
            each(configuration, "route", &mut |action| {
                let to = action["cluster"].as_str().unwrap_or("several");
                let copies = action["requestMirrorPolicies"].as_array();
                let is_copied = copies.is_some_and(|copies| {
                    assert_eq!(copies[0]["cluster"], first.as_str());
                    true
                });
                seen.insert((to, is_copied));
            });
        }
        let expected: BTreeSet<_> = by_name.into_iter().chain([by_split]).collect();
        assert_eq!(seen, expected, "{weights:?}");
        // The verdict says the same.
        let question = Question {
            caller: "n1/a0".parse().unwrap(),
            service: "n0/s0".parse().unwrap(),
            port: None,
            request: Some(Request { path: "/books/1".to_owned(), ..Request::default() }),
        };
        let (snapshot, _) = shape.build(PartOrder::default());
        let verdict = verdict(&snapshot, &question, VerdictBasis::PolicyOnly).unwrap();
        let settings = &verdict.treatments[0].settings;
        let mirror = &settings.iter().find(|settings| settings.key == "mirror").unwrap().value;
        assert_eq!(mirror.contains("n0/s3 answers them itself"), weights == [1, 0], "{mirror}");
    }
}
