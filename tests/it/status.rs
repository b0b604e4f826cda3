//! The status that a client may read of itself (CSDS).

use std::sync::Arc;

use ironmesh_tests::authority::Identity;
use ironmesh_tests::eventually::patience;
use ironmesh_xds_server::CloseReason;
use ironmesh_xds_wire::pb::envoy::admin::v3::ClientResourceStatus;
use ironmesh_xds_wire::pb::envoy::config::core::v3::{DataSource, Node, data_source::Specifier};
use ironmesh_xds_wire::pb::envoy::extensions::transport_sockets::tls::v3::{
    Secret, TlsCertificate, secret,
};
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::pb::envoy::service::status::v3::client_status_discovery_service_client::ClientStatusDiscoveryServiceClient;
use ironmesh_xds_wire::pb::envoy::service::status::v3::{
    ClientConfig, ClientStatusRequest, ClientStatusResponse, ConfigStatus,
};
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{NodeMatcher, RegexMatcher, StringMatcher};
use ironmesh_xds_wire::{Resource, ResourceType};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Code, Status};

use crate::bystander::Bystander;
use crate::client::{Stream, clusters, connect};
use crate::server::{Server, cluster};

/// A placeholder of a private key.
const KEY: &str = "-----BEGIN PRIVATE KEY-----";

fn question(client: &Identity) -> ClientStatusRequest {
    ClientStatusRequest {
        node: Some(Node { id: client.name(), ..Node::default() }),
        ..ClientStatusRequest::default()
    }
}

async fn fetch(
    channel: &Channel,
    question: ClientStatusRequest,
) -> Result<ClientStatusResponse, Status> {
    let mut client = ClientStatusDiscoveryServiceClient::new(channel.clone());
    let answer = client.fetch_client_status(question);
    Ok(timeout(patience(), answer).await.expect("an answer")?.into_inner())
}

/// The default status of a client.
async fn own_status(channel: &Channel, client: &Identity) -> ClientConfig {
    let answer = fetch(channel, question(client)).await.unwrap();
    let [config] = &answer.config[..] else { panic!("{answer:?}") };
    assert_eq!(config.node.as_ref().unwrap().id, client.name());
    config.clone()
}

/// A resource's name, version, config status and client status.
type ResourceState = (String, String, ConfigStatus, ClientResourceStatus);

fn resource_states(config: &ClientConfig) -> Vec<ResourceState> {
    let stands = config.generic_xds_configs.iter().map(|one| {
        let (name, version) = (one.name.clone(), one.version_info.clone());
        (name, version, one.config_status(), one.client_status())
    });
    stands.collect()
}

fn by_id(pattern: MatchPattern) -> NodeMatcher {
    let node_id = StringMatcher { match_pattern: Some(pattern), ignore_case: false };
    NodeMatcher { node_id: Some(node_id), ..NodeMatcher::default() }
}

fn certificate() -> Arc<Resource> {
    let inline = |text: &str| {
        let specifier = Some(Specifier::InlineString(text.to_owned()));
        Some(DataSource { specifier, ..DataSource::default() })
    };
    let certificate = TlsCertificate {
        certificate_chain: inline("the chain"),
        private_key: inline(KEY),
        ..TlsCertificate::default()
    };
    Arc::new(Resource::new(&Secret {
        name: "service-cert".to_owned(),
        r#type: Some(secret::Type::TlsCertificate(certificate)),
    }))
}

#[tokio::test]
async fn csds_reports_sync_status_per_resource_without_secrets() {
    use ClientResourceStatus::{Acked, DoesNotExist, Nacked, Unknown};
    use ConfigStatus::{Error, Stale, Synced};

    let server = Server::start().await;
    let client = server.authority.proxy();
    let channel = connect(&server, &client).await;
    assert_eq!(resource_states(&own_status(&channel, &client).await), [], "it has had no stream");

    let mut stream = Stream::begin(channel.clone(), clusters(&client)).await;
    let (one, mut set) = cluster("a", "1");
    let secret = certificate();
    set.insert(Arc::clone(&secret));
    server.publish(&client, set.clone()).await;
    let push = stream.push().await;
    let not_yet = (String::from("a"), one.version().to_string(), ConfigStatus::Unknown, Unknown);
    let before = own_status(&channel, &client).await;
    assert!(resource_states(&before).contains(&not_yet), "{:?}", resource_states(&before));

    stream.answer(&push, None).await;
    let names = vec!["service-cert".to_owned()];
    let type_url = ResourceType::Secret.url().to_owned();
    let ask =
        DeltaDiscoveryRequest { type_url, resource_names_subscribe: names, ..clusters(&client) };
    stream.send(ask).await;
    let push = stream.push().await;
    stream.answer(&push, Some("key does not match")).await;
    server.status_where(&client, "a NACK", |status| !status.nacks.is_empty()).await;

    let (version, rejected) = (one.version().to_string(), secret.version().to_string());
    let config = own_status(&channel, &client).await;
    let expected = [
        ("service-cert".to_owned(), rejected.clone(), Error, Nacked),
        ("a".to_owned(), version.clone(), Synced, Acked),
    ];
    assert_eq!(resource_states(&config), expected);
    let [of_secret, of_cluster] = &config.generic_xds_configs[..] else { panic!("{config:?}") };
    let failure = of_secret.error_state.as_ref().unwrap();
    assert_eq!((&*failure.details, &failure.version_info), ("key does not match", &rejected));
    assert_eq!(of_cluster.error_state, None);
    let content = |one: Option<&ironmesh_xds_wire::pb::google::protobuf::Any>| {
        String::from_utf8_lossy(&one.unwrap().value).into_owned()
    };
    let shown = content(of_secret.xds_config.as_ref());
    assert!(shown.contains("the chain") && shown.contains("[redacted]"), "{shown}");
    assert!(!shown.contains(KEY), "{shown}");
    assert_eq!(of_cluster.type_url, ResourceType::Cluster.url());

    // One push in flight, and one removal pending.
    let (two, mut set) = cluster("b", "1");
    set.insert(Arc::clone(&secret));
    server.publish(&client, set).await;
    stream.push().await;
    let config = own_status(&channel, &client).await;
    assert!(resource_states(&config).contains(&("a".to_owned(), version, Stale, DoesNotExist)));
    let (two, set) = {
        drop(two);
        cluster("a", "2")
    };
    server.publish(&client, set).await;
    let config = own_status(&channel, &client).await;
    assert!(resource_states(&config).contains(&(
        "a".to_owned(),
        two.version().to_string(),
        Stale,
        Acked
    )));

    let without = ClientStatusRequest { exclude_resource_contents: true, ..question(&client) };
    let answer = fetch(&channel, without).await.unwrap();
    let configs = &answer.config[0].generic_xds_configs;
    assert!(!configs.is_empty() && configs.iter().all(|one| one.xds_config.is_none()));
}

