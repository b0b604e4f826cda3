//! The source of policy in the settings: `policy = "FOLDER"`, the equivalent `[policy] folder = "FOLDER"`,
//! `[policy.etcd]`, or `[policy] source = "releases"`.

use std::path::PathBuf;
use std::time::Duration;

use ironmesh_catalog::Name;

use super::read_path;
use super::servers::{Servers, Tls, both};
use ironmesh_config_language::codes;
use ironmesh_config_language::duration;
use ironmesh_config_language::table::{FindingReported, Value};

const ETCD: Servers = Servers {
    who: "etcd",
    key: "endpoints",
    example: "https://etcd-1.example.com:2379",
    secret: "password",
};

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

/// How the control plane reaches etcd, and the prefix of its keys. Paths are as written, and no value is a
/// secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The endpoints: `http://host:port` or `https://host:port`, all with one scheme; at least one.
    pub endpoints: Vec<String>,
    /// The prefix of all keys of the policy: an absolute path without a slash at its end.
    pub prefix: String,
    /// The file of the authorities that issue etcd's certificates. It is set exactly if the endpoints are
    /// `https`.
    pub ca: Option<PathBuf>,
    /// The files of the certificate and key that the control plane presents to etcd.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user that the control plane logs in as, and the file of the password.
    pub user: Option<(String, PathBuf)>,
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
    let etcd = table.optional("etcd", |value| read_etcd(value, mesh));
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

fn read_etcd(value: Value<'_>, mesh: &Name) -> Result<EtcdSettings, FindingReported> {
    let mut table = value.table("`policy.etcd`")?;
    let endpoints = table.required("endpoints", |value| {
        value.at_least_one("`endpoints` must list one at least", |value| ETCD.read_url(value))
    });
    let prefix = table.optional("prefix", read_prefix);
    let tls = Tls::read(&mut table);
    let insecure = table.optional("insecure", Value::boolean);
    let username = table.optional("username", |value| value.string().map(str::to_owned));
    let password_file = table.optional("password_file", read_path);
    let user = both(&table, ("username", username), ("password_file", password_file));
    table.finish();
    let (endpoints, prefix, tls, user) = (endpoints?, prefix?, tls?, user?);
    let insecure = insecure?.unwrap_or(false);
    Ok(EtcdSettings {
        endpoints: ETCD.urls(value, endpoints, &tls, user.is_some(), insecure)?,
        prefix: prefix.unwrap_or_else(|| format!("/ironmesh/{mesh}/policy")),
        ca: tls.ca,
        identity: tls.identity,
        user,
    })
}

fn read_prefix(value: Value<'_>) -> Result<String, FindingReported> {
    let text = value.string()?;
    let is_path = text.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|part| !part.is_empty() && !part.contains(char::is_control))
    });
    if is_path {
        return Ok(text.to_owned());
    }
    let message =
        format!("`prefix` must be a path that begins with `/` and does not end so: `{text}`");
    let finding = value.error(codes::INVALID_VALUE, message).label("invalid path");
    Err(value.report(finding.help("write it as in `/ironmesh/production/policy`")))
}
