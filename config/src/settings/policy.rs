//! Where policy comes from, as the settings say it: `policy = "FOLDER"`, the same as
//! `[policy] folder = "FOLDER"`, or `[policy.etcd]`.

use std::net::IpAddr;
use std::path::PathBuf;

use ironmesh_catalog::Name;

use super::{authority, read_path};
use crate::codes;
use crate::table::{Table, Told, Value};

/// Where policy comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyPlace {
    /// A folder, by its path as written.
    Folder(PathBuf),
    /// etcd.
    Etcd(EtcdSettings),
}

/// How etcd is reached, and where in it policy is. Paths are as written, and no secret is in here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdSettings {
    /// `http://host:port` or `https://host:port`, all of one kind; one at least.
    pub endpoints: Vec<String>,
    /// What all keys of the policy begin with: an absolute path without a slash at its end.
    pub prefix: String,
    /// The file of the authorities that etcd's certificates are from. There is one just where the endpoints
    /// are `https`.
    pub ca: Option<PathBuf>,
    /// The files of the certificate and key by which etcd knows us.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user and the file of the password by which etcd knows us.
    pub user: Option<(String, PathBuf)>,
}

pub(super) fn read(value: Value<'_>, mesh: &Name) -> Result<PolicyPlace, Told> {
    if !value.is_table() {
        return read_path(value).map(PolicyPlace::Folder);
    }
    let mut table = value.table("`policy`")?;
    let folder = table.optional("folder", read_path);
    let etcd = table.optional("etcd", |value| read_etcd(value, mesh));
    table.finish();
    match (folder?, etcd?) {
        (Some(folder), None) => Ok(PolicyPlace::Folder(folder)),
        (None, Some(etcd)) => Ok(PolicyPlace::Etcd(etcd)),
        (Some(_), Some(_)) => {
            let message = "policy comes from a folder or from etcd, not from both";
            let help =
                "take one of them out; `ironmesh policy push FOLDER` brings a folder into etcd";
            Err(value.tell(value.error(codes::INVALID_VALUE, message).label("both").help(help)))
        }
        (None, None) => {
            let message = "`policy` says neither `folder` nor `etcd`";
            Err(value.tell(value.error(codes::MISSING_KEY, message).label("from where?")))
        }
    }
}

fn read_etcd(value: Value<'_>, mesh: &Name) -> Result<EtcdSettings, Told> {
    let mut table = value.table("`policy.etcd`")?;
    let endpoints = table.required("endpoints", |value| {
        value.at_least_one("`endpoints` must list one at least", |value| read_endpoint(value))
    });
    let prefix = table.optional("prefix", read_prefix);
    let ca = table.optional("ca", read_path);
    let certificate = table.optional("certificate", read_path);
    let key = table.optional("key", read_path);
    let username = table.optional("username", |value| value.string().map(str::to_owned));
    let password_file = table.optional("password_file", read_path);
    let identity = both(&table, ("certificate", certificate), ("key", key));
    let user = both(&table, ("username", username), ("password_file", password_file));
    let refuse = |message: &str, help: &str| {
        let finding = value.error(codes::INVALID_VALUE, message).label("in here");
        Err(value.tell(finding.help(help)))
    };
    table.finish();
    let (endpoints, prefix, ca) = (endpoints?, prefix?, ca?);
    let (identity, user) = (identity?, user?);
    let is_tls = endpoints.iter().all(|endpoint| endpoint.is_tls);
    if !is_tls && endpoints.iter().any(|endpoint| endpoint.is_tls) {
        return refuse(
            "`endpoints` must be all `https` or all `http`",
            "write all of them as `https`",
        );
    }
    if is_tls && ca.is_none() {
        let help = "name the file with the authorities that etcd's certificates are from: `ca = \"ca.pem\"`";
        return refuse("endpoints with `https` need `ca`", help);
    }
    if !is_tls && (ca.is_some() || identity.is_some()) {
        let help = "write the endpoints as `https://…`, or take `ca`, `certificate` and `key` out";
        return refuse("certificates are of no use with endpoints of `http`", help);
    }
    if !is_tls && user.is_some() && endpoints.iter().any(|endpoint| !endpoint.is_here) {
        let help = "let etcd listen with TLS, and write the endpoints as `https://…`";
        return refuse("the password would go over the network in the clear", help);
    }
    Ok(EtcdSettings {
        endpoints: endpoints.into_iter().map(|endpoint| endpoint.url).collect(),
        prefix: prefix.unwrap_or_else(|| format!("/ironmesh/{mesh}/policy")),
        ca,
        identity,
        user,
    })
}

/// Two keys of which neither means anything without the other.
fn both<A, B>(
    table: &Table<'_>,
    (first_key, first): (&'static str, Result<Option<A>, Told>),
    (second_key, second): (&'static str, Result<Option<B>, Told>),
) -> Result<Option<(A, B)>, Told> {
    match (first?, second?) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(table.missing(second_key)),
        (None, Some(_)) => Err(table.missing(first_key)),
    }
}

struct Endpoint {
    url: String,
    is_tls: bool,
    /// Whether it is on this machine.
    is_here: bool,
}

fn read_endpoint(value: Value<'_>) -> Result<Endpoint, Told> {
    let text = value.string()?;
    let read = || {
        let (scheme, rest) = text.split_once("://")?;
        let (host, _) = authority(rest)?;
        let is_tls = match scheme {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let is_here = host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        Some(Endpoint { url: text.to_owned(), is_tls, is_here })
    };
    read().ok_or_else(|| {
        let message = format!("`endpoints` must list `https://host:port`: `{text}`");
        let finding = value.error(codes::INVALID_VALUE, message).label("not `https://host:port`");
        value.tell(finding.help("write it as in `https://etcd-1.example.com:2379`"))
    })
}

fn read_prefix(value: Value<'_>) -> Result<String, Told> {
    let text = value.string()?;
    let is_path = text.strip_prefix('/').is_some_and(|rest| {
        rest.split('/').all(|part| !part.is_empty() && !part.contains(char::is_control))
    });
    if is_path {
        return Ok(text.to_owned());
    }
    let message =
        format!("`prefix` must be a path that begins with `/` and does not end so: `{text}`");
    let finding = value.error(codes::INVALID_VALUE, message).label("not such a path");
    Err(value.tell(finding.help("write it as in `/ironmesh/production/policy`")))
}
