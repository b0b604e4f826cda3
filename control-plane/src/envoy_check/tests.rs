//! Tests with a real Envoy. Envoy should accept each policy that the loader accepts, so the tests put invalid values in
//! after loading.

use std::fmt::Write as _;

use ironmesh_catalog::PathRegex;
use ironmesh_config_language::{Document, load_documents};
use ironmesh_config_settings::load_settings;

use super::*;

/// The Envoy of the tests. If it is missing, the test is skipped with a message, and CI fails.
fn envoy() -> Option<std::path::PathBuf> {
    let fetched = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.tools/envoy");
    let path = std::env::var_os("ENVOY_BIN").map_or(fetched, Into::into);
    if path.exists() {
        return Some(path);
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{} is missing", path.display());
    eprintln!("SKIPPED: {} is missing; `make envoy` fetches it", path.display());
    None
}

/// Thirty services, each of which the next may call, and two of which are one in a split.
fn policy() -> String {
    let mut text = String::new();
    for number in 0..30 {
        let (next, protocol) = ((number + 1) % 30, ["http", "grpc", "tcp"][number % 3]);
        let rule = if protocol == "tcp" { "TCPRoute" } else { "HTTPRouteGroup" };
        write!(
            text,
            "[[service]]\nname = \"s{number}\"\nports = [{{ port = 80, protocol = \"{protocol}\" }}]\n\
             [[traffic_target]]\nname = \"t{number}\"\ndestination = {{ name = \"s{number}\" }}\n\
             sources = [{{ name = \"s{next}\" }}]\nrules = [{{ kind = \"{rule}\", name = \"g{number}\" }}]\n"
        )
        .unwrap();
        let group = format!(
            "[[http_route_group]]\nname = \"g{number}\"\nmatches = [{{ name = \"m\", path_regex = \"/{number}\" }}]\n"
        );
        text += if protocol == "tcp" { "" } else { &group };
    }
    for number in (2..30).step_by(3) {
        write!(text, "[[tcp_route]]\nname = \"g{number}\"\n").unwrap();
    }
    text += "[[service]]\nname = \"apex\"\nports = [{ port = 80, protocol = \"http\" }]\n\
             [[traffic_split]]\nname = \"apex\"\nservice = \"apex\"\n\
             backends = [{ service = \"s0\", weight = 1 }, { service = \"s3\", weight = 1 }]\n";
    text
}

fn settings() -> Settings {
    load_settings("", "ironmesh.toml").unwrap()
}

/// The same with expressions on paths in these groups that no Envoy takes.
fn break_groups(specification: &MeshSpecification, groups: &[&str]) -> Arc<MeshSpecification> {
    let mut broken = specification.clone();
    for group in groups {
        let key = (ironmesh_catalog::Name::default_namespace(), group.parse().unwrap());
        let mut changed = (**broken.http_route_groups.get(&key).unwrap()).clone();
        changed.matches[0].path =
            Some(PathRegex { text: format!("/{group}(").into(), before_query: None });
        broken.http_route_groups.insert(key, Arc::new(changed));
    }
    Arc::new(broken)
}

#[tokio::test]
async fn envoy_rejection_is_a_finding_at_file_and_line() {
    let Some(program) = envoy() else { return };
    let loaded = load_documents([Document::new("policy.toml", policy())]);
    let specification = loaded.specification.unwrap_or_else(|| panic!("{:#?}", loaded.findings));
    let checked = check(&program, &settings(), &specification).await.unwrap();
    assert!(checked.findings.is_empty(), "{:#?}", checked.findings);
    // Inbound and outbound of each, and more: the whole of it was looked at.
    assert!(checked.resources > 4 * 30, "only {} listeners and clusters", checked.resources);

    let broken = break_groups(&specification, &["g7", "g21"]);
    let checked = check(&program, &settings(), &broken).await.unwrap();
    let messages: Vec<String> = checked.findings.iter().map(ToString::to_string).collect();
    assert_eq!(messages.len(), 2, "{messages:#?}");
    for (finding, group) in checked.findings.iter().zip(["g21", "g7"]) {
        let key = (ironmesh_catalog::Name::default_namespace(), group.parse().unwrap());
        let expected = &broken.http_route_groups.get(&key).unwrap().matches[0].spot;
        assert_eq!(finding.spot.as_ref(), Some(expected), "{messages:#?}");
        assert!(finding.message.contains("missing )"), "{messages:#?}");
        assert_eq!(finding.label, format!("match `m` of route group `default/{group}`"));
    }
}

/// What is compiled depends on the settings as well: in permissive mode no rule is looked at.
#[tokio::test]
async fn envoy_check_uses_the_mode_of_the_settings() {
    let Some(program) = envoy() else { return };
    let specification = load_documents([Document::new("policy.toml", policy())]).specification;
    let broken = break_groups(&specification.unwrap(), &["g7"]);
    let permissive = load_settings("mode = \"permissive\"", "ironmesh.toml").unwrap();
    assert_eq!(check(&program, &permissive, &broken).await.unwrap().rejected, 0);
    let audit = load_settings("mode = \"audit\"", "ironmesh.toml").unwrap();
    assert_eq!(check(&program, &audit, &broken).await.unwrap().rejected, 1);
}

#[tokio::test]
async fn envoy_check_limits_the_number_of_findings() {
    let Some(program) = envoy() else { return };
    let specification = load_documents([Document::new("policy.toml", policy())]).specification;
    let groups = ["g0", "g1", "g3", "g4", "g6", "g7", "g9"];
    let broken = break_groups(&specification.unwrap(), &groups);
    let checked = check(&program, &settings(), &broken).await.unwrap();
    assert_eq!((checked.rejected, checked.findings.len()), (MAX_REPORTED, MAX_REPORTED));
}

/// The rules for an external service are only in the caller's own routes.
#[tokio::test]
async fn external_service_routes_of_each_caller_are_checked() {
    let Some(program) = envoy() else { return };
    let mut policy = "[[service]]\nname = \"pay\"\nexternal = true\nhostname = \"pay.example\"\n\
                      ports = [{ port = 80, protocol = \"http\" }]\n"
        .to_owned();
    for caller in ["one", "two"] {
        write!(
            policy,
            "[[service]]\nname = \"{caller}\"\n\
             [[http_route_group]]\nname = \"{caller}\"\nmatches = [{{ name = \"m\", path_regex = \"/{caller}\" }}]\n\
             [[traffic_target]]\nname = \"{caller}\"\ndestination = {{ name = \"pay\" }}\n\
             sources = [{{ name = \"{caller}\" }}]\nrules = [{{ kind = \"HTTPRouteGroup\", name = \"{caller}\" }}]\n"
        )
        .unwrap();
    }
    let loaded = load_documents([Document::new("policy.toml", policy)]);
    let specification = loaded.specification.unwrap_or_else(|| panic!("{:#?}", loaded.findings));
    assert_eq!(check(&program, &settings(), &specification).await.unwrap().rejected, 0);
    for caller in ["one", "two"] {
        let broken = break_groups(&specification, &[caller]);
        let checked = check(&program, &settings(), &broken).await.unwrap();
        // By `Host`, and as a declared upstream.
        assert_eq!(checked.rejected, 2, "{caller}: {checked:#?}");
        let label = format!("match `m` of route group `default/{caller}`");
        assert!(checked.findings.iter().all(|finding| finding.label == label), "{checked:#?}");
    }
}

#[tokio::test]
async fn program_that_is_not_envoy_is_an_error_and_not_a_finding() {
    let specification = load_documents([]).specification.unwrap();
    for (program, message) in [
        ("/bin/false", "validate`: exit status: 1"),
        ("/bin/true", "validate`: exit status: 0"),
        ("/nowhere", "cannot run"),
    ] {
        let error = check(Path::new(program), &settings(), &specification).await.unwrap_err();
        assert!(format!("{error:#}").contains(message), "{program}: {error:#}");
    }
}
