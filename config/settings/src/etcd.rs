//! The connection to etcd in the settings: `[policy.etcd]` and `[store.etcd]`.

use std::path::PathBuf;

use super::read_path;
use super::servers::{Servers, Tls, both};
use ironmesh_config_language::codes;
use ironmesh_config_language::table::{FindingReported, Value};

const ETCD: Servers = Servers {
    who: "etcd",
    key: "endpoints",
    example: "https://etcd-1.example.com:2379",
    secret: "password",
};

/// How the control plane reaches etcd, and the prefix of its keys. Paths are as written, and no value is a
/// secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// The endpoints: `http://host:port` or `https://host:port`, all with one scheme; at least one.
    pub endpoints: Vec<String>,
    /// The prefix of all keys: an absolute path without a slash at its end.
    pub prefix: String,
    /// The file of the authorities that issue etcd's certificates. It is set exactly if the endpoints are
    /// `https`.
    pub ca: Option<PathBuf>,
    /// The files of the certificate and key that the control plane presents to etcd.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user that the control plane logs in as, and the file of the password.
    pub user: Option<(String, PathBuf)>,
}

/// Reads the table with this name. `default_prefix` is that of the keys.
pub(super) fn read(
    value: Value<'_>,
    name: &'static str,
    default_prefix: impl FnOnce() -> String,
) -> Result<EtcdSettings, FindingReported> {
    let mut table = value.table(name)?;
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
        prefix: prefix.unwrap_or_else(default_prefix),
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
