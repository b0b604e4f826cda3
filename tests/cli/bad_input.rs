//! Broken policies of many kinds: each is reported, `serve` keeps the last good one (invariant 1),
//! and accepts the next good one.

use std::fmt::Write as _;
use std::os::unix::fs::symlink;

use fs_err as fs;
use ironmesh_tests::eventually;

use crate::command::Workspace;
use crate::server::Server;

const GOOD: &str = "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

/// A policy of services with `bytes` bytes.
fn services(bytes: usize) -> String {
    let mut text = String::new();
    for number in 0.. {
        writeln!(text, "[[service]]\nname = \"s{number}\"").unwrap();
        if text.len() >= bytes {
            break;
        }
    }
    text
}

/// A description, how to write it into a policy folder, and the code of its finding.
type BadPolicy = (&'static str, fn(&Workspace), &'static str);

const BAD: [BadPolicy; 11] = [
    (
        "10 MB of good policy",
        |workspace| workspace.write("policy/x.toml", &services(10_000_000)),
        "IM0107",
    ),
    ("words", |workspace| workspace.write("policy/x.toml", &"word\n".repeat(100_000)), "IM0114"),
    ("deep arrays", |workspace| workspace.write("policy/x.toml", &nested("[")), "IM0101"),
    ("deep tables", |workspace| workspace.write("policy/x.toml", &nested("{ a = ")), "IM0101"),
    ("a deep key", |workspace| workspace.write("policy/x.toml", &nested("a.")), "IM0101"),
    (
        "bytes that are no text",
        |workspace| {
            fs::write(
                workspace.path().join("policy/x.toml"),
                b"[[service]]\nname = \"\xff\xfe\"\n",
            )
            .unwrap();
        },
        "IM0107",
    ),
    (
        "an expression that Envoy rejects",
        |workspace| workspace.write("policy/x.toml", &group("/(?:[^/]{1,99}/){1,99}")),
        "IM0302",
    ),
    (
        "a name that is no part of a SPIFFE ID",
        |workspace| {
            workspace.write(
                "policy/x.toml",
                "[[service]]\nname = \"a/sa/../b\"\nservice_account = \"ü%2f\"\n",
            );
        },
        "IM0106",
    ),
    ("a name of another file", |workspace| workspace.write("policy/x.toml", GOOD), "IM0202"),
    (
        "splits in a circle",
        |workspace| workspace.write("policy/x.toml", &(split("a", "b") + &split("b", "a"))),
        "IM0303",
    ),
    (
        "a device",
        |workspace| symlink("/dev/zero", workspace.path().join("policy/x.toml")).unwrap(),
        "IM0119",
    ),
];

fn nested(part: &str) -> String {
    format!("a = {0}\n{0}", part.repeat(100_000))
}

fn group(expression: &str) -> String {
    format!(
        "[[http_route_group]]\nname = \"g\"\nmatches = [{{ name = \"m\", path_regex = '{expression}' }}]\n"
    )
}

fn split(service: &str, backend: &str) -> String {
    format!(
        "[[service]]\nname = \"{service}\"\n[[traffic_split]]\nname = \"{service}\"\n\
         service = \"{service}\"\nbackends = [{{ service = \"{backend}\", weight = 1 }}]\n"
    )
}

#[tokio::test]
async fn invalid_policy_is_reported_and_the_last_good_stays_active() {
    let Some(server) = Server::open("") else { return };
    let workspace = &server.workspace;
    workspace.write("policy/good.toml", GOOD);
    let mut serve = server.start().await;
    server.ready().await;
    let policy = async || {
        let answer: serde_json::Value =
            serde_json::from_str(&server.readyz().await.text()).unwrap();
        answer["policy"].clone()
    };
    let good = policy().await;
    for (what, put, code) in BAD {
        put(workspace);
        let check = workspace.run(&["policy", "check", "policy"]);
        assert_eq!(check.code, 3, "{what}: {check:?}");
        assert!(check.stdout.contains(code), "{what}: no {code} in\n{}", check.stdout);
        eventually(what, async || {
            let now = policy().await;
            assert_eq!(now["revision"], good["revision"], "{what} came into force");
            let codes: Vec<_> =
                now["findings"].as_array().into_iter().flatten().map(|one| &one["code"]).collect();
            if codes.contains(&&serde_json::Value::from(code)) {
                Ok(())
            } else {
                Err(format!("{codes:?}"))
            }
        })
        .await;
        assert!(!policy().await["stale_since"].is_null(), "{what}");
        fs::remove_file(workspace.path().join("policy/x.toml")).unwrap();
        eventually("the good policy", async || {
            let now = policy().await;
            // The time of its activation changes.
            let same = |key: &str| now[key] == good[key];
            let is_good = ["revision", "findings", "stale_since"].into_iter().all(same);
            if is_good { Ok(()) } else { Err(format!("{now:#}")) }
        })
        .await;
    }
    serve.assert_running();
    workspace.write("policy/x.toml", "[[service]]\nname = \"other\"\n");
    eventually("the next good policy", async || {
        let now = policy().await;
        if now["revision"] == good["revision"] { Err(format!("{now:#}")) } else { Ok(()) }
    })
    .await;
    assert!(serve.terminate().await.success());
}

#[test]
fn hundred_thousand_policy_files_are_one_finding() {
    let Some(workspace) = Workspace::open() else { return };
    let folder = workspace.path().join("policy");
    fs::create_dir(&folder).unwrap();
    for number in 0..=100_000 {
        fs::File::create(folder.join(format!("{number}.toml"))).unwrap();
    }
    let run = workspace.run(&["policy", "check", "policy"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(
        run.stdout.starts_with(
            "error[IM0113]: there are more than 10000 documents in the policy folder\n"
        ),
        "{}",
        run.stdout
    );
    // Other files are counted too, because each read examines them.
    for number in 0..=100_000 {
        let name = |end| folder.join(format!("{number}.{end}"));
        fs::rename(name("toml"), name("txt")).unwrap();
    }
    let run = workspace.run(&["policy", "check", "policy"]);
    assert!(run.stdout.contains("more than 100000 files"), "{run:?}");
}
