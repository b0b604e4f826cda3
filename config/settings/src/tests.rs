use std::time::Duration;

use super::*;

mod providers;
mod store;

fn findings(text: &str) -> Vec<String> {
    let findings = load_settings(text, "ironmesh.toml").unwrap_err();
    let help = |f: &Finding| f.help.as_ref().map_or(String::new(), |help| format!(" / {help}"));
    findings.iter().map(|finding| format!("{finding}{}", help(finding))).collect()
}

#[test]
fn empty_settings_file_has_documented_defaults() {
    let settings = load_settings("", "ironmesh.toml").unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(settings.listen.xds.to_string(), "0.0.0.0:15128");
    assert_eq!(settings.listen.admin.to_string(), "127.0.0.1:15014");
    assert_eq!(settings.certificates.service_lifetime, Duration::from_secs(86_400));
    assert_eq!(settings.trust_domain.as_str(), "mesh.internal");
    assert_eq!(settings.xds, Xds::default());
}

#[test]
fn all_settings_are_read() {
    let text = r#"
mesh = "prod"
domain = "mesh.example.com"
mode = "strict"
settle = "100ms"
state = "/var/lib/ironmesh"
policy = "policy"
key_encryption_key = "/etc/kek"
advertise = ["cp1.example.com:15128", "[fd00::1]:15128"]

[listen]
xds = "[::]:15128"
admin = "[::1]:15014"

[certificates]
service_lifetime = "1h 30m"

[xds]
max_connection_age = "1h"
max_proxies = 2000

[sidecar]
class = "envoy"

[log]
level = "warn,ironmesh_xds_server=debug"
format = "json"

[traces]
endpoint = "http://127.0.0.1:4317"
"#;
    let settings = load_settings(text, "ironmesh.toml").unwrap();
    assert_eq!(settings.mesh.as_str(), "prod");
    assert_eq!(settings.trust_domain.as_str(), "mesh.example.com");
    assert_eq!(settings.state, Some("/var/lib/ironmesh".into()));
    assert_eq!(settings.sidecar_class.as_str(), "envoy");
    assert_eq!(settings.advertise.len(), 2);
    assert_eq!(settings.listen.admin.port(), 15014);
    assert_eq!(settings.certificates.service_lifetime, Duration::from_secs(5400));
    assert_eq!(settings.settle, Duration::from_millis(100));
    assert_eq!(settings.xds.max_connection_age, Some(Duration::from_secs(3600)));
    assert_eq!(settings.xds.max_proxies, Some(2000));
    assert_eq!(settings.log.level.as_str(), "warn,ironmesh_xds_server=debug");
    assert!(settings.log.is_json);
    assert_eq!(settings.traces_endpoint.as_deref(), Some("http://127.0.0.1:4317"));
}

#[test]
fn all_settings_errors_are_reported_together() {
    let text = "meshh = \"prod\"\ndomain = \"Mesh..x\"\nmode = \"audits\"\nstate = 1\n\
                advertise = [\"cp\", \"cp:0\"]\n[listen]\nxds = \"15128\"\nadmin = \"0.0.0.0:15014\"\n";
    let reported = findings(text);
    let expected = [
        "error[IM0102]: the settings file has no key `meshh` (ironmesh.toml:1:1) / did you mean `mesh`?",
        "error[IM0106]: a part of `domain`",
        "error[IM0105]: there is no mode `audits`",
        "error[IM0104]: `state` must be a string, not an integer",
        "error[IM0105]: `advertise` must list `host:port`: `cp`",
        "error[IM0105]: `advertise` must list `host:port`: `cp:0`",
        "error[IM0105]: `xds` must be an address with a port",
        "error[IM0105]: `admin` must be a loopback address: `0.0.0.0:15014`",
    ];
    assert_eq!(reported.len(), expected.len(), "{reported:#?}");
    for (reported, expected) in reported.iter().zip(expected) {
        assert!(reported.starts_with(expected), "{reported}");
    }
}

#[test]
fn all_syntax_errors_of_settings_are_reported() {
    let reported = findings("mesh = prod\nmode = \n");
    assert!(reported.len() >= 2, "{reported:#?}");
    assert!(reported.iter().all(|line| line.starts_with("error[IM0101]")), "{reported:#?}");
}

#[test]
fn service_lifetime_is_a_duration_within_bounds() {
    let lifetime = |text: &str| {
        let text = format!("certificates.service_lifetime = \"{text}\"");
        load_settings(&text, "ironmesh.toml").map(|s| s.certificates.service_lifetime.as_secs())
    };
    for (text, seconds) in [("24h", 86_400), ("90m", 5400), ("30d", 2_592_000), ("5 minutes", 300)]
    {
        assert_eq!(lifetime(text), Ok(seconds), "{text}");
    }
    for bad in ["", "24", "4m", "31d", "-1h", "1 month", "soon"] {
        assert!(lifetime(bad).is_err(), "{bad}");
    }
    let reported = findings("certificates.service_lifetime = \"1m\"");
    assert!(reported[0].contains("must be from 5m to 30d: `1m`"), "{reported:#?}");
}

fn place(text: &str) -> PolicyLocation {
    load_settings(text, "ironmesh.toml").unwrap().policy.unwrap()
}

