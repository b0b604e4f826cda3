//! `ironmesh policy import`.

use std::io::Write as _;
use std::process::Stdio;

use crate::command::{Run, Workspace};

const SERVICES: &str = "\
apiVersion: v1
kind: Service
metadata: { name: store }
spec:
  ports:
  - { name: http-web, port: 80 }
---
apiVersion: v1
kind: Service
metadata: { name: buyer }
";

const TARGET: &str = "\
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: { name: buyers, namespace: default }
spec:
  destination: { kind: ServiceAccount, name: store, namespace: default }
  sources:
  - { kind: ServiceAccount, name: buyer, namespace: default }
  rules:
  - { kind: HTTPRouteGroup, name: routes, matches: [buy] }
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: { name: routes, namespace: default }
spec:
  matches:
  - { name: buy, pathRegex: /books, methods: [GET] }
";

const MESH: &str = "\
apiVersion: config.openservicemesh.io/v1alpha2
kind: MeshConfig
metadata: { name: out, namespace: default }
spec: { hosts: [example.com] }
";

fn workspace() -> Option<Workspace> {
    let workspace = Workspace::open()?;
    workspace.write("services.yaml", SERVICES);
    workspace.write("target.yaml", TARGET);
    workspace.write("mesh.yaml", MESH);
    Some(workspace)
}

fn policy(run: &Run) -> String {
    let path = run.stdout.lines().find(|line| line.contains("path_regex =")).unwrap();
    path.to_owned()
}

#[test]
fn imported_policy_passes_the_check() {
    let Some(workspace) = workspace() else { return };
    let files = ["services.yaml", "target.yaml", "--from", "osm", "--out", "policy/shop.toml"];
    fs_err::create_dir(workspace.path().join("policy")).unwrap();
    let run = workspace.run(&[&["policy", "import"][..], &files].concat());
    assert_eq!((run.code, &*run.stdout), (0, ""), "{run:?}");
    assert!(run.stderr.contains("4 resources converted; left out: 0"), "{run:?}");
    let check = workspace.run(&["policy", "check", "policy"]);
    assert_eq!(check.code, 0, "{check:?}");
    assert!(check.stdout.contains("2 services, 1 traffic target, 1 route group"), "{check:?}");
    // Existing files, which may have been edited, are not overwritten.
    let run = workspace.run(&[&["policy", "import"][..], &files].concat());
    assert_eq!(run.code, 1, "{run:?}");
    assert!(
        run.stderr.contains("shop.toml")
            && run.stderr.contains("existing files are not overwritten"),
        "{run:?}"
    );
}

