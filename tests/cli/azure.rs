//! `ironmesh provider azure test`, with a fake Azure, and what is refused without any.

use std::path::Path;

use ironmesh_tests::FakeAzure;
use ironmesh_tests::azure::{GROUP, Machine, SUBSCRIPTION, ScaleSet};
use serde_json::Value;

use crate::command::{Place, Run};

const POLICY: &str = r#"
[[service]]
name = "web"
ports = [{ name = "web", port = 80, protocol = "http" }]
endpoints = { azure_scale_set = { name = "web", port = 8080 } }

[[service]]
name = "ledger"
ports = [{ name = "sql", port = 3306, protocol = "tcp" }]
endpoints = { azure_vm = { tags = { service = "ledger" } } }

[[service]]
name = "listed"
ports = [{ name = "web", port = 80, protocol = "http" }]
endpoints = { static = [{ address = "10.0.0.9" }] }
"#;

const TEST: [&str; 6] = ["provider", "azure", "test", "--config", "ironmesh.toml", "--policy"];

fn test(place: &Place, arguments: &[&str]) -> Run {
    place.run(&[&TEST[..], &["policy"], arguments].concat())
}

/// A folder whose settings name this Azure.
fn place(azure: &FakeAzure) -> Option<Place> {
    let place = Place::open()?;
    let settings = format!(
        "[azure]\nsubscription = \"{SUBSCRIPTION}\"\nresource_group = \"{GROUP}\"\n\
         cloud = {{ resource_manager = \"{}\", login = \"{}\", metadata = \"{}\" }}\n",
        azure.manager(),
        azure.login(),
        azure.metadata()
    );
    place.write("ironmesh.toml", &settings);
    place.write("policy/web.toml", POLICY);
    azure.change(|world| {
        world.scale_sets.insert("web".to_owned(), ScaleSet::default());
        world
            .machines
            .extend([Machine::of("web", "0", "10.0.0.4"), Machine::of("web", "1", "10.0.0.5")]);
        let mut ledger = Machine::at("ledger-1", "10.0.0.6");
        ledger.tags.insert("service".to_owned(), "ledger".to_owned());
        world.machines.push(ledger);
    });
    Some(place)
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_test_prints_each_call_and_the_endpoints() {
    let azure = FakeAzure::start().await;
    let Some(place) = place(&azure) else { return };
    let run = test(&place, &[]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(run.stderr, "");
    for expected in [
        "200 GET http",
        "\ndefault/ledger, virtual machines in Azure, tag `service` = `ledger`",
        "\ndefault/web, those of the scale set `web` in Azure, port 8080\n",
        "  10.0.0.4 port 8080, unknown",
        "  10.0.0.5 port 8080, unknown",
        "  10.0.0.6, unknown",
        "endpoints 3\n",
    ] {
        assert!(run.stdout.contains(expected), "{expected}\n{}", run.stdout);
    }
    assert!(!run.stdout.contains("ey."), "a token is told: {}", run.stdout);

    let run = test(&place, &["--service", "default/web", "--output", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["good"], true);
    assert_eq!(told["services"].as_array().unwrap().len(), 1);
    assert_eq!(told["services"][0]["endpoints"].as_array().unwrap().len(), 2);
    let vm_id = azure.change(|world| world.machine("0").vm_id.to_string());
    assert_eq!(told["services"][0]["endpoints"][0]["machine"], vm_id);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/json.md");
    let page = fs_err::read_to_string(page).unwrap();
    let objects =
        [&told, &told["calls"][0], &told["services"][0], &told["services"][0]["endpoints"][0]];
    for key in objects.into_iter().flat_map(|object| object.as_object().unwrap().keys()) {
        // (A key of a proxy is none of Azure's; it is null.)
        assert!(page.contains(&format!("`{key}`")), "`{key}` is not in docs/reference/json.md");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_test_names_the_action_that_the_role_lacks() {
    let azure = FakeAzure::start().await;
    let Some(place) = place(&azure) else { return };
    let lacks = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read";
    azure.deny(lacks);
    let run = test(&place, &[]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("403 GET"), "{}", run.stdout);
    assert!(run.stdout.contains(&format!("\n  {lacks} at /subscriptions/")), "{}", run.stdout);
    // What may be read is found all the same.
    assert!(run.stdout.contains("  10.0.0.6, unknown"), "{}", run.stdout);
    let run = test(&place, &["--output", "json"]);
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &told["good"]), (1, &Value::Bool(false)));
    assert_eq!(told["missing_rights"][0]["action"], lacks, "{told:#}");
}

#[test]
fn azure_test_rejects_invalid_input_before_any_call() {
    let Some(place) = Place::open() else { return };
    place.write("ironmesh.toml", "");
    place.write("policy/web.toml", POLICY);
    for (arguments, expected) in [
        (["--service", "default/listed"], "the service `default/listed` does not use Azure"),
        (["--service", "default/wep"], "policy defines no service `default/wep`"),
    ] {
        let run = test(&place, &arguments);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
    }
    place.write("policy/web.toml", "[[service]]\nname = \"buyer\"\n");
    let run = test(&place, &[]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("no service of the policy uses Azure"), "{run:?}");
    place.write(
        "policy/web.toml",
        &POLICY.replace("name = \"web\", port = 8080", "name = \"a' or 1\""),
    );
    let run = test(&place, &[]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stdout.contains("IM0105"), "{run:?}");
    place.write("ironmesh.toml", "azure.client_secret.secret = \"hunter2\"\n");
    let run = test(&place, &[]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stderr.contains("the settings hold a secret"), "{run:?}");
    assert!(!format!("{run:?}").contains("hunter2"), "{run:?}");
}
