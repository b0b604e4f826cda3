//! `ironmesh provider azure test` with a fake Azure, and settings that are rejected without one.

use std::path::Path;

use ironmesh_tests::FakeAzure;
use ironmesh_tests::azure::{GROUP, Machine, SUBSCRIPTION, ScaleSet};
use serde_json::Value;

use crate::command::{Run, Workspace};

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

fn test(workspace: &Workspace, arguments: &[&str]) -> Run {
    workspace.run(&[&TEST[..], &["policy"], arguments].concat())
}

/// A folder whose settings name this Azure.
fn workspace(azure: &FakeAzure) -> Option<Workspace> {
    let workspace = Workspace::open()?;
    let settings = format!(
        "[azure]\nsubscription = \"{SUBSCRIPTION}\"\nresource_group = \"{GROUP}\"\n\
         cloud = {{ resource_manager = \"{}\", login = \"{}\", metadata = \"{}\" }}\n",
        azure.manager(),
        azure.login(),
        azure.metadata()
    );
    workspace.write("ironmesh.toml", &settings);
    workspace.write("policy/web.toml", POLICY);
    azure.change(|vms| {
        vms.scale_sets.insert("web".to_owned(), ScaleSet::default());
        vms.machines
            .extend([Machine::of("web", "0", "10.0.0.4"), Machine::of("web", "1", "10.0.0.5")]);
        let mut ledger = Machine::at("ledger-1", "10.0.0.6");
        ledger.tags.insert("service".to_owned(), "ledger".to_owned());
        vms.machines.push(ledger);
    });
    Some(workspace)
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_test_prints_each_call_and_the_endpoints() {
    let azure = FakeAzure::start().await;
    let Some(workspace) = workspace(&azure) else { return };
    let run = test(&workspace, &[]);
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
    assert!(!run.stdout.contains("ey."), "a token is printed: {}", run.stdout);

    let run = test(&workspace, &["--service", "default/web", "--output", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    let reported: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(reported["good"], true);
    assert_eq!(reported["services"].as_array().unwrap().len(), 1);
    assert_eq!(reported["services"][0]["endpoints"].as_array().unwrap().len(), 2);
    let vm_id = azure.change(|vms| vms.machine("0").vm_id.to_string());
    assert_eq!(reported["services"][0]["endpoints"][0]["machine"], vm_id);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/json.md");
    let page = fs_err::read_to_string(page).unwrap();
    let objects = [
        &reported,
        &reported["calls"][0],
        &reported["services"][0],
        &reported["services"][0]["endpoints"][0],
    ];
    for key in objects.into_iter().flat_map(|object| object.as_object().unwrap().keys()) {
        // A proxy's key is no key of Azure; it is null.
        assert!(page.contains(&format!("`{key}`")), "`{key}` is not in docs/reference/json.md");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn azure_test_names_the_action_that_the_role_lacks() {
    let azure = FakeAzure::start().await;
    let Some(workspace) = workspace(&azure) else { return };
    let lacks = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read";
    azure.deny(lacks);
    let run = test(&workspace, &[]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("403 GET"), "{}", run.stdout);
    assert!(run.stdout.contains(&format!("\n  {lacks} at /subscriptions/")), "{}", run.stdout);
    // What may be read is still found.
    assert!(run.stdout.contains("  10.0.0.6, unknown"), "{}", run.stdout);
    let run = test(&workspace, &["--output", "json"]);
    let reported: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!((run.code, &reported["good"]), (1, &Value::Bool(false)));
    assert_eq!(reported["missing_rights"][0]["action"], lacks, "{reported:#}");
}

#[test]
fn azure_test_rejects_invalid_input_before_any_call() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write("ironmesh.toml", "");
    workspace.write("policy/web.toml", POLICY);
    for (arguments, expected) in [
        (["--service", "default/listed"], "the service `default/listed` does not use Azure"),
        (["--service", "default/wep"], "policy defines no service `default/wep`"),
    ] {
        let run = test(&workspace, &arguments);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains(expected), "{run:?}");
    }
    workspace.write("policy/web.toml", "[[service]]\nname = \"buyer\"\n");
    let run = test(&workspace, &[]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("no service of the policy uses Azure"), "{run:?}");
    workspace.write(
        "policy/web.toml",
        &POLICY.replace("name = \"web\", port = 8080", "name = \"a' or 1\""),
    );
    let run = test(&workspace, &[]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stdout.contains("IM0105"), "{run:?}");
    workspace.write("ironmesh.toml", "azure.client_secret.secret = \"hunter2\"\n");
    let run = test(&workspace, &[]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stderr.contains("the settings hold a secret"), "{run:?}");
    assert!(!format!("{run:?}").contains("hunter2"), "{run:?}");
}
