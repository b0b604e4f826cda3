//! Servers that the control plane queries: their addresses, and the files for mutual authentication.

use std::net::IpAddr;
use std::path::PathBuf;

use super::{authority, read_path};
use ironmesh_config_language::codes;
use ironmesh_config_language::table::{FindingReported, Table, Value};

/// How findings name servers of one kind.
pub(super) struct Servers {
    /// The product.
    pub(super) who: &'static str,
    /// The key that lists the servers.
    pub(super) key: &'static str,
    /// The address of one server, as an example.
    pub(super) example: &'static str,
    /// The secret by which the control plane may authenticate.
    pub(super) secret: &'static str,
}

/// The address of one server.
pub(super) struct Url {
    text: String,
    is_tls: bool,
    /// Whether the server is on this machine.
    is_here: bool,
}

/// Whether this is the address of a server.
pub(super) fn is_url(text: &str) -> bool {
    read(text).is_some()
}

/// Whether one of the addresses that [`Servers::urls`] accepted is reached in plaintext over the network.
pub(super) fn is_plaintext_over_network(urls: &[String]) -> bool {
    let is_plaintext = |url: &String| read(url).is_some_and(|url| !url.is_tls && !url.is_here);
    urls.iter().any(is_plaintext)
}

fn read(text: &str) -> Option<Url> {
    let (scheme, rest) = text.split_once("://")?;
    let (host, _) = authority(rest)?;
    let is_tls = match scheme {
        "https" => true,
        "http" => false,
        _ => return None,
    };
    let is_loopback = host.parse().is_ok_and(|address: IpAddr| address.is_loopback());
    let is_here = host == "localhost" || is_loopback;
    Some(Url { text: text.to_owned(), is_tls, is_here })
}

/// The files for mutual authentication.
pub(super) struct Tls {
    /// The authorities that issue the servers' certificates.
    pub(super) ca: Option<PathBuf>,
    /// The control plane's certificate and its key.
    pub(super) identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Reads `ca`, `certificate` and `key`.
    pub(super) fn read(table: &mut Table<'_>) -> Result<Self, FindingReported> {
        let ca = table.optional("ca", read_path);
        let certificate = table.optional("certificate", read_path);
        let key = table.optional("key", read_path);
        let identity = both(table, ("certificate", certificate), ("key", key));
        Ok(Self { ca: ca?, identity: identity? })
    }
}

impl Servers {
    /// Reads the address of one server.
    pub(super) fn read_url(&self, value: Value<'_>) -> Result<Url, FindingReported> {
        let text = value.string()?;
        read(text).ok_or_else(|| {
            let message = format!("`{}` must list `https://host:port`: `{text}`", self.key);
            let finding = value.error(codes::INVALID_VALUE, message);
            let finding = finding.label("not `https://host:port`");
            value.report(finding.help(format!("write it as in `{}`", self.example)))
        })
    }

    /// Checks that the addresses in `value` fit the other keys, and returns them.
    pub(super) fn urls(
        &self,
        value: Value<'_>,
        urls: Vec<Url>,
        tls: &Tls,
        has_secret: bool,
        allows_plaintext: bool,
    ) -> Result<Vec<String>, FindingReported> {
        let Self { who, key, secret, .. } = self;
        let reject = |message: String, help: String| {
            let finding = value.error(codes::INVALID_VALUE, message).label("in here");
            Err(value.report(finding.help(help)))
        };
        let is_tls = urls.iter().all(|url| url.is_tls);
        if !is_tls && urls.iter().any(|url| url.is_tls) {
            let message = format!("`{key}` must be all `https` or all `http`");
            return reject(message, "write all of them as `https`".to_owned());
        }
        if is_tls && tls.ca.is_none() {
            let help = format!(
                "name the file with the authorities that {who}'s certificates are from: `ca = \"ca.pem\"`"
            );
            return reject(format!("{key} with `https` need `ca`"), help);
        }
        if !is_tls && (tls.ca.is_some() || tls.identity.is_some()) {
            let help =
                format!("write the {key} as `https://…`, or remove `ca`, `certificate` and `key`");
            return reject(format!("certificates are of no use with {key} of `http`"), help);
        }
        if !is_tls && has_secret && urls.iter().any(|url| !url.is_here) {
            let help = format!("let {who} listen with TLS, and write the {key} as `https://…`");
            return reject(format!("the {secret} would go over the network in the clear"), help);
        }
        if !is_tls && !allows_plaintext && urls.iter().any(|url| !url.is_here) {
            let message = format!("`{key}` of `http` on another machine need `insecure = true`");
            let help = format!(
                "let {who} listen with TLS, and write the {key} as `https://…`: in the clear everyone on \
                 the network can read and change what {who} answers"
            );
            return reject(message, help);
        }
        Ok(urls.into_iter().map(|url| url.text).collect())
    }
}

/// Reads two keys, each of which requires the other.
pub(super) fn both<A, B>(
    table: &Table<'_>,
    (first_key, first): (&'static str, Result<Option<A>, FindingReported>),
    (second_key, second): (&'static str, Result<Option<B>, FindingReported>),
) -> Result<Option<(A, B)>, FindingReported> {
    match (first?, second?) {
        (Some(first), Some(second)) => Ok(Some((first, second))),
        (None, None) => Ok(None),
        (Some(_), None) => Err(table.missing(second_key)),
        (None, Some(_)) => Err(table.missing(first_key)),
    }
}
