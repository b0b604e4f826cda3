//! `[consul]` and `[endpoints]`.

use super::*;

fn settings(text: &str) -> Settings {
    load_settings(text, "ironmesh.toml").unwrap()
}

#[test]
fn consul_is_the_agent_of_this_machine_unless_settings_say_another() {
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
fn all_that_settings_say_of_consul_is_read() {
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
        locality: LocalityKeys {
            region: "cloud-region".to_owned(),
            zone: "cloud-zone".to_owned(),
            sub_zone: "rack".to_owned(),
        },
    };
    assert_eq!(settings(text).consul, expected);
}

#[test]
fn what_does_not_fit_together_about_consul_is_told() {
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
        ("datacenter = \"\"", "`datacenter` must be 1 to 256 characters"),
        ("max_staleness = \"11m\"", "`max_staleness` must be from 0s to 10m"),
        ("wait = \"0s\"", "`wait` must be from 1s to 10m"),
        ("max_connections = 0", "`max_connections` must be from 1 to 10000"),
        ("locality = { rack = \"x\" }", "`consul.locality` has no key `rack`"),
        ("toke_file = \"x\"", "did you mean `token_file`?"),
    ] {
        let told = findings(&format!("[consul]\n{text}"));
        assert!(told.len() == 1 && told[0].contains(expected), "{text}\n{told:#?}");
    }
}

#[test]
fn a_token_in_the_settings_is_refused_and_told_to_nobody() {
    let text = "[consul]\ntoken = \"8f246b77-f3e1-ff88\"\n";
    let told = load_settings(text, "ironmesh.toml").unwrap_err();
    let document = Document::new("ironmesh.toml", text);
    let words = crate::render(&told, &[document], false);
    assert!(words.contains("`token` at ironmesh.toml:2:1"), "{words}");
    assert!(words.contains("token_file = "), "{words}");
    assert!(!words.contains("8f246b77"), "{words}");
}

#[test]
fn what_is_believed_of_providers_is_read() {
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
    };
    assert_eq!(all.endpoints, expected);
    let told = findings("[endpoints]\ngrace = \"25h\"\nkeep_share = 50");
    assert!(told[0].contains("`grace` must be from 0s to 1d"), "{told:#?}");
    assert!(told[1].contains("`keep_share` must be from 0 to 1: `50`"), "{told:#?}");
}
