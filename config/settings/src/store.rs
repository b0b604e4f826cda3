//! The place of the state that all control planes of a mesh share: `[store]`.

use ironmesh_catalog::Name;
use ironmesh_config_language::codes;
use ironmesh_config_language::table::{FindingReported, Value};

use super::etcd::{self, EtcdSettings};

/// The place of the state that all control planes of a mesh share.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum StoreLocation {
    /// The state folder: the mesh has one control plane.
    #[default]
    Embedded,
    /// etcd, with mutual TLS: the control planes of the mesh are replicas.
    Etcd(EtcdSettings),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Embedded,
    Etcd,
}

pub(super) fn read(value: Value<'_>, mesh: &Name) -> Result<StoreLocation, FindingReported> {
    const KINDS: [(&str, Kind); 2] = [("embedded", Kind::Embedded), ("etcd", Kind::Etcd)];
    let mut table = value.table("`store`")?;
    let kind = table.required("kind", |value| value.word("kind of store", &KINDS));
    let etcd = table.optional("etcd", |value| {
        let etcd = etcd::read(value, "`store.etcd`", || format!("/ironmesh/{mesh}"))?;
        if etcd.ca.is_some() && etcd.identity.is_some() {
            return Ok(etcd);
        }
        let message = "`[store.etcd]` needs `ca`, `certificate` and `key`";
        let help = "the state of a mesh has private keys, and who can write it controls the mesh: let etcd listen with \
                    TLS and `--client-cert-auth`, and give the control planes a user of etcd of their own";
        let finding = value.error(codes::MISSING_KEY, message).label("mutual TLS is mandatory");
        Err(value.report(finding.help(help)))
    });
    let decide = || match (kind?, etcd?) {
        (Kind::Embedded, None) => Ok(StoreLocation::Embedded),
        (Kind::Etcd, Some(etcd)) => Ok(StoreLocation::Etcd(etcd)),
        (Kind::Etcd, None) => Err(table.missing("etcd")),
        (Kind::Embedded, Some(_)) => {
            let message = "`[store.etcd]` has no effect on a store of the kind `embedded`";
            let finding = value.error(codes::INVALID_VALUE, message).label("embedded store");
            Err(value.report(finding.help("set `kind = \"etcd\"`, or remove `[store.etcd]`")))
        }
    };
    let store = decide();
    table.finish();
    store
}
