//! A control plane that follows etcd.

use crate::cluster::Etcd;
use crate::documents::service;
use crate::place::Place;

#[tokio::test]
async fn running_control_plane_applies_a_push() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    let mut serve = place.serve().await;
    let readyz = place.readyz().await;
    assert_eq!(readyz["ready"], false);
    let waiting = readyz["waiting_for"][0].as_str().unwrap();
    assert!(waiting.contains("nothing has been pushed to `/ironmesh/default/policy`"), "{waiting}");

    place.write("policy/a.toml", &service("a"));
    let first = place.push("policy").await;
    place.in_force(&first).await;
    place.write("policy/b.toml", &service("b"));
    let run = place.policy(&["push", "policy", "--message", "b too", "--expect", &first]).await;
    let pushed = run.good().stdout;
    let readyz =
        place.readyz_until("the second", |readyz| readyz["policy"]["revision"] != first).await;
    let in_force = &readyz["policy"]["in_force"];
    assert!(pushed.contains(in_force["revision"].as_str().unwrap()), "{pushed}");
    assert_eq!(in_force["message"], "b too");
    assert!(in_force["by"].as_str().unwrap().starts_with("anna@"), "{readyz:#}");

    place.policy(&["rollback", &first]).await.good();
    let readyz = place.in_force(&first).await;
    let message = format!("rollback to {first}");
    assert_eq!(readyz["policy"]["in_force"]["message"], message);
    // What a push of the same would do is there already.
    place.policy(&["rollback", &first]).await.good();
    assert!(serve.terminate().await.success());
}

#[tokio::test]
async fn manual_etcd_edit_is_reported_and_the_last_good_stays_active() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    place.write("policy/a.toml", &service("a"));
    let good = place.push("policy").await;
    let mut serve = place.serve().await;
    place.in_force(&good).await;
    let current = "/ironmesh/default/policy/current";
    let manifest = etcd.ctl(&["get", "--print-value-only", current]).await;
    let manifest = manifest.trim();
    let chunk = etcd.keys("/ironmesh/default/policy/revisions/").await.remove(0);
    let content = etcd.ctl(&["get", "--print-value-only", &chunk]).await;

    let newer = manifest.replace("\"format\":1", "\"format\":2");
    for (value, expected) in [
        ("garbage", "was not written by a push"),
        ("{\"format\":1}", "was not written by a push"),
        (newer.as_str(), "has format 2, and this version knows 1"),
    ] {
        etcd.ctl(&["put", current, value]).await;
        found(&place, &good, expected).await;
        // Neither are others led astray.
        let run = place.policy(&["pull", "out"]).await;
        assert!(run.code == 1 && run.stderr.contains(expected), "{run:?}");
    }
    etcd.ctl(&["put", &chunk, "something else"]).await;
    etcd.ctl(&["put", current, manifest]).await;
    found(&place, &good, "do not have the content that was pushed").await;
    // There is no folder that a check could draw.
    let status = place.status().await;
    assert!(status.code == 1 && status.stdout.contains("is rejected since "), "{status:?}");
    assert!(status.stdout.contains("`ironmesh policy push`"), "{status:?}");
    assert!(!status.stdout.contains("policy check"), "{status:?}");
    etcd.ctl(&["del", &chunk]).await;
    etcd.ctl(&["put", current, manifest]).await;
    found(&place, &good, "lacks the chunk 0").await;
    etcd.ctl(&["put", &chunk, content.trim_end_matches('\n')]).await;
    etcd.ctl(&["put", current, manifest]).await;
    place.in_force(&good).await;

    // What is not there is no policy without services.
    etcd.ctl(&["del", "--prefix", "/ironmesh/"]).await;
    let readyz = place
        .readyz_until("that nothing is there", |readyz| {
            readyz["policy"]["drawn"].as_str().unwrap().contains("nothing has been pushed")
        })
        .await;
    assert_eq!(
        (&readyz["ready"], &readyz["policy"]["revision"]),
        (&true.into(), &good.as_str().into())
    );
    // A push puts all of it right.
    etcd.ctl(&["put", current, "garbage"]).await;
    place.write("policy/a.toml", &service("b"));
    let next = place.push("policy").await;
    place.in_force(&next).await;
    assert!(serve.terminate().await.success());
}

/// Waits until the finding is told, beside what stays in force.
async fn found(place: &Place, good: &str, expected: &str) {
    let readyz = place
        .readyz_until(expected, |readyz| {
            let finding = &readyz["policy"]["findings"][0];
            finding["message"].as_str().is_some_and(|message| message.contains(expected))
        })
        .await;
    let policy = &readyz["policy"];
    assert_eq!(policy["findings"][0]["code"], "IM0109");
    assert_eq!((&readyz["ready"], &policy["revision"]), (&true.into(), &good.into()), "{readyz:#}");
    assert!(!policy["stale_since"].is_null());
}

