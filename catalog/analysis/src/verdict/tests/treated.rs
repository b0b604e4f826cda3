//! Requests that an HTTP route rewrites, redirects, aborts or mirrors.

use ironmesh_catalog::policy::{
    Abort, AbortWith, CallSettings, Fault, HeaderChanges, HttpRoute, Level, Mirror, PathChange,
    Percent, Reach, Redirect, Rewrite,
};

use super::*;

/// The mesh with an HTTP route of `v1` that has these settings.
fn mesh_with(settings: CallSettings) -> MeshSpecification {
    let mut mesh = mesh();
    let route = HttpRoute {
        namespace: name("shop"),
        name: name("r"),
        reach: Reach::All(Level::Service("shop/v1".parse().unwrap())),
        sources: None,
        settings,
        spot: spot(),
    };
    mesh.http_routes.insert(key("r"), Arc::new(route));
    mesh
}

fn ask_of(mesh: MeshSpecification, request: Option<Request>) -> Verdict {
    verdict(&snapshot(mesh), &question("buyer", "v1", request), VerdictBasis::PolicyOnly).unwrap()
}

fn rewrite(path: Option<PathChange>, host: Option<&str>) -> CallSettings {
    let rewrite = Rewrite { path, host: host.map(Arc::from) };
    CallSettings { rewrite: Some(rewrite), ..CallSettings::default() }
}

fn prefix(from: &str, to: &str) -> PathChange {
    PathChange::Prefix { from: from.into(), to: to.into() }
}

#[test]
fn rewritten_path_is_authorized() {
    let shelf = || mesh_with(rewrite(Some(prefix("/shelf", "/books")), None));
    let verdict = ask_of(shelf(), Some(get("/shelf/1?page=2", "gold")));
    assert_eq!(
        (&verdict.answer, verdict.compared_path.as_deref()),
        (&Answer::Allowed, Some("/books/1"))
    );
    assert_eq!(verdict.treatments[0].settings[0].value, "path `/shelf` → `/books`");
    // The server authorizes the rewritten path, so a grant for the original path has no effect.
    let away = mesh_with(rewrite(Some(prefix("/books", "/shelf")), None));
    let verdict = ask_of(away, Some(get("/books/1", "gold")));
    assert_eq!(
        (&verdict.answer, verdict.compared_path.as_deref()),
        (&Answer::Denied, Some("/shelf/1"))
    );
    assert_eq!(ask_of(shelf(), Some(get("/shelfs/1", "gold"))).answer, Answer::Denied);
    // The server's sidecar normalizes the rewritten path again.
    let regex = PathChange::Regex { expression: "/(.*)".into(), substitution: "/x/../\\1".into() };
    let verdict = ask_of(mesh_with(rewrite(Some(regex), None)), Some(get("/books/1", "gold")));
    assert_eq!((&verdict.answer, verdict.compared_path), (&Answer::Allowed, None));
}

#[test]
fn changed_headers_and_rewritten_host_are_authorized() {
    let headers = |changes: HeaderChanges| {
        mesh_with(CallSettings { request_headers: Some(changes), ..CallSettings::default() })
    };
    let set = || HeaderChanges {
        set: [("x-tier".into(), "gold".into())].into(),
        ..HeaderChanges::default()
    };
    let add = || HeaderChanges { add: set().set, ..HeaderChanges::default() };
    let remove = || HeaderChanges { remove: ["x-tier".into()].into(), ..HeaderChanges::default() };
    for (changes, asked, answer) in [
        (set(), "iron", Answer::Allowed),
        // The server's sidecar joins them to `iron,gold`.
        (add(), "iron", Answer::Denied),
        (remove(), "gold", Answer::Denied),
    ] {
        assert_eq!(ask_of(headers(changes), Some(get("/books/1", asked))).answer, answer);
    }
    let mut mesh = mesh_with(rewrite(None, Some("books.example:80")));
    let mut group = HttpRouteGroup::clone(&mesh.http_route_groups[&key("books")]);
    group.matches[0].headers = [("host".into(), "books[.]example".into())].into();
    mesh.http_route_groups.insert(key("books"), Arc::new(group));
    let verdict = ask_of(mesh, Some(get("/books/1", "gold")));
    assert_eq!(verdict.answer, Answer::Allowed);
    // The rewritten host is the same at a declared upstream.
    let host = verdict.compared_host.unwrap();
    assert_eq!((host.host.as_str(), host.at_upstream), ("books.example:80", None));
}

#[test]
fn redirect_answers_before_authorization() {
    let redirect = Redirect {
        status: 308,
        scheme: None,
        host: Some("books.example".into()),
        port: None,
        path: Some(prefix("/books", "/b")),
    };
    let settings = CallSettings { redirect: Some(redirect), ..CallSettings::default() };
    for request in [Some(get("/books/1", "gold")), Some(get("/nothing", "iron")), None] {
        let verdict = ask_of(mesh_with(settings.clone()), request);
        let to = "308 to host `books.example`, path `/books` → `/b`".to_owned();
        assert_eq!(verdict.answer, Answer::Redirected(to));
        assert!(verdict.destinations.is_empty() && verdict.branches.is_empty());
    }
    // An aborted request is not redirected. The verdict reports the abort as a fault, and the
    // request as allowed.
    let abort = Abort { with: AbortWith::Status(503), percent: Percent::ALL };
    let fault = Some(Fault { delay: None, abort: Some(abort) });
    let fails = ask_of(
        mesh_with(CallSettings { fault, ..settings.clone() }),
        Some(get("/books/1", "gold")),
    );
    assert_eq!(fails.answer, Answer::Allowed);
    assert_eq!(fails.treatments[0].settings.len(), 2);
    // A caller without the service in its scope is not redirected.
    let far = verdict(
        &snapshot(mesh_with(settings)),
        &question("cook", "v1", Some(get("/books/1", "gold"))),
        VerdictBasis::PolicyOnly,
    );
    assert_eq!(far.unwrap().answer, Answer::Denied);
}

#[test]
fn unusable_mirror_is_reported_with_its_reason() {
    let mirror = |to: &str| {
        let service = format!("shop/{to}").parse().unwrap();
        let mirror = Mirror { service, percent: Percent(100_000), spot: spot() };
        mesh_with(CallSettings { mirror: Some(mirror), ..CallSettings::default() })
    };
    let reported =
        |mesh: MeshSpecification| ask_of(mesh, None).treatments[0].settings[0].value.clone();
    let no = "but not of this caller";
    assert_eq!(
        reported(mirror("v2")),
        format!("10 % go to shop/v2 as well, {no}: it may not call shop/v2")
    );
    assert_eq!(
        reported(mirror("store")),
        format!("10 % go to shop/store as well, {no}: shop/store has traffic splits")
    );
    assert_eq!(
        reported(mirror("ledger")),
        format!("10 % go to shop/ledger as well, {no}: shop/ledger has no HTTP port 80")
    );
    let mut mesh = mirror("v2");
    let rules = vec![RouteRule::Http { group: name("books"), matches: None, spot: spot() }];
    mesh.traffic_targets.insert(key("t"), Arc::new(target("t", "v2", "buyer", rules)));
    assert_eq!(reported(mesh), "10 % go to shop/v2 as well");
}
