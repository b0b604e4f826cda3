//! `[consul]` and `[endpoints]`.

use super::*;

fn settings(text: &str) -> Settings {
    load_settings(text, "ironmesh.toml").unwrap()
}

#[test]
fn consul_settings_default_to_the_local_agent() {
    let default = ConsulSettings::default();
    assert_eq!(default.agents, ["http://127.0.0.1:8500"]);
    let seconds = |duration: Duration| duration.as_secs();
    assert_eq!((seconds(default.max_staleness), seconds(default.wait)), (10, 60));
    assert_eq!((default.max_connections, default.join_by_tag), (100, false));
    let keys = &default.locality;
    let keys = [&keys.region, &keys.zone, &keys.sub_zone];
    assert_eq!(keys, ["region", "zone", "sub_zone"]);
    for text in ["", "[consul]"] {
        assert_eq!(settings(text).consul, default, "{text}");
    }
    let with_token = settings("[consul]\ntoken_file = \"t\"").consul;
    assert_eq!(with_token, ConsulSettings { token_file: Some("t".into()), ..default });
}

#[test]
fn all_consul_settings_are_read() {
    let text = r#"
[consul]
agents = ["https://a:8501", "https://[::1]:8501"]
token_file = "token"
ca = "ca.pem"
certificate = "c.pem"
key = "c.key"
datacenter = "dc1"
namespace = "n"
partition = "p"
join_by_tag = true
max_staleness = "0s"
max_connections = 7
wait = "10m"
[consul.locality]
region = "cloud-region"
zone = "cloud-zone"
sub_zone = "rack"
"#;
    let text_of = |text: &str| Some(text.to_owned());
    let expected = ConsulSettings {
        agents: vec!["https://a:8501".to_owned(), "https://[::1]:8501".to_owned()],
        token_file: Some("token".into()),
        ca: Some("ca.pem".into()),
        identity: Some(("c.pem".into(), "c.key".into())),
        datacenter: text_of("dc1"),
        namespace: text_of("n"),
        partition: text_of("p"),
        join_by_tag: true,
        max_staleness: Duration::ZERO,
        max_connections: 7,
        wait: Duration::from_secs(600),
        locality: LocalityKeySettings {
            region: "cloud-region".to_owned(),
            zone: "cloud-zone".to_owned(),
            sub_zone: "rack".to_owned(),
        },
    };
    assert_eq!(settings(text).consul, expected);
}

#[test]
fn inconsistent_consul_settings_are_reported() {
    for (text, expected) in [
        ("agents = []", "`agents` must list one at least"),
        ("agents = [\"127.0.0.1:8500\"]", "`agents` must list `https://host:port`"),
        ("agents = [\"unix:///run/consul\"]", "`agents` must list `https://host:port`"),
        ("agents = [\"https://a:1\"]", "agents with `https` need `ca`"),
        ("agents = [\"https://a:1\", \"http://b:1\"]\nca = \"x\"", "`agents` must be all `https`"),
        (
            "agents = [\"http://a:1\"]\nca = \"x\"",
            "certificates are of no use with agents of `http`",
        ),
        ("agents = [\"https://a:1\"]\nca = \"x\"\ncertificate = \"y\"", "`consul` needs `key`"),
        ("agents = [\"https://a:1\"]\nca = \"x\"\nkey = \"y\"", "`consul` needs `certificate`"),
        ("ca = \"x\"", "certificates need `agents` of `https`"),
        (
            "agents = [\"http://a:1\"]\ntoken_file = \"x\"",
            "the token would go over the network in the clear",
        ),
        (
            "agents = [\"http://a:1\"]\ntoken_file = \"x\"\ninsecure = true",
            "the token would go over the network in the clear",
        ),
        (
            "agents = [\"http://127.0.0.1:1\", \"http://10.0.0.1:1\"]",
            "`agents` of `http` on another machine need `insecure = true`",
        ),
        ("datacenter = \"\"", "`datacenter` must be 1 to 256 characters"),
        ("max_staleness = \"11m\"", "`max_staleness` must be from 0s to 10m"),
        ("wait = \"0s\"", "`wait` must be from 1s to 10m"),
        ("max_connections = 0", "`max_connections` must be from 1 to 10000"),
        ("locality = { rack = \"x\" }", "`consul.locality` has no key `rack`"),
        ("toke_file = \"x\"", "did you mean `token_file`?"),
    ] {
        let reported = findings(&format!("[consul]\n{text}"));
        assert!(reported.len() == 1 && reported[0].contains(expected), "{text}\n{reported:#?}");
    }
}

