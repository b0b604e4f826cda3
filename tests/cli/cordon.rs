//! `ironmesh proxy cordon`, `drain` and `uncordon`, without an Envoy; `tests/envoy` has them with one.

use ironmesh_tests::eventually;
use ironmesh_tests::process::Child;
use serde_json::Value;

use crate::server::Server;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
"#;

/// A control plane with three proxies: `store-1`, `store-2` and `store-3`.
async fn open() -> Option<(Server, Child)> {
    let server = Server::open("")?;
    server.workspace.write("policy/services.toml", POLICY);
    let child = server.start().await;
    server.ready().await;
    let arguments = ["proxy", "bootstrap", "--service", "store", "--address", "127.1.0.1"];
    let run = server.run(&[&arguments[..], &["--count", "3", "--out", "proxies"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    Some((server, child))
}

fn succeed(server: &Server, arguments: &[&str]) -> String {
    let run = server.run(arguments);
    assert_eq!(run.code, 0, "{arguments:?}: {run:?}");
    run.stdout
}

#[tokio::test]
async fn cordon_and_drain_are_shown_survive_a_restart_and_end_by_uncordon() {
    let Some((server, mut child)) = open().await else { return };
    let text = succeed(&server, &["proxy", "cordon", "store-1", "--dry-run"]);
    assert!(
        text.contains(") would be cordoned\n") && text.ends_with("nothing was changed\n"),
        "{text}"
    );
    assert!(!succeed(&server, &["proxy", "list"]).contains("cordoned"));

    let text = succeed(&server, &["proxy", "cordon", "store-1", "--reason", "a new disk"]);
    assert!(text.starts_with("proxy store-1 (") && text.contains(") is cordoned since "), "{text}");
    assert!(text.contains(": a new disk\n  all connected callers have ACKed that\n"), "{text}");
    let again = succeed(&server, &["proxy", "cordon", "store-1", "--reason", "a different one"]);
    assert!(
        again.contains(") was already cordoned since ") && again.contains(": a new disk\n"),
        "{again}"
    );
    let text = succeed(&server, &["proxy", "drain", "store-2"]);
    for part in [
        " is drained since ",
        "  it is not connected: the change is recorded",
        "it has never connected",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(child.terminate().await.success());
    drop(child);

    let _child = server.start().await;
    server.ready().await;
    let list = succeed(&server, &["proxy", "list"]);
    assert!(list.contains("\n  cordoned since ") && list.contains("\n  drained since "), "{list}");
    let cordoned = server.json(&["proxy", "list", "--state", "cordoned"]);
    let names = |list: &Value| -> Vec<String> {
        let names = list.as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap());
        names.map(str::to_owned).collect()
    };
    assert_eq!(names(&cordoned), ["store-1", "store-2"]);
    assert_eq!(
        (&cordoned[0]["cordon"]["mode"], &cordoned[1]["cordon"]["mode"]),
        (&"cordon".into(), &"drain".into())
    );
    let shown = succeed(&server, &["proxy", "show", "store-1"]);
    assert!(shown.contains("cordoned since ") && shown.contains(": a new disk"), "{shown}");
    let status = server.run(&["status"]);
    assert_eq!(status.code, 0, "{status:?}");
    assert!(
        status.stdout.contains("note: 2 proxies are out of service, by an operator\n"),
        "{status:?}"
    );
    assert!(status.stdout.contains("store-1: cordoned since "), "{status:?}");

    // A drain of a cordoned proxy keeps its begin and its reason.
    let before = server.json(&["proxy", "show", "store-1"])["cordon"].clone();
    let drained = server.json(&["proxy", "drain", "store-1"]);
    assert_eq!(
        (&drained["cordon"]["since"], &drained["cordon"]["reason"]),
        (&before["since"], &before["reason"])
    );
    assert_eq!(
        (&drained["is_old"], &drained["acked"], &drained["connected"]),
        (&false.into(), &true.into(), &false.into())
    );
    let drained = server.json(&["proxy", "drain", "store-1"]);
    assert_eq!(drained["is_old"], true);
    let kept = server.json(&["proxy", "cordon", "store-1"]);
    assert_eq!((&kept["is_old"], &kept["cordon"]["mode"]), (&true.into(), &"drain".into()));

    let text = succeed(&server, &["proxy", "uncordon", "store-1", "--reason", "it works"]);
    assert!(text.contains(") is in service; it was drained since "), "{text}");
    let text = succeed(&server, &["proxy", "uncordon", "store-1"]);
    assert!(text.contains(") was in service already\n"), "{text}");
    assert_eq!(names(&server.json(&["proxy", "list", "--state", "cordoned"])), ["store-2"]);

    eventually("the journal's entries", async || {
        let entries = server.json(&["journal"])["entries"].clone();
        let of = |kind: &str| -> Vec<(String, String)> {
            let entries = entries.as_array().unwrap().iter().filter(|one| one["kind"] == kind);
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            entries.map(|one| (text(&one["subject"]["name"]), text(&one["message"]))).collect()
        };
        let pair = |name: &str, message: &str| (name.to_owned(), message.to_owned());
        let cordons =
            [pair("store-1", "a new disk"), pair("store-1", "returned to service: it works")];
        anyhow::ensure!(of("cordon") == cordons, "{entries:#}");
        anyhow::ensure!(of("drain") == [pair("store-2", ""), pair("store-1", "")], "{entries:#}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn unusable_cordon_requests_change_nothing_and_say_why() {
    let Some((server, _child)) = open().await else { return };
    let long = "x".repeat(501);
    succeed(&server, &["proxy", "revoke", "store-3", "--reason", "stolen"]);
    let cases: [(&[&str], &str); 6] = [
        (&["proxy", "cordon", "store-9"], "no proxy `store-9` is enrolled"),
        (&["proxy", "drain", "abc"], "`abc` is too short"),
        (&["proxy", "drain", "store-3"], "proxy store-3 was revoked on "),
        (&["proxy", "uncordon", "store-3"], "it is out of service for good"),
        (
            &["proxy", "cordon", "store-1", "--reason", &long],
            "a reason must be one line of at most 500 bytes",
        ),
        (&["proxy", "cordon", "store-1", "--reason", "a\nb"], "holds the control character"),
    ];
    for (arguments, message) in cases {
        let run = server.run(arguments);
        assert_eq!(run.code, 1, "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(message), "{arguments:?}: {run:?}");
    }
    assert_eq!(server.json(&["proxy", "list", "--state", "cordoned"]), serde_json::json!([]));
    eventually("the rejected requests in the journal", async || {
        let rejected = succeed(&server, &["journal", "--kind", "drain"]);
        anyhow::ensure!(
            rejected.contains("store-3") && rejected.contains("rejected"),
            "{rejected}"
        );
        Ok(())
    })
    .await;
}
