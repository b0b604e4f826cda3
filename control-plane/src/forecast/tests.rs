use ironmesh_catalog::{NodeMetadata, ProxyId};
use ironmesh_config_language::{Document, load_documents};
use ironmesh_config_settings::load_settings;
use serde_json::json;
use uuid::Uuid;

use super::*;

#[test]
fn field_differences_are_found_at_any_depth() {
    let before = json!({ "a": { "b/c": 1, "d": [1, 2] }, "e": 1 });
    let after = json!({ "a": { "b/c": 2, "d": [1, 3, 4] }, "f": 1 });
    let mut fields = Vec::new();
    differing(String::new(), Some(before.clone()), Some(after), &mut fields);
    let found: Vec<_> = fields.iter().map(|one| (&*one.at, &one.before, &one.after)).collect();
    assert_eq!(
        found,
        [
            ("/a/b~1c", &Some(json!(1)), &Some(json!(2))),
            ("/a/d/1", &Some(json!(2)), &Some(json!(3))),
            ("/a/d/2", &None, &Some(json!(4))),
            ("/e", &Some(json!(1)), &None),
            ("/f", &None, &Some(json!(1))),
        ]
    );
    fields.clear();
    differing(String::new(), Some(before.clone()), Some(before), &mut fields);
    assert!(fields.is_empty());
}

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
[[service]]
name = "buyer"
"#;

fn specification(text: &str) -> Arc<MeshSpecification> {
    load_documents([Document::new("a.toml", text)]).specification.unwrap()
}

#[test]
fn proxies_differing_only_in_bind_address_form_one_group() {
    let (before, after) =
        (specification(POLICY), specification(&POLICY.replace("port = 80", "port = 81")));
    let proxies: Vec<_> = (1..=4)
        .map(|number: u8| {
            let address = std::net::IpAddr::from([10, 0, 0, number]);
            let mut known = offline::example_proxies(&before, &after).remove(1);
            assert_eq!(known.proxy.record.services, ["store".parse().unwrap()]);
            known.proxy.record.id = ProxyId(Uuid::from_u128(number.into()));
            known.proxy.record.mesh_address.set_ip(address);
            known.proxy.metadata = NodeMetadata { bind: Some(address), ..NodeMetadata::default() };
            known
        })
        .collect();
    let settings = load_settings("", "ironmesh.toml").unwrap();
    let before = Arc::new(offline::snapshot(&settings, &before, offline::records(&proxies)));
    let groups = |with_fields| {
        let plan =
            forecast(&before, &after, &proxies, VerdictBasis::Mesh, with_fields, &|| true).unwrap();
        plan.proxies.iter().map(|group| group.proxies.len()).collect::<Vec<_>>()
    };
    assert_eq!(groups(false), [4]);
    assert_eq!(groups(true), [1; 4], "what differs inside is not the same");
}

#[test]
fn cancelled_plan_stops_before_the_next_proxy() {
    let policy = specification(POLICY);
    let proxies = offline::example_proxies(&policy, &policy);
    let settings = load_settings("", "ironmesh.toml").unwrap();
    let before = Arc::new(offline::snapshot(&settings, &policy, offline::records(&proxies)));
    let asked = std::cell::Cell::new(0);
    let is_wanted = || {
        asked.set(asked.get() + 1);
        asked.get() < 2
    };
    let plan = forecast(&before, &policy, &proxies, VerdictBasis::Mesh, false, &is_wanted);
    assert!(plan.is_err());
    assert_eq!(asked.get(), 2, "of four times");
}

#[test]
fn plan_reports_a_backend_without_endpoints() {
    let policy = format!(
        "{POLICY}
[[http_route_group]]
name = \"all\"
matches = [{{ name = \"all\" }}]
[[traffic_target]]
name = \"buyers\"
destination = {{ name = \"store\" }}
sources = [{{ name = \"buyer\" }}]
rules = [{{ kind = \"HTTPRouteGroup\", name = \"all\" }}]
[[service]]
name = \"store-v2\"
service_account = \"store\"
ports = [{{ name = \"web\", port = 80, protocol = \"http\", target_port = 8080 }}]
"
    );
    let split = |weight: u32| {
        let backend = format!("{{ service = \"store-v2\", weight = {weight} }}");
        let backends = format!("[{{ service = \"store\", weight = 1 }}, {backend}]");
        format!(
            "{policy}[[traffic_split]]\nname = \"store\"\nservice = \"store\"\nbackends = {backends}\n"
        )
    };
    let (before, after) = (specification(&split(0)), specification(&split(1)));
    let mut proxies = offline::example_proxies(&before, &after);
    proxies.retain(|known| known.proxy.record.services != ["store-v2".parse().unwrap()]);
    for known in &mut proxies {
        known.proxy.record.claimed_at = Some(Timestamp::UNIX_EPOCH);
    }
    let settings = load_settings("", "ironmesh.toml").unwrap();
    let snapshot = offline::snapshot(&settings, &before, offline::records(&proxies));
    let plan = forecast(&Arc::new(snapshot), &after, &proxies, VerdictBasis::Mesh, false, &|| true);
    let plan = plan.unwrap();
    let found: Vec<_> = plan.findings_new.iter().map(|one| (&*one.code, &*one.message)).collect();
    let [("IM0732", message)] = found[..] else { panic!("{found:?}") };
    assert!(message.contains("`default/store-v2`") && message.contains("50 %"), "{message}");
    assert!(plan.findings_gone.is_empty());
}
