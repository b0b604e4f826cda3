//! The options of a connection to etcd.

use std::path::PathBuf;

/// The options of a connection to a cluster, with the prefix of the keys in use. No value is a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    /// The section of the settings with these options, such as `[policy.etcd]`, for errors.
    pub section: &'static str,
    /// The endpoints: `http://host:port` or `https://host:port`, all with one scheme; at least one.
    pub endpoints: Vec<String>,
    /// The prefix of all keys: an absolute path without a slash at its end.
    pub prefix: String,
    /// The file of the authorities that issue etcd's certificates. It is set exactly if the endpoints are
    /// `https`.
    pub ca: Option<PathBuf>,
    /// The files of the certificate and key that the client presents.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user that the client logs in as, and the file of the password.
    pub user: Option<(String, PathBuf)>,
}