#[test]
fn inline_consul_token_is_rejected_and_not_printed() {
    let text = "[consul]\ntoken = \"8f246b77-f3e1-ff88\"\n";
    let reported = load_settings(text, "ironmesh.toml").unwrap_err();
    let document = Document::new("ironmesh.toml", text);
    let words = ironmesh_config_language::render(&reported, &[document], false);
    assert!(words.contains("`token` at ironmesh.toml:2:1"), "{words}");
    assert!(words.contains("token_file = "), "{words}");
    assert!(!words.contains("8f246b77"), "{words}");
}

const GUID: &str = "00000000-1111-2222-3333-444444444444";

#[test]
fn azure_settings_default_to_the_managed_identity() {
    for text in ["", "[azure]", "[azure.managed_identity]", "azure.cloud = \"public\""] {
        assert_eq!(settings(text).azure, AzureSettings::default(), "{text}");
    }
    let default = AzureSettings::default();
    assert_eq!((default.interval.as_secs(), default.resource_graph), (30, false));
}

#[test]
fn all_azure_settings_are_read() {
    let guid = || GUID.into();
    let all = settings(&format!(
        "[azure]\nsubscription = \"{GUID}\"\nresource_group = \"Shop\"\ninterval = \"1m\"\n\
         resource_graph = true\nreads_per_hour = 12000\ncloud = \"us_government\"\nmanaged_identity.client_id = \"{GUID}\"\n\
         [azure.attestation]\nroots = \"r\"\nintermediates = \"i\"\nsigner_domain = \"Metadata.Azure.example\""
    ));
    let expected = AzureSettings {
        subscription: Some(guid()),
        resource_group: Some("shop".into()),
        cloud: AzureCloudSetting::UsGovernment,
        credential: AzureCredentialSetting::ManagedIdentity { client_id: Some(guid()) },
        interval: Duration::from_secs(60),
        reads_per_hour: 12_000,
        resource_graph: true,
        attestation: AttestationSettings {
            roots: Some("r".into()),
            intermediates: Some("i".into()),
            signer_domain: Some("metadata.azure.example".to_owned()),
        },
    };
    assert_eq!(all.azure, expected);
    let credential = |text: &str| settings(text).azure.credential;
    let workload = format!(
        "[azure.workload_identity]\ntenant = \"Contoso.onmicrosoft.com\"\nclient_id = \"{GUID}\"\ntoken_file = \"t\""
    );
    let tenant = "contoso.onmicrosoft.com".into();
    let expected = AzureCredentialSetting::WorkloadIdentity {
        tenant,
        client_id: guid(),
        token_file: "t".into(),
    };
    assert_eq!(credential(&workload), expected);
    let secret = format!(
        "azure.client_secret = {{ tenant = \"{GUID}\", client_id = \"{GUID}\", secret_file = \"s\" }}"
    );
    let expected = AzureCredentialSetting::ClientSecret {
        tenant: guid(),
        client_id: guid(),
        secret_file: "s".into(),
    };
    assert_eq!(credential(&secret), expected);
    let cloud = |text: &str| settings(&format!("[azure.cloud]\n{text}")).azure.cloud;
    let stack = cloud(
        "resource_manager = \"https://arm.stack.example\"\nlogin = \"https://login.stack.example\"\nca = \"ca.pem\"",
    );
    let expected = AzureCloudSetting::Custom {
        resource_manager: "https://arm.stack.example".to_owned(),
        login: "https://login.stack.example".to_owned(),
        metadata: None,
        ca: Some("ca.pem".into()),
    };
    assert_eq!(stack, expected);
    // As tests have it.
    cloud(
        "resource_manager = \"http://127.0.0.1:1\"\nlogin = \"http://[::1]:2\"\nmetadata = \"http://localhost:3\"",
    );
}