#[test]
fn yaml_in_policy_folder_follows_the_smi_specification() {
    let Some(workspace) = workspace() else { return };
    workspace.write("policy/a.yml", SERVICES);
    workspace.write("policy/b/target.yaml", TARGET);
    let run = workspace.run(&["policy", "check", "policy"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("2 services, 1 traffic target, 1 route group"), "{run:?}");
    workspace.write("policy/mesh.yaml", MESH);
    let run = workspace.run(&["policy", "check", "policy"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stdout.contains("--> mesh.yaml:2:1"), "{run:?}");
    let one = workspace.run(&["policy", "check", "services.yaml"]);
    assert_eq!(one.code, 0, "{one:?}");
}

#[test]
fn import_requires_the_origin_if_it_changes_the_result() {
    let Some(workspace) = workspace() else { return };
    let import = |more: &[&str]| {
        workspace.run(&[&["policy", "import", "target.yaml", "services.yaml"], more].concat())
    };
    let run = import(&[]);
    assert_eq!((run.code, &*run.stdout), (2, ""), "{run:?}");
    assert!(run.stderr.contains("`pathRegex` `/books` in target.yaml:16:29"), "{run:?}");
    assert!(run.stderr.contains("--from osm"), "{run:?}");
    let (osm, smi) = (import(&["--from", "osm"]), import(&["--from", "smi"]));
    assert!(policy(&osm).contains(r#"path_regex = "/books$""#), "{osm:?}");
    assert!(policy(&smi).contains(r#"path_regex = "/books""#), "{smi:?}");
    assert_eq!(workspace.run(&["policy", "import", "services.yaml"]).code, 0);
}

#[test]
fn import_reports_omissions_on_stderr_and_in_comments() {
    let Some(workspace) = workspace() else { return };
    let run = workspace.run(&["policy", "import", "mesh.yaml", "target.yaml", "--from", "osm"]);
    assert_eq!(run.code, 0, "{run:?}");
    for reported in [
        "left out: MeshConfig `default/out` (mesh.yaml:2): MeshConfig of Open Service Mesh is not served",
        "missing in the input: no service runs as `buyer` in namespace `default`",
        "missing in the input: no service runs as `store` in namespace `default`",
        "2 resources converted; left out: 1, changed: 1, missing: 2",
    ] {
        assert!(run.stderr.contains(reported), "no {reported:?} in {run:?}");
    }
    for comment in [
        "# Left out: MeshConfig `default/out`, mesh.yaml:2.",
        "#     spec: { hosts: [example.com] }",
        "# - no service runs as `store` in namespace `default`",
    ] {
        assert!(run.stdout.contains(comment), "no {comment:?} in {run:?}");
    }
    let json = workspace.run(&[
        "policy",
        "import",
        "mesh.yaml",
        "target.yaml",
        "--from",
        "osm",
        "--output",
        "json",
    ]);
    assert_eq!((json.code, &*json.stderr), (0, ""), "{json:?}");
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["toml"], run.stdout);
    assert_eq!(json["carried"], 2);
    assert_eq!(json["left_out"][0]["resource"], "MeshConfig `default/out`");
    assert_eq!(
        (&json["left_out"][0]["file"], &json["left_out"][0]["line"]),
        (&"mesh.yaml".into(), &2.into())
    );
    assert_eq!(json["missing"].as_array().unwrap().len(), 2);
}

#[test]
fn import_of_invalid_yaml_or_policy_exits_3() {
    let Some(workspace) = workspace() else { return };
    workspace.write("broken.yaml", "a: 'x\n");
    let run =
        workspace.run(&["policy", "import", "services.yaml", "broken.yaml", "--out", "out.toml"]);
    assert_eq!((run.code, &*run.stdout), (3, ""), "{run:?}");
    assert!(
        run.stderr.contains("error[IM0111]") && run.stderr.contains("broken.yaml:1:4"),
        "{run:?}"
    );
    assert!(!workspace.path().join("out.toml").exists());
    let json = workspace.run(&["policy", "import", "broken.yaml", "--output", "json"]);
    assert_eq!(json.code, 3, "{json:?}");
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["findings"][0]["code"], "IM0111");

    workspace.write("regex.yaml", &TARGET.replace("/books", "/(?!books)"));
    let run = workspace.run(&["policy", "import", "services.yaml", "regex.yaml", "--from", "smi"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(
        run.stderr.contains("error[IM0302]")
            && run.stderr.contains("the converted policy is rejected: 1 error"),
        "{run:?}"
    );
    assert!(run.stdout.contains("(?!books)"), "{run:?}");
}

#[test]
fn input_without_policy_fails_and_writes_no_file() {
    let Some(workspace) = workspace() else { return };
    workspace.write("pod.yaml", "apiVersion: v1\nkind: Secret\nmetadata: { name: a }\n");
    for (file, why) in [
        ("mesh.yaml", "nothing was converted: 1 resource left out"),
        ("pod.yaml", "nothing was converted: the input has no mesh resources"),
    ] {
        let run = workspace.run(&["policy", "import", file, "--out", "out.toml"]);
        assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
        assert!(run.stderr.contains(why), "no {why:?} in {}", run.stderr);
        assert!(!workspace.path().join("out.toml").exists());
        let run = workspace.run(&["policy", "import", file, "--output", "json"]);
        let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
        assert_eq!((run.code, &json["carried"]), (1, &0.into()), "{run:?}");
    }
}

#[test]
fn import_reads_stdin_and_names_unreadable_files() {
    let Some(workspace) = workspace() else { return };
    let mut command = workspace.command(&["policy", "import", "-"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(SERVICES.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8(output.stdout).unwrap().contains("out of stdin."));
    let run = workspace.run(&["policy", "import", "nowhere.yaml"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("nowhere.yaml"), "{run:?}");
    fs_err::write(workspace.path().join("latin.yaml"), b"name: \xff\n").unwrap();
    let run = workspace.run(&["policy", "import", "latin.yaml"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("`latin.yaml` is not UTF-8 from byte 6 on"), "{run:?}");
}
