//! `ironmesh policy wait` and `policy rollback --wait`, without an Envoy; `tests/envoy` has them with one.

use ironmesh_tests::eventually;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;

use crate::server::Server;

fn policy(path: &str) -> String {
    format!(
        "[[service]]\nname = \"store\"\nports = [{{ port = 80, protocol = \"http\" }}]\n\
         [[service]]\nname = \"buyer\"\n\
         [[http_route_group]]\nname = \"store\"\nmatches = [{{ name = \"all\", path_regex = \"{path}\" }}]\n\
         [[traffic_target]]\nname = \"store\"\ndestination = {{ name = \"store\" }}\n\
         sources = [{{ name = \"buyer\" }}]\nrules = [{{ kind = \"HTTPRouteGroup\", name = \"store\" }}]\n"
    )
}

async fn active_revision(server: &Server) -> String {
    server.readyz().await.json()["policy"]["revision"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn policy_wait_needs_a_control_plane_a_time_and_a_known_revision() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &policy("/a"));
    let run = server.run(&["policy", "wait"]);
    assert_eq!((run.code, &*run.stdout), (4, ""), "{run:?}");
    assert!(run.stderr.contains("cannot reach the control plane"), "{run:?}");
    let run = server.run(&["policy", "wait", "--timeout", "soon"]);
    assert_eq!(run.code, 2, "{run:?}");
    assert!(run.stderr.contains("write a time as `60s` or `5m`"), "{run:?}");

    let _child = server.start().await;
    server.ready().await;
    let revision = active_revision(&server).await;
    let run = server.run(&["policy", "wait"]);
    let synced = format!(
        "revision {revision} is synced: every connected proxy that it touches has ACKed it\n"
    );
    assert_eq!((run.code, &*run.stdout), (0, &*synced), "{run:?}");
    let answer = server.json(&["policy", "wait", "--revision", &revision[..6]]);
    assert_eq!(answer["outcome"], "synced", "{answer:#}");
    assert_eq!(answer["revision"], revision, "{answer:#}");
    let run = server.run(&["policy", "wait", "--revision", "0000000"]);
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
    let expected = format!("there is no revision `0000000`: the active revision is `{revision}`");
    assert!(run.stderr.contains(&expected), "{run:?}");
}

#[tokio::test]
async fn policy_wait_follows_the_folder_to_a_revision_that_it_holds() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &policy("/a"));
    let _child = server.start().await;
    server.ready().await;
    let first = active_revision(&server).await;
    server.workspace.write("policy/a.toml", &policy("/b"));
    let revision = server.json(&["policy", "check", "policy"])["revision"].clone();
    let revision = revision.as_str().unwrap();
    let run = server.run(&["policy", "wait", "--revision", revision]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(active_revision(&server).await, revision);
    // Also back to a revision that was active before.
    server.workspace.write("policy/a.toml", &policy("/a"));
    let run = server.run(&["policy", "wait", "--revision", &first]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(active_revision(&server).await, first);
    let run = server.run(&["policy", "wait", "--revision", revision]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains(&format!("{revision} is superseded")), "{run:?}");
}

#[tokio::test]
async fn rollback_with_wait_ends_when_the_revision_is_synced() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &policy("/a"));
    let _child = server.start().await;
    server.ready().await;
    let first = active_revision(&server).await;
    // A rollback to the active revision ends once it is stored.
    let run = server.run(&["policy", "rollback", &first]);
    assert_eq!(run.code, 0, "{run:?}");
    server.workspace.write("policy/a.toml", &policy("/b"));
    eventually("another revision", async || match active_revision(&server).await {
        other if other != first => Ok(()),
        same => Err(same),
    })
    .await;
    let run = server.run(&["policy", "rollback", &first, "--wait"]);
    assert_eq!(run.code, 0, "{run:?}");
    let last = run.stdout.lines().last().unwrap();
    assert!(last.starts_with(&format!("revision {first} is synced")), "{run:?}");
    let answer = server.json(&["policy", "rollback", &first, "--wait", "--timeout", "5s"]);
    assert_eq!(answer["wait"]["outcome"], "synced", "{answer:#}");
    let run = server.run(&["policy", "rollback", &first, "--include-disconnected"]);
    assert_eq!(run.code, 2, "only with --wait: {run:?}");
}

#[tokio::test]
async fn proxy_disconnected_before_its_ack_delays_that_revision_alone() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/a.toml", &policy("/a"));
    let _child = server.start().await;
    server.ready().await;
    let enrollment = ["--service", "store", "--address", "127.1.0.1", "--out", "proxy"];
    let run = server.run(&[&["proxy", "bootstrap"][..], &enrollment].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let folder = server.workspace.path().join("proxy");
    let control_plane = server.loopback.socket(1, 15128);
    // It never ACKs anything. Its connection ends with its runtime.
    let connect_once = move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let proxy = ProxyClient::connect(&folder, control_plane).await.unwrap();
            let node = Node { id: proxy.node_id.clone(), ..Node::default() };
            proxy.request_secret(node, "roots").await.unwrap();
        });
    };
    std::thread::spawn(connect_once).join().unwrap();
    eventually("the disconnect", async || {
        let run = server.run(&["policy", "wait", "--timeout", "0s"]);
        let is_lost = run.stdout.contains("  its xDS stream ended before its ACK");
        if run.code == 1 && is_lost { Ok(()) } else { Err(run.stdout) }
    })
    .await;
    // It was away when the next revision became active.
    let before = active_revision(&server).await;
    server.workspace.write("policy/a.toml", &policy("/b"));
    eventually("another revision", async || match active_revision(&server).await {
        other if other != before => Ok(()),
        same => Err(same),
    })
    .await;
    let run = server.run(&["policy", "wait"]);
    assert_eq!(run.code, 0, "{run:?}");
    let run = server.run(&["policy", "wait", "--include-disconnected", "--timeout", "1s"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.contains("  disconnected  ") && run.stdout.contains("default/store"));
    assert!(run.stderr.contains("1 proxy did not ACK revision"), "{run:?}");
}
