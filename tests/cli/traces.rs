//! The export of traces: TLS, the end of the process, and the metrics. `tests/envoy` has traces of Envoys.

use std::sync::Arc;

use ironmesh_tests::collector::Span;
use ironmesh_tests::process::Child;
use ironmesh_tests::{Collector, eventually, get_once};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, SanType};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::process::Command;

use crate::server::Server;

const POLICY: &str =
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

/// The TLS of a server at this address, and the certificate of its authority in PEM.
fn tls_of(address: std::net::IpAddr) -> (ServerConfig, String) {
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let authority = params.self_signed(&key).unwrap();
    let issuer = Issuer::new(params, key);
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::IpAddress(address)];
    let key = KeyPair::generate().unwrap();
    let certificate = params.signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![certificate.der().clone()],
            PrivateKeyDer::Pkcs8(key.serialize_der().into()),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    (config, authority.pem())
}

/// Waits for the root span of a change of this kind.
async fn root(collector: &Collector, kind: &str, is_it: impl Fn(&Span) -> bool) -> Span {
    eventually("a root span", async || {
        let spans = collector.spans();
        let of_kind = |span: &&Span| {
            span.attributes.get("ironmesh.change.kind").is_some_and(|one| one == kind)
        };
        let root = spans.iter().filter(of_kind).find(|span| is_it(span)).cloned();
        root.ok_or_else(|| format!("{spans:#?}"))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn traces_reach_a_collector_by_tls_until_the_last_span() {
    let Some(server) = Server::open("") else { return };
    let at = server.loopback.socket(2, 4317);
    let settings = fs_err::read_to_string(server.workspace.path().join("ironmesh.toml")).unwrap();
    let settings = format!("traces.endpoint = \"https://{at}\"\n{settings}");
    server.workspace.write("ironmesh.toml", &settings);
    server.workspace.write("policy/a.toml", POLICY);
    let (tls, authority) = tls_of(at.ip());
    server.workspace.write("authority.pem", &authority);
    let collector = Collector::start_tls(at, tls).await;
    let mut command =
        Command::from(server.workspace.command(&["serve", "--config", "ironmesh.toml"]));
    command.env("SSL_CERT_FILE", server.workspace.path().join("authority.pem"));
    let log = server.workspace.path().join("serve.log");
    let mut child = Child::start("ironmesh serve", &mut command, &log);
    let span = root(&collector, "policy", |span| span.parent.is_empty()).await;
    assert_eq!((&*span.service, span.error, span.kind), ("ironmesh", None, 1));
    assert_eq!(span.attributes["ironmesh.change.inputs"], "policy");

    eventually("the count of exported spans", async || {
        let admin = server.loopback.socket(1, 15014);
        let text = get_once(admin, "/metrics", &[]).await?.text();
        let line = "ironmesh_trace_spans_total{outcome=\"exported\"} ";
        let count = text.lines().find_map(|one| one.strip_prefix(line));
        anyhow::ensure!(count.is_some_and(|count| count != "0"), "{count:?}");
        for outcome in ["lost", "omitted"] {
            let line = format!("ironmesh_trace_spans_total{{outcome=\"{outcome}\"}} 0");
            anyhow::ensure!(text.contains(&line), "{text}");
        }
        Ok(())
    })
    .await;
    // What was found just before the end is exported, too.
    server.ready().await;
    server.workspace.write("policy/a.toml", &POLICY.replace("80", "81"));
    let revision = server.json(&["policy", "check", "policy"])["revision"].clone();
    server.wait_for_policy("the new policy", |policy| policy["revision"] == revision).await;
    let change = format!("policy-{}", &revision.as_str().unwrap()[..12]);
    assert!(child.terminate().await.success());
    let is_it = |span: &Span| span.attributes["ironmesh.change"] == change.as_str();
    root(&collector, "policy", is_it).await;
}

#[tokio::test]
async fn collector_of_another_machine_needs_tls() {
    let Some(server) = Server::open("traces.endpoint = \"http://192.0.2.1:4317\"") else { return };
    let run = server.run(&["serve"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(run.stderr.contains("`endpoint` of another machine must be `https`"), "{run:?}");
}
