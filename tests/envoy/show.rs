//! What `proxy show` and CSDS disclose of a proxy's resources.

use std::collections::BTreeMap;

use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{Mesh, eventually};
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use ironmesh_xds_wire::pb::envoy::service::status::v3::{ClientStatusRequest, ConfigStatus};
use prost::Message as _;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;

use crate::bookstore::Bookstore;

/// Fails the test if the bytes contain a private key in any form.
fn assert_no_key(what: &str, bytes: &[u8], key: &str) {
    let contains = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
    let lines: Vec<_> = key.lines().filter(|line| !line.starts_with("-----")).collect();
    assert!(!lines.is_empty(), "it is no key: {key}");
    for line in &lines {
        assert!(!contains(line.as_bytes()), "{what} has a line of the key in PEM");
    }
    assert!(!contains(lines.concat().as_bytes()), "{what} has the key in base64");
    assert!(!contains(b"PRIVATE KEY"), "{what} has some key in PEM");
    // A bytes field would have the key's beginning in base64 once more.
    let twice = base64(key.as_bytes());
    assert!(
        !contains(twice.get(40..100).unwrap().as_bytes()),
        "{what} has the key's PEM in base64"
    );
    let raw = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    // The secret scalar is in the middle (RFC 5958, RFC 5915).
    let raw = raw.secret_der().get(36..60).unwrap();
    assert!(!contains(raw), "{what} has the key as it is");
}

/// Base64 of whole groups of three bytes.
fn base64(bytes: &[u8]) -> String {
    let digits: Vec<char> =
        ('A'..='Z').chain('a'..='z').chain('0'..='9').chain(['+', '/']).collect();
    let groups = bytes
        .chunks_exact(3)
        .map(|group| group.iter().fold(0_u32, |group, byte| (group << 8) | u32::from(*byte)));
    let sixes = groups.flat_map(|group| [18, 12, 6, 0].map(|shift| (group >> shift) & 63));
    sixes.map(|six| *digits.get(six as usize).unwrap()).collect()
}

#[test]
fn key_detector_finds_keys_in_every_encoding() {
    let key = ironmesh_cert::generate_proxy_key_and_csr().unwrap().0;
    let pem = key.expose();
    let raw = PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap().secret_der().to_vec();
    assert_eq!(base64(b"Man."), "TWFu");
    assert_no_key("what has none", b"{\"privateKey\": \"[redacted]\"}", pem);
    for form in [
        pem.as_bytes().to_vec(),
        pem.replace('\n', "\\n").into_bytes(),
        base64(pem.as_bytes()).into_bytes(),
        base64(&raw).into_bytes(),
        raw,
    ] {
        let form = [b"before ", &form[..], b" behind"].concat();
        let found = std::panic::catch_unwind(|| assert_no_key("it", &form, pem));
        assert!(found.is_err(), "{:?}", String::from_utf8_lossy(&form));
    }
}