#[test]
fn signer_domain_of_attested_documents_follows_the_cloud() {
    let domain = |text: &str| settings(text).azure.signer_domain().map(str::to_owned);
    assert_eq!(domain("").unwrap(), "metadata.azure.com");
    for (cloud, expected) in
        [("us_government", "metadata.azure.us"), ("china", "metadata.azure.cn")]
    {
        assert_eq!(domain(&format!("azure.cloud = \"{cloud}\"")).unwrap(), expected);
    }
    let custom = "azure.cloud = { resource_manager = \"https://a.b\", login = \"https://a.b\" }\n";
    assert_eq!(domain(custom), None);
    let set = "azure.attestation.signer_domain = \"metadata.example\"";
    assert_eq!(domain(&format!("{custom}{set}")).unwrap(), "metadata.example");
    let below = settings("[azure.attestation]\nroots = \"r\"\nintermediates = \"/i\"");
    let trust = below.with_paths_below("/etc/ironmesh".as_ref()).azure.attestation;
    assert_eq!(trust.roots, Some("/etc/ironmesh/r".into()));
    assert_eq!(trust.intermediates, Some("/i".into()));
}

#[test]
fn inconsistent_azure_settings_are_reported() {
    let client = format!("tenant = \"{GUID}\"\nclient_id = \"{GUID}\"\n");
    for (text, expected) in [
        ("subscription = \"prod\"", "`subscription` must be the GUID of a subscription: `prod`"),
        ("resource_group = \"a/b\"", "`resource_group` must be the name of a resource group"),
        ("attestation = { signer_domain = \"com\" }", "`signer_domain` must be a domain below"),
        ("attestation = { signer_domain = \"*.azure.com\" }", "`signer_domain` must be a domain"),
        ("attestation = { root = \"/r\" }", "`azure.attestation` has no key `root`"),
        ("cloud = \"germany\"", "there is no cloud `germany`"),
        ("cloud = {}", "`azure.cloud` needs `resource_manager`"),
        (
            "cloud = { resource_manager = \"http://a\", login = \"https://a\" }",
            "`resource_manager` must be `https`: `http://a`",
        ),
        (
            "cloud = { resource_manager = \"https://a?x\", login = \"https://a\" }",
            "`resource_manager` must be `https://host`: `https://a?x`",
        ),
        (
            "cloud = { resource_manager = \"https://u:p@a\", login = \"https://a\" }",
            "`resource_manager` must be `https://host`",
        ),
        (
            "cloud = { resource_manager = \"https://a\", login = \"https://a\", metadata = \"http://b\" }",
            "`metadata` must be an address on this machine",
        ),
        (
            "cloud = { resource_manager = \"https://a\", login = \"https://a/adfs\" }",
            "`login` must be `https://host`",
        ),
        ("interval = \"0s\"", "`interval` must be from 1s to 60m: `0s`"),
        ("interval = \"2h\"", "`interval` must be from 1s to 60m: `2h`"),
        ("reads_per_hour = 1", "`reads_per_hour` must be from 100 to 12000"),
        ("resource_graph = 1", "`resource_graph` must be `true` or `false`"),
        ("managed_identity = { client_id = \"me\" }", "`client_id` must be the GUID of a managed"),
        ("[azure.client_secret]\nsecret_file = \"x\"\nclient_id = \"y\"", "`client_id` must be"),
        (&format!("[azure.client_secret]\n{client}"), "`azure.client_secret` needs `secret_file`"),
        (&format!("[azure.workload_identity]\n{client}"), "needs `token_file`"),
        (
            &format!("[azure.workload_identity]\ntoken_file = \"x\"\n{client}")
                .replace("tenant = \"", "tenant = \"/"),
            "`tenant` must be a GUID or a domain",
        ),
        (
            &format!(
                "[azure.managed_identity]\n[azure.client_secret]\nsecret_file = \"x\"\n{client}"
            ),
            "the control plane needs exactly one Azure identity",
        ),
        ("region = \"west\"", "`azure` has no key `region`"),
    ] {
        let reported = findings(&format!("[azure]\n{text}"));
        assert!(reported.iter().any(|one| one.contains(expected)), "{text}\n{reported:#?}");
    }
}

