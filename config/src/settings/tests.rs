use super::*;

fn findings(text: &str) -> Vec<String> {
    let findings = load_settings(text, "ironmesh.toml").unwrap_err();
    let help = |f: &Finding| f.help.as_ref().map_or(String::new(), |help| format!(" / {help}"));
    findings.iter().map(|finding| format!("{finding}{}", help(finding))).collect()
}

#[test]
fn an_empty_file_has_the_defaults_of_the_design() {
    let settings = load_settings("", "ironmesh.toml").unwrap();
    assert_eq!(settings, Settings::default());
    assert_eq!(settings.listen.xds.to_string(), "0.0.0.0:15128");
    assert_eq!(settings.listen.admin.to_string(), "127.0.0.1:15014");
    assert_eq!(settings.certificates.service_lifetime, Duration::from_secs(86_400));
    assert_eq!(settings.trust_domain.as_str(), "mesh.internal");
    assert_eq!(settings.xds.max_connection_age, None);
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
"#;
    let settings = load_settings(text, "ironmesh.toml").unwrap();
    assert_eq!(settings.mesh.as_str(), "prod");
    assert_eq!(settings.trust_domain.as_str(), "mesh.example.com");
    assert_eq!(settings.state, Some("/var/lib/ironmesh".into()));
    assert_eq!(settings.advertise.len(), 2);
    assert_eq!(settings.listen.admin.port(), 15014);
    assert_eq!(settings.certificates.service_lifetime, Duration::from_secs(5400));
    assert_eq!(settings.settle, Duration::from_millis(100));
    assert_eq!(settings.xds.max_connection_age, Some(Duration::from_secs(3600)));
}

#[test]
fn all_that_is_wrong_is_told_at_once() {
    let text = "meshh = \"prod\"\ndomain = \"Mesh..x\"\nmode = \"audits\"\nstate = 1\n\
                advertise = [\"cp\", \"cp:0\"]\n[listen]\nxds = \"15128\"\nadmin = \"0.0.0.0:15014\"\n";
    let told = findings(text);
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
    assert_eq!(told.len(), expected.len(), "{told:#?}");
    for (told, expected) in told.iter().zip(expected) {
        assert!(told.starts_with(expected), "{told}");
    }
}

#[test]
fn syntax_errors_are_told_with_their_place() {
    let told = findings("mesh = prod\nmode = \n");
    assert!(told.len() >= 2, "{told:#?}");
    assert!(told.iter().all(|line| line.starts_with("error[IM0101]")), "{told:#?}");
}

#[test]
fn a_lifetime_is_a_duration_within_bounds() {
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
    let told = findings("certificates.service_lifetime = \"1m\"");
    assert!(told[0].contains("must be from 5m to 30d: `1m`"), "{told:#?}");
}