async fn run(mesh: &Mesh, arguments: &[&str]) -> Vec<u8> {
    let output = mesh.run(arguments).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// The number of resources by status.
fn states(config: &Value) -> BTreeMap<String, usize> {
    let mut states = BTreeMap::new();
    for resource in config["resources"].as_array().unwrap() {
        // The store calls no service, so nothing of it refers to the certificate as which it would call.
        if resource["name"] == "service-cert" {
            assert_eq!(resource["state"], "not_sent");
            continue;
        }
        *states.entry(resource["state"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    states
}

/// Invariant 9.
#[tokio::test(flavor = "multi_thread")]
async fn proxy_show_lists_resources_without_private_keys() {
    let Some(store) = Bookstore::open().await else { return };
    let mesh = &store.mesh;
    let folder = mesh.folder().join("proxies/default-bookstore-v1-21");
    let proxy_client = ProxyClient::connect(&folder, mesh.xds()).await.unwrap();
    let (chain, key) = proxy_client.service_certificate("default/bookstore").await.unwrap();
    let id = proxy_client.node_id.clone();

    let dump = eventually("all resources to be ACKed", async || {
        let dump = run(mesh, &["proxy", "show", &id, "--resources"]).await;
        let config: Value = serde_json::from_slice(&dump)?;
        let states = states(&config);
        anyhow::ensure!(states.len() == 1 && states["acked"] > 5, "{states:?}");
        Ok(dump)
    })
    .await;
    let config: Value = serde_json::from_slice(&dump).unwrap();
    let mut resources = config["resources"].as_array().unwrap().clone();
    let all = resources.len();
    resources.retain(|one| one["name"] != "service-cert");
    assert!(
        resources.iter().all(|one| one["version"] == one["acked"] && one["content"].is_object())
    );
    let secret = resources.iter().find(|one| one["name"] == "service-cert:default/bookstore");
    let secret = secret.expect("its certificate").to_string();
    assert!(secret.contains("[redacted]") && secret.contains("BEGIN CERTIFICATE"), "{secret}");
    assert_no_key("`proxy show --resources`", &dump, &key);
    let by_port = mesh.admin_get(&format!("/v1/proxies/{id}/config")).await.to_string();
    assert!(by_port.contains("[redacted]"));
    assert_no_key("the admin port", by_port.as_bytes(), &key);

    // The proxy itself sees the same, without the key.
    let request = ClientStatusRequest {
        node: Some(Node { id: id.clone(), ..Node::default() }),
        ..ClientStatusRequest::default()
    };
    let mut client = ClientStatusDiscoveryServiceClient::new(proxy_client.channel().clone());
    // A push in between, such as one of health, makes a resource stale for a moment.
    let reported = eventually("all resources to be synced", async || {
        let reported = client.fetch_client_status(request.clone()).await?.into_inner();
        let [told_of] = &reported.config[..] else { anyhow::bail!("{reported:?}") };
        anyhow::ensure!(told_of.generic_xds_configs.len() == all, "{reported:?}");
        let is_synced = |status| status == ConfigStatus::Synced;
        let configs = told_of.generic_xds_configs.iter();
        let synced = configs.filter(|one| is_synced(one.config_status())).count();
        anyhow::ensure!(synced == resources.len(), "{synced} of {}", resources.len());
        Ok(reported)
    })
    .await;
    let reported = reported.encode_to_vec();
    let first_line = chain.lines().nth(1).unwrap();
    assert!(String::from_utf8_lossy(&reported).contains(first_line), "it has its certificate");
    assert_no_key("CSDS", &reported, &key);

    // The text form.
    let all_synced = format!("resources     {} SYNCED\n", resources.len());
    let text = eventually("all resources to be synced", async || {
        let text = String::from_utf8(run(mesh, &["proxy", "show", &id]).await).unwrap();
        if text.contains(&all_synced) { Ok(text) } else { Err(text) }
    })
    .await;
    for part in [
        "proxy         bookstore-v1-1\n".to_owned(),
        format!("id            {id}\n"),
        "state         connected, by ".to_owned(),
        format!("identity      spiffe://mesh.internal/proxy/{id}/ns/default/svc/bookstore-v1\n"),
        "account       default/bookstore\n".to_owned(),
        format!("endpoint      default/bookstore-v1|14001 called at {}:15003", store.v1.address()),
    ] {
        assert!(text.contains(&part), "no {part:?} in\n{text}");
    }
    let buyer = mesh.proxies().await;
    let is_buyer = |one: &&Value| one["services"][0] == "default/bookbuyer";
    let buyer = buyer.as_array().unwrap().iter().find(is_buyer).unwrap()["id"].clone();
    let part = &buyer.as_str().unwrap()[..13];
    let text = String::from_utf8(run(mesh, &["proxy", "show", part]).await).unwrap();
    assert!(text.contains(", Envoy 1.40."), "{text}");
    assert!(text.contains("metadata      {\"app_address\""), "{text}");
    let json = run(mesh, &["proxy", "show", &id, "--output", "json"]).await;
    let json: Value = serde_json::from_slice(&json).unwrap();
    let by_port = mesh.admin_get(&format!("/v1/proxies/{id}")).await;
    assert_eq!(by_port["endpoints"], json["endpoints"]);
    assert_eq!(
        json["endpoints"][0]["applications"],
        serde_json::json!([{ "port": 8080, "weight": 1, "health": "unknown" }])
    );
    assert_no_key("`proxy show`", json.to_string().as_bytes(), &key);
}