/// Invariant 2.
#[tokio::test]
async fn csds_shows_a_client_only_itself() {
    let server = Server::start().await;
    let (client, other) = (server.authority.proxy(), server.authority.proxy());
    let mut streams = Vec::new();
    for (one, name) in [(&client, "mine"), (&other, "other")] {
        streams.push(Stream::open(&server, one).await);
        server.publish(one, cluster(name, "1").1).await;
    }
    let channel = connect(&server, &client).await;
    let asking = |matchers: Vec<NodeMatcher>| ClientStatusRequest {
        node_matchers: matchers,
        ..question(&client)
    };
    for (matchers, sees_itself) in [
        (vec![], true),
        (vec![NodeMatcher::default()], true),
        (vec![by_id(MatchPattern::Prefix(String::new()))], true),
        (
            vec![
                by_id(MatchPattern::Exact(other.name())),
                by_id(MatchPattern::Exact(client.name())),
            ],
            true,
        ),
        (vec![by_id(MatchPattern::Exact(other.name()))], false),
    ] {
        let answer = fetch(&channel, asking(matchers)).await.unwrap();
        let seen: Vec<_> = answer
            .config
            .iter()
            .flat_map(|one| &one.generic_xds_configs)
            .map(|one| &one.name)
            .collect();
        assert_eq!(seen, if sees_itself { vec!["mine"] } else { vec![] }, "{answer:?}");
    }

    let regex = RegexMatcher { regex: ".*".to_owned(), ..RegexMatcher::default() };
    let rejected = fetch(&channel, asking(vec![by_id(MatchPattern::SafeRegex(regex))])).await;
    let rejected = rejected.unwrap_err();
    assert_eq!(rejected.code(), Code::InvalidArgument);
    assert!(rejected.message().contains("`exact`, `prefix`, `suffix` or `contains`"), "{rejected}");
    let rejected = fetch(&channel, ClientStatusRequest::default()).await.unwrap_err();
    assert_eq!(rejected.code(), Code::InvalidArgument);
    assert!(rejected.message().contains("must have a `node`"), "{rejected}");

    let rejected = fetch(&channel, question(&other)).await.unwrap_err();
    assert_eq!(rejected.code(), Code::PermissionDenied);
    let why = format!("`{}` has the certificate of `{}`", other.name(), client.name());
    assert_eq!(rejected.message(), why);
    assert_eq!(server.hub.counters().streams_closed(CloseReason::Rejected), 1);
}

#[tokio::test]
async fn csds_connection_serves_one_stream_and_answers_each_request() {
    let server = Server::start().await;
    let client = server.authority.proxy();
    let mut bystander = Bystander::open(&server).await;
    let channel = connect(&server, &client).await;
    let (requests, outgoing) = mpsc::channel(200);
    requests.send(question(&client)).await.unwrap();
    let mut service = ClientStatusDiscoveryServiceClient::new(channel.clone());
    let stream = service.stream_client_status(ReceiverStream::new(outgoing)).await.unwrap();
    let mut answers = stream.into_inner();
    // The node is required once per stream.
    requests.send(ClientStatusRequest::default()).await.unwrap();
    for _ in 0..2 {
        let answer = timeout(patience(), answers.message()).await.unwrap().unwrap().unwrap();
        assert_eq!(answer.config[0].node.as_ref().unwrap().id, client.name());
    }
    let second = fetch(&channel, question(&client)).await.unwrap_err();
    assert_eq!(second.code(), Code::ResourceExhausted, "{second}");
    assert_eq!(server.hub.counters().streams_closed(CloseReason::TooManyStreams), 1);

    bystander.assert_served(&server).await;
    server.shutdown.cancel();
    let end = timeout(patience(), answers.message()).await.unwrap().unwrap_err();
    assert_eq!(end.code(), Code::Unavailable);
    server.ended().await;
}