#[test]
fn policy_setting_selects_a_folder_or_etcd() {
    assert_eq!(place("policy = \"rules\""), PolicyLocation::Folder("rules".into()));
    assert_eq!(place("[policy]\nfolder = \"rules\""), PolicyLocation::Folder("rules".into()));
    let small = place("mesh = \"prod\"\n[policy.etcd]\nendpoints = [\"http://127.0.0.1:2379\"]");
    let PolicyLocation::Etcd(small) = small else { panic!("{small:?}") };
    assert_eq!(small.prefix, "/ironmesh/prod/policy");
    assert_eq!((small.ca, small.identity, small.user), (None, None, None));
    let large = place(
        "[policy.etcd]\nendpoints = [\"https://a:2379\", \"https://[::1]:2379\"]\nprefix = \"/p\"\n\
         ca = \"ca.pem\"\ncertificate = \"c.pem\"\nkey = \"c.key\"\nusername = \"mesh\"\n\
         password_file = \"secret\"",
    );
    let expected = EtcdSettings {
        endpoints: vec!["https://a:2379".to_owned(), "https://[::1]:2379".to_owned()],
        prefix: "/p".to_owned(),
        ca: Some("ca.pem".into()),
        identity: Some(("c.pem".into(), "c.key".into())),
        user: Some(("mesh".to_owned(), "secret".into())),
    };
    assert_eq!(large, PolicyLocation::Etcd(expected));
}

#[test]
fn policy_setting_selects_releases_alone() {
    assert_eq!(place("policy.source = \"releases\""), PolicyLocation::Releases);
    for (more, expected) in [
        ("folder = \"x\"", "policy comes from releases, or from a folder or etcd, not from both"),
        ("removal_hold = \"1s\"", "`removal_hold` has no effect on releases"),
        (
            "etcd.endpoints = [\"http://127.0.0.1:1\"]",
            "policy comes from releases, or from a folder or etcd, not from both",
        ),
    ] {
        let reported = findings(&format!("[policy]\nsource = \"releases\"\n{more}"));
        assert!(reported.len() == 1 && reported[0].contains(expected), "{reported:#?}");
    }
    let reported = findings("policy.source = \"release\"");
    assert!(reported[0].contains("there is no source of policy `release`"), "{reported:#?}");
}

#[test]
fn removal_hold_is_read_with_and_without_a_folder() {
    let settings = |text: &str| load_settings(text, "ironmesh.toml").unwrap();
    assert_eq!(settings("").removal_hold, Duration::from_secs(30));
    assert_eq!(settings("policy = \"rules\"").removal_hold, Duration::from_secs(30));
    let both = settings("[policy]\nfolder = \"rules\"\nremoval_hold = \"2m\"");
    assert_eq!(both.removal_hold, Duration::from_secs(120));
    assert_eq!(both.policy, Some(PolicyLocation::Folder("rules".into())));
    let alone = settings("[policy]\nremoval_hold = \"0s\"");
    assert_eq!((alone.removal_hold, alone.policy), (Duration::ZERO, None));
}

#[test]
fn inconsistent_etcd_settings_are_reported() {
    let here = "endpoints = [\"http://127.0.0.1:1\"]";
    for (text, expected) in [
        (
            format!("folder = \"x\"\n[policy.etcd]\n{here}"),
            "policy comes from a folder or from etcd",
        ),
        (
            format!("removal_hold = \"1s\"\n[policy.etcd]\n{here}"),
            "has no effect on policy in etcd",
        ),
        (String::new(), "`policy` sets none of `folder`, `etcd` and `source`"),
        ("[policy.etcd]".into(), "`policy.etcd` needs `endpoints`"),
        ("[policy.etcd]\nendpoints = []".into(), "`endpoints` must list one at least"),
        ("etcd.endpoints = [\"a:1\"]".into(), "`endpoints` must list `https://host:port`: `a:1`"),
        (
            "etcd.endpoints = [\"https://a:1/x\"]".into(),
            "`endpoints` must list `https://host:port`",
        ),
        ("etcd.endpoints = [\"https://a:1\"]".into(), "endpoints with `https` need `ca`"),
        ("etcd.endpoints = [\"https://a:1\", \"http://b:1\"]".into(), "`endpoints` must be all"),
        (format!("[policy.etcd]\n{here}\nca = \"x\""), "certificates are of no use"),
        (format!("[policy.etcd]\n{here}\nkey = \"x\""), "`policy.etcd` needs `certificate`"),
        (format!("[policy.etcd]\n{here}\nusername = \"x\""), "`policy.etcd` needs `password_file`"),
        (format!("[policy.etcd]\n{here}\npassword = \"x\""), "`policy.etcd` has no key `password`"),
        (format!("[policy.etcd]\n{here}\nprefix = \"/x/\""), "`prefix` must be a path"),
        (
            "etcd = { endpoints = [\"http://a:1\"], username = \"x\", password_file = \"y\" }"
                .into(),
            "the password would go over the network in the clear",
        ),
        (
            "etcd.endpoints = [\"http://a:1\"]".into(),
            "`endpoints` of `http` on another machine need `insecure = true`",
        ),
    ] {
        let reported = findings(&format!("[policy]\n{text}"));
        assert!(reported.len() == 1 && reported[0].contains(expected), "{text}\n{reported:#?}");
    }
}

#[test]
fn unknown_sidecar_class_is_an_error_with_its_position() {
    assert_eq!(
        findings("[sidecar]\nclass = \"envoi\"\n"),
        [
            "error[IM0105]: there is no sidecar class `envoi` (ironmesh.toml:2:9) / did you mean `envoy`?"
        ]
    );
}

#[test]
fn invalid_log_settings_are_errors_with_their_position() {
    let reported = findings("[log]\nlevel = \"loud\"\nformat = \"xml\"\n");
    let expected = [
        "error[IM0105]: `level` must be a level of the log: `loud` is no level; write a level",
        "error[IM0105]: there is no format of the log `xml`",
    ];
    assert_eq!(reported.len(), expected.len(), "{reported:#?}");
    for (reported, expected) in reported.iter().zip(expected) {
        assert!(reported.starts_with(expected), "{reported}");
    }
}
