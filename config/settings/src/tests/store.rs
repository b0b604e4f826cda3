//! `[store]`.

use super::*;

const ETCD: &str =
    "[store]\nkind = \"etcd\"\n[store.etcd]\nendpoints = [\"https://etcd-1.example:2379\"]\n";

fn store(text: &str) -> StoreLocation {
    load_settings(text, "ironmesh.toml").unwrap().store
}

#[test]
fn store_is_embedded_unless_etcd_is_chosen() {
    for text in ["", "[store]\nkind = \"embedded\""] {
        assert_eq!(store(text), StoreLocation::Embedded);
    }
    let tls = "ca = \"ca.pem\"\ncertificate = \"c.pem\"\nkey = \"c.key\"\n";
    let settings =
        load_settings(&format!("mesh = \"prod\"\n{ETCD}{tls}"), "ironmesh.toml").unwrap();
    let expected = EtcdSettings {
        endpoints: vec!["https://etcd-1.example:2379".to_owned()],
        prefix: "/ironmesh/prod".to_owned(),
        ca: Some("/etc/ca.pem".into()),
        identity: Some(("/etc/c.pem".into(), "/etc/c.key".into())),
        user: None,
    };
    let settings = settings.with_paths_below(std::path::Path::new("/etc"));
    assert_eq!(settings.store, StoreLocation::Etcd(expected));
}

#[test]
fn store_in_etcd_requires_mutual_tls() {
    let needs = "error[IM0103]: `[store.etcd]` needs `ca`, `certificate` and `key`";
    for tls in ["ca = \"ca.pem\"\n", "ca = \"ca.pem\"\nusername = \"u\"\npassword_file = \"p\"\n"] {
        let found = findings(&format!("{ETCD}{tls}"));
        assert!(found.len() == 1 && found[0].starts_with(needs), "{found:?}");
    }
    let plaintext = ETCD.replace("https://etcd-1.example", "http://127.0.0.1");
    let found = findings(&plaintext);
    assert!(found.len() == 1 && found[0].starts_with(needs), "also on this machine: {found:?}");
}

#[test]
fn contradicting_store_settings_are_errors() {
    for (text, expected) in [
        ("[store]", "error[IM0103]: `store` needs `kind`"),
        ("[store]\nkind = \"redis\"", "error[IM0105]: there is no kind of store `redis`"),
        ("[store]\nkind = \"etcd\"", "error[IM0103]: `store` needs `etcd`"),
    ] {
        let found = findings(text);
        assert!(found.len() == 1 && found[0].starts_with(expected), "{found:?}");
    }
    let tls = "ca = \"ca.pem\"\ncertificate = \"c.pem\"\nkey = \"c.key\"\n";
    let both = format!("{ETCD}{tls}").replace("\"etcd\"", "\"embedded\"");
    let found = findings(&both);
    assert!(
        found.len() == 1 && found[0].contains("has no effect on a store of the kind"),
        "{found:?}"
    );
}

#[test]
fn connection_age_is_limited_with_a_store_in_etcd() {
    let tls = "ca = \"ca.pem\"\ncertificate = \"c.pem\"\nkey = \"c.key\"\n";
    let age = |text: &str| load_settings(text, "ironmesh.toml").unwrap().max_connection_age();
    assert_eq!(age(""), None);
    assert_eq!(age(&format!("{ETCD}{tls}")), Some(Duration::from_secs(300)));
    let set = "xds = { max_connection_age = \"1h\" }\n";
    assert_eq!(age(&format!("{set}{ETCD}{tls}")), Some(Duration::from_secs(3600)));
}
