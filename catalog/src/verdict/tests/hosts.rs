//! Hosts of requests, and rules about them.

use super::*;

/// `buyer` may call `v1` by this host alone.
fn mesh_by_host(host: &str) -> Snapshot {
    let mut mesh = mesh();
    let group = HttpRouteGroup {
        namespace: name("shop"),
        name: name("books"),
        matches: vec![HttpMatch {
            name: name("read"),
            path: None,
            methods: Vec::new(),
            headers: [("host".into(), host.into())].into(),
            spot: spot(),
        }],
        spot: spot(),
    };
    mesh.http_route_groups.insert(key("books"), Arc::new(group));
    snapshot(mesh)
}

fn ask_host(snapshot: &Snapshot, to: &str, host: Option<&str>) -> Result<Verdict, QuestionError> {
    let headers = host.map(|host| ("Host".to_owned(), host.to_owned())).into_iter().collect();
    let request = Request { headers, ..Request::default() };
    verdict(snapshot, &question("buyer", to, Some(request)), Sight::PolicyAlone)
}

#[test]
fn a_host_that_is_none_of_the_services_has_no_verdict() {
    let snapshot = mesh_by_host(r"other\.example");
    for host in ["other.example", "v2.shop", "v1.shop:81", "v1.shop.", "", "v1.shop.mesh"] {
        let error = ask_host(&snapshot, "v1", Some(host)).unwrap_err();
        assert!(matches!(error, QuestionError::Request(_)), "{host}: {error}");
        let hosts =
            "v1, v1.shop, v1.shop.mesh.internal, v1.shop.mesh.internal:80, v1.shop:80, v1:80";
        assert!(error.to_string().contains(hosts), "{host}: {error}");
    }
    for host in ["v1", "V1.Shop", "v1.shop.mesh.internal:80"] {
        assert_eq!(ask_host(&snapshot, "v1", Some(host)).unwrap().answer, Answer::Denied, "{host}");
    }
    // In another namespace it has fewer.
    let far = Question { caller: "far/buyer".parse().unwrap(), ..question("buyer", "v1", None) };
    let service = snapshot.service(&far.service).unwrap();
    let port = ServicePort::new(far.service.clone(), 80);
    assert!(
        !crate::hosts::hosts(&snapshot, &far.caller, service, &port).contains(&"v1".to_owned())
    );
}

#[test]
fn where_a_rule_is_about_the_host_it_is_told_what_calls_of_an_upstream_come_to() {
    let snapshot = mesh_by_host("v1");
    let written = ask_host(&snapshot, "v1", Some("v1:80")).unwrap();
    assert_eq!(written.answer, Answer::Allowed);
    let at_upstream =
        AtUpstream { host: "v1.shop.mesh.internal:80".to_owned(), answer: Answer::Denied };
    let compared = ComparedHost { host: "v1:80".to_owned(), at_upstream: Some(at_upstream) };
    assert_eq!(written.compared_host, Some(compared));
    // Where nothing is said, it is a call of an upstream.
    let silent = ask_host(&snapshot, "v1", None).unwrap();
    assert_eq!(silent.answer, Answer::Denied);
    let host = "v1.shop.mesh.internal:80".to_owned();
    assert_eq!(silent.compared_host, Some(ComparedHost { host, at_upstream: None }));
    // Where it makes no difference, nothing is told of upstreams.
    let both = ask_host(&mesh_by_host(r"v1(\..*)?"), "v1", Some("v1")).unwrap();
    assert_eq!((both.answer, both.compared_host.unwrap().at_upstream), (Answer::Allowed, None));
    // Where no rule is about it, nothing is told at all.
    let verdict = ask("buyer", "v1", Some(get("/books/1", "gold")));
    assert_eq!(verdict.compared_host, None);
}
