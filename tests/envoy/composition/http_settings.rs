//! Combinations of HTTP settings: each pair, at every level.

use http::StatusCode;
use ironmesh_tests::eventually;

use super::CompositionMesh;
use super::model::Setting::{self, Retries};
use super::model::{ALL, Level, load_status, model, pairs, rule};
use super::services::{group, group_route};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-long-composition"]
async fn every_pair_of_http_settings_matches_the_reference() {
    use Level::{Mesh, Namespace, Retry, Route, Service};
    let Some(setup) = CompositionMesh::open().await else { return };
    let before = setup.unnamed_requests();
    let load = setup.load().await;
    for far in ALL {
        let of_mesh = rule("default", "mesh", "scope = \"mesh\"", Mesh, &[far]);
        setup.mesh.write_policy("far.toml", &of_mesh);
        setup.wait_for_change("bare", &[(Mesh, far)]).await;
        load.wait_for_status(load_status(Mesh, far)).await;
        setup.check("again", "/none", &[(Retry, Retries), (Mesh, far)]).await;
        for near in ALL {
            let (name, path) = (near.name(), near.path());
            setup.check("store", &path, &[(Route, near), (Mesh, far)]).await;
            setup.check(&format!("s-{name}"), "/none", &[(Service, near), (Mesh, far)]).await;
            let of_namespace = [(Namespace, near), (Mesh, far)];
            setup.check(&format!("store.n-{name}"), "/none", &of_namespace).await;
            let three = [(Route, near), (Retry, Retries), (Mesh, far)];
            setup.check("both.plain", &path, &three).await;
        }
        setup.check_times().await;
        // The same setting at nearer levels: of the namespace, and elsewhere of the service.
        let mut policy = rule("default", "here", "", Namespace, &[far]);
        for service in ["whole", "again"] {
            let about = format!("service = \"{service}\"");
            policy += &rule("plain", service, &about, Service, &[far]);
        }
        setup.mesh.write_policy("far.toml", &policy);
        setup.wait_for_change("bare", &[(Namespace, far)]).await;
        load.wait_for_status(load_status(Namespace, far)).await;
        setup.check("again", "/none", &[(Retry, Retries), (Namespace, far)]).await;
        setup.check("whole.plain", "/none", &[(Service, far)]).await;
        setup.check("again.plain", "/none", &[(Retry, Retries), (Service, far)]).await;
        for near in ALL {
            let (name, path) = (near.name(), near.path());
            setup.check("store", &path, &[(Route, near), (Namespace, far)]).await;
            setup.check(&format!("s-{name}"), "/none", &[(Service, near), (Namespace, far)]).await;
            setup.check("whole.plain", &path, &[(Route, near), (Service, far)]).await;
        }
        setup.check_times().await;
    }
    // After removal nothing of it remains.
    setup.mesh.write_policy("far.toml", "");
    setup.wait_for_change("bare", &[]).await;
    setup.check("whole.plain", "/none", &[]).await;
    setup.check_times().await;
    load.wait_for_status(StatusCode::OK).await;
    setup.assert_no_failures(load, before).await;
}

/// A split selects the backend of a request, and HTTP routes set its treatment.
#[tokio::test(flavor = "multi_thread")]
async fn every_http_setting_applies_to_a_canary() {
    let Some(setup) = CompositionMesh::open().await else { return };
    let before = setup.unnamed_requests();
    let load = setup.load().await;
    let split = "[[traffic_split]]\nname = \"canary\"\nservice = \"store\"\n\
                 backends = [{ service = \"next\", weight = 1 }]\n";
    setup.mesh.write_policy("far.toml", split);
    eventually("the canary", async || {
        let (_, requests) = setup.request_secret("store:14001", "/none").await?;
        anyhow::ensure!(requests.app.as_deref() == Some("next"), "{requests:?}");
        anyhow::Ok(())
    })
    .await;
    for near in ALL {
        let mut expected = model(&near.path(), &[(Level::Route, near)]);
        expected.app = expected.app.map(|_| "next".to_owned());
        setup
            .wait_for_outcome("store", &near.path(), &expected, &format!("{near:?}, and a split"))
            .await;
    }
    setup.mesh.write_policy("far.toml", "");
    setup.check("store", "/none", &[]).await;
    setup.assert_no_failures(load, before).await;
}

/// Each of several settings in one object applies, whatever farther levels set.
#[tokio::test(flavor = "multi_thread")]
async fn http_settings_of_one_object_match_the_reference() {
    let Some(setup) = CompositionMesh::open().await else { return };
    let before = setup.unnamed_requests();
    let load = setup.load().await;
    let both = pairs().map(|pair| {
        let name = pair.map(Setting::name).join("-");
        (name.clone(), format!("/{name}"), pair)
    });
    let both: Vec<_> = both.collect();
    let mut policy = String::new();
    for (name, path, pair) in &both {
        policy += &group("default", name, path);
        policy += &group_route("default", "store", name, pair);
    }
    setup.mesh.write_policy("both.toml", &policy);
    let near = |pair: [Setting; 2]| pair.map(|one| (Level::Route, one));
    for (_, path, pair) in &both {
        setup.check("store", path, &near(*pair)).await;
    }
    setup.wait_for_times().await;
    for (number, far) in ALL.into_iter().enumerate() {
        let of_mesh = rule("default", "mesh", "scope = \"mesh\"", Level::Mesh, &[far]);
        setup.mesh.write_policy("far.toml", &of_mesh);
        setup.wait_for_change("bare", &[(Level::Mesh, far)]).await;
        load.wait_for_status(load_status(Level::Mesh, far)).await;
        // All of them with all others would take too long.
        for (_, path, pair) in both.iter().skip(number % 4).step_by(4) {
            let settings = [&near(*pair)[..], &[(Level::Mesh, far)]].concat();
            setup.check("store", path, &settings).await;
        }
        setup.check_times().await;
    }
    setup.mesh.write_policy("far.toml", "");
    setup.mesh.write_policy("both.toml", "");
    setup.wait_for_change("bare", &[]).await;
    setup.assert_no_failures(load, before).await;
}