#[tokio::test]
async fn start_without_etcd_uses_the_last_good_policy() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    place.write("policy/a.toml", &service("a"));
    let good = place.push("policy").await;
    let mut serve = place.serve().await;
    place.in_force(&good).await;
    assert!(serve.terminate().await.success());

    etcd.kill(0).await;
    let mut serve = place.serve().await;
    let readyz = place.readyz_until("readiness", |readyz| readyz["ready"] == true).await;
    let policy = &readyz["policy"];
    assert_eq!(policy["revision"], good);
    assert!(!policy["stale_since"].is_null(), "{readyz:#}");
    assert!(policy["drawn"].as_str().unwrap().contains("cannot be used"), "{readyz:#}");
    assert!(policy["in_force"]["by"].as_str().unwrap().starts_with("anna@"), "{readyz:#}");
    let run = place.policy(&["push", "policy"]).await;
    assert!(run.code == 1 && run.stderr.contains("Connection refused"), "{run:?}");

    etcd.start_member(0);
    place.in_force(&good).await;
    place.write("policy/a.toml", &service("b"));
    let next = place.push("policy").await;
    place.in_force(&next).await;
    assert!(serve.terminate().await.success());
}

#[tokio::test]
async fn start_without_etcd_or_saved_policy_waits_and_reports_why() {
    let Some(mut etcd) = Etcd::stopped() else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    let mut serve = place.serve().await;
    let readyz = place
        .readyz_until("a reason", |readyz| {
            readyz["waiting_for"][0].as_str().is_some_and(|why| why.contains("cannot be used"))
        })
        .await;
    assert_eq!(readyz["ready"], false);
    let waiting = readyz["waiting_for"][0].as_str().unwrap();
    for part in
        ["a policy without errors in", "/ironmesh/default/policy in etcd", &etcd.endpoint(0)]
    {
        assert!(waiting.contains(part), "{waiting}");
    }
    etcd.start_member(0);
    etcd.ready().await;
    place.write("policy/a.toml", &service("a"));
    let first = place.push("policy").await;
    place.in_force(&first).await;
    assert!(serve.terminate().await.success());
}

#[tokio::test]
async fn compacted_pushes_are_read_again_after_a_lost_watch() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    place.write("policy/a.toml", &service("a"));
    let first = place.push("policy").await;
    let mut serve = place.serve().await;
    place.in_force(&first).await;

    serve.signal(rustix::process::Signal::STOP);
    // Its watch is lost with the member that it was at.
    etcd.kill(0).await;
    etcd.start_member(0);
    etcd.ready().await;
    for name in ["b", "c"] {
        place.write("policy/a.toml", &service(name));
        place.push("policy").await;
    }
    let status = etcd.ctl(&["endpoint", "status", "--write-out=json"]).await;
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let revision = status[0]["Status"]["header"]["revision"].to_string();
    etcd.ctl(&["compact", &revision]).await;
    serve.signal(rustix::process::Signal::CONT);
    let list = place.policy(&["revisions", "--output", "json"]).await.good().json();
    let last = list["revisions"][0]["revision"].as_str().unwrap();
    assert_ne!(last, first);
    place.in_force(last).await;
    // And it watches on.
    place.write("policy/a.toml", &service("d"));
    let next = place.push("policy").await;
    place.in_force(&next).await;
    assert!(serve.terminate().await.success());
}

/// At which revision of etcd the pointer was written, and at which etcd is.
async fn revisions(etcd: &Etcd) -> (i64, i64) {
    let current = "/ironmesh/default/policy/current";
    let got = etcd.ctl(&["get", "--keys-only", "--write-out=json", current]).await;
    let got: serde_json::Value = serde_json::from_str(&got).unwrap();
    let number = |value: &serde_json::Value| value.as_i64().unwrap();
    (number(&got["kvs"][0]["mod_revision"]), number(&got["header"]["revision"]))
}

#[tokio::test]
async fn push_after_an_etcd_restore_is_applied() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let Some(place) = Place::open(&etcd.settings("mesh")) else { return };
    place.write("policy/a.toml", &service("a"));
    place.push("policy").await;
    let backup = etcd.file("backup");
    etcd.ctl(&["snapshot", "save", &backup.display().to_string()]).await;
    // So that the revisions of etcd can come to the same again, whatever its start takes.
    for _ in 0..10 {
        etcd.ctl(&["put", "/filler", ""]).await;
    }
    place.write("policy/a.toml", &service("b"));
    let lost = place.push("policy").await;
    let (written, _) = revisions(&etcd).await;
    let mut serve = place.serve().await;
    place.in_force(&lost).await;

    serve.signal(rustix::process::Signal::STOP);
    etcd.kill(0).await;
    etcd.restore(0, &backup).await;
    etcd.start_member(0);
    etcd.ready().await;
    // A push writes its chunk and moves the pointer.
    while revisions(&etcd).await.1 < written - 2 {
        etcd.ctl(&["put", "/filler", ""]).await;
    }
    place.write("policy/a.toml", &service("c"));
    let next = place.push("policy").await;
    assert_eq!(revisions(&etcd).await.0, written, "by its revision alone it is what was there");
    serve.signal(rustix::process::Signal::CONT);
    place.in_force(&next).await;
    assert!(serve.terminate().await.success());
}
