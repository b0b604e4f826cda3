//! The source of policy in the settings: `policy = "FOLDER"`, the equivalent `[policy] folder = "FOLDER"`,
//! `[policy.etcd]`, or `[policy] source = "releases"`.

use std::path::PathBuf;
use std::time::Duration;

use ironmesh_catalog::Name;

use super::etcd::{self, EtcdSettings};
use super::read_path;
use ironmesh_config_language::codes;
use ironmesh_config_language::duration;
use ironmesh_config_language::table::{FindingReported, Value};

/// The source of policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyLocation {
    /// A folder, by its path as written.
    Folder(PathBuf),
    /// etcd.
    Etcd(EtcdSettings),
    /// The releases in the state folder, which `ironmesh policy apply` makes.
    Releases,
}

/// The content of the setting `policy`.
#[derive(Debug, Default)]
pub(super) struct PolicySettings {
    /// The source of policy, if it is given.
    pub(super) place: Option<PolicyLocation>,
    /// How long a large removal from the folder is held back, if it is given.
    pub(super) removal_hold: Option<Duration>,
}

pub(super) fn read(value: Value<'_>, mesh: &Name) -> Result<PolicySettings, FindingReported> {
    if !value.is_table() {
        let place = Some(PolicyLocation::Folder(read_path(value)?));
        return Ok(PolicySettings { place, removal_hold: None });
    }
    let mut table = value.table("`policy`")?;
    let folder = table.optional("folder", read_path);
    let etcd = table.optional("etcd", |value| {
        etcd::read(value, "`policy.etcd`", || format!("/ironmesh/{mesh}/policy"))
    });
    let source =
        table.optional("source", |value| value.word("source of policy", &[("releases", ())]));
    let range = Duration::ZERO..=Duration::from_secs(24 * 60 * 60);
    let removal_hold = table.optional("removal_hold", |value| duration::read(value, &range));
    table.finish();
    let place = match (folder?, etcd?, source?) {
        (Some(folder), None, None) => Some(PolicyLocation::Folder(folder)),
        (None, Some(etcd), None) => Some(PolicyLocation::Etcd(etcd)),
        (None, None, Some(())) => Some(PolicyLocation::Releases),
        (None, None, None) => None,
        (_, _, Some(())) => {
            let message = "policy comes from releases, or from a folder or etcd, not from both";
            let help = "remove `source`, or remove `folder` and `etcd`; `ironmesh policy apply FOLDER` \
                        makes a release of a folder";
            let finding = value.error(codes::INVALID_VALUE, message).label("both").help(help);
            return Err(value.report(finding));
        }
        (Some(_), Some(_), None) => {
            let message = "policy comes from a folder or from etcd, not from both";
            let help =
                "remove one of them; `ironmesh policy push FOLDER` brings a folder into etcd";
            let finding = value.error(codes::INVALID_VALUE, message).label("both").help(help);
            return Err(value.report(finding));
        }
    };
    let removal_hold = removal_hold?;
    match place {
        None if removal_hold.is_none() => {
            let message = "`policy` sets none of `folder`, `etcd` and `source`";
            Err(value.report(value.error(codes::MISSING_KEY, message).label("from where?")))
        }
        Some(PolicyLocation::Etcd(_)) if removal_hold.is_some() => {
            let message = "`removal_hold` has no effect on policy in etcd";
            let help = "remove it: `ironmesh policy push` is deliberate, and is never held back";
            let finding = value.error(codes::INVALID_VALUE, message).label("policy in etcd");
            Err(value.report(finding.help(help)))
        }
        Some(PolicyLocation::Releases) if removal_hold.is_some() => {
            let message = "`removal_hold` has no effect on releases";
            let help = "remove it: `ironmesh policy apply` is deliberate, and is never held back";
            let finding = value.error(codes::INVALID_VALUE, message).label("releases");
            Err(value.report(finding.help(help)))
        }
        place => Ok(PolicySettings { place, removal_hold }),
    }
}