#[test]
fn inline_azure_secret_is_rejected_and_not_printed() {
    for text in [
        "[azure.client_secret]\nsecret = \"8f246b77\"\n",
        "[azure.client_secret]\nclient_secret = \"8f246b77\"\ntenant = 1\n",
        "azure = { client_secret = \"8f246b77\", bogus = 1, interval = 3 }\n",
        "azure = { client_secret = { secret = \"8f246b77\", tenant = \"/\", x = 1 }, bogus = 1 }\n",
        "azure.client_secret.value = \"8f246b77\"\n",
        "[azure]\nsecret = \"8f246b77\"\n",
        "[azure]\nclient_secret = \"8f246b77\"\n",
        "[azure]\nworkload_identity = { token = \"8f246b77\" }\n",
        "[azure]\nworkload_identity = \"8f246b77\"\n",
    ] {
        let reported = load_settings(text, "ironmesh.toml").unwrap_err();
        let document = Document::new("ironmesh.toml", text);
        let words = ironmesh_config_language::render(&reported, &[document], false);
        assert!(words.contains("the settings hold a secret, `"), "{text}{words}");
        assert!(words.contains("_file = "), "{text}{words}");
        assert!(!words.contains("8f246b77"), "{text}{words}");
    }
}

#[test]
fn provider_guard_settings_are_read_and_validated() {
    let endpoints = settings("").endpoints;
    assert_eq!(endpoints, EndpointsSettings::default());
    let seconds = |duration: Duration| duration.as_secs();
    assert_eq!((seconds(endpoints.grace), seconds(endpoints.sync_timeout)), (60, 5));
    let share = |written: &str| {
        let text = format!("[endpoints]\nkeep_share = {written}");
        load_settings(&text, "ironmesh.toml").map(|settings| settings.endpoints.keep_share)
    };
    for (written, expected) in [("0.5", 0.5), ("0", 0.0), ("1", 1.0), ("25e-2", 0.25)] {
        assert_eq!(share(written), Ok(expected), "{written}");
    }
    for bad in ["-0.1", "1.1", "2", "nan", "inf", "\"0.5\"", "true"] {
        assert!(share(bad).is_err(), "{bad}");
    }
    let all = settings("[endpoints]\nkeep_share = 0.2\ngrace = \"1d\"\nsync_timeout = \"0s\"");
    let expected = EndpointsSettings {
        keep_share: 0.2,
        grace: Duration::from_secs(86_400),
        sync_timeout: Duration::ZERO,
        allow_local_addresses: None,
    };
    assert_eq!(all.endpoints, expected);
    let reported = findings("[endpoints]\ngrace = \"25h\"\nkeep_share = 50");
    assert!(reported[0].contains("`grace` must be from 0s to 1d"), "{reported:#?}");
    assert!(reported[1].contains("`keep_share` must be from 0 to 1: `50`"), "{reported:#?}");
}

#[test]
fn local_addresses_are_allowed_on_loopback_or_by_setting() {
    let allows = |text: &str| settings(text).allows_local_addresses();
    let on = |address: &str| format!("listen = {{ xds = \"{address}:15128\" }}\n");
    assert!(!allows("") && !allows(&on("10.0.0.1")));
    assert!(allows(&on("127.0.1.1")) && allows(&on("[::1]")));
    let set = |allow: bool| format!("[endpoints]\nallow_local_addresses = {allow}");
    assert!(allows(&set(true)) && !allows(&(on("127.0.0.1") + &set(false))));
}

#[test]
fn insecure_plaintext_to_another_machine_stays_a_finding() {
    let risks = |text: &str| {
        let settings = settings(text);
        let policy = settings.policy.clone().unwrap_or_else(|| PolicyLocation::Folder("p".into()));
        let findings = settings.risk_findings(&policy);
        findings.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    let insecure = "[consul]\nagents = [\"http://10.0.0.1:1\"]\ninsecure = true\n\
                    [policy.etcd]\nendpoints = [\"http://[2001:db8::1]:1\"]\ninsecure = true";
    let found = risks(insecure);
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(found[0].contains("queries etcd in plaintext over the network"), "{found:#?}");
    assert!(found[1].contains("queries Consul in plaintext over the network"), "{found:#?}");
    let local = "[consul]\nagents = [\"http://127.0.1.1:1\", \"http://localhost:1\"]\ninsecure = true\n\
                 [policy.etcd]\nendpoints = [\"http://[::1]:1\"]";
    for text in ["", local, "[consul]\nagents = [\"https://a:1\"]\nca = \"x\"\ninsecure = true"] {
        assert_eq!(risks(text), [""; 0], "{text}");
    }
}
