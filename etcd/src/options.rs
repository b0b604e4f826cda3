//! How etcd is reached.

use std::path::PathBuf;

/// How a cluster is reached, and the part of its keys that is used. No secret is in here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdOptions {
    /// `http://host:port` or `https://host:port`, all of one kind; one at least.
    pub endpoints: Vec<String>,
    /// What all keys begin with: an absolute path without a slash at its end.
    pub prefix: String,
    /// The file of the authorities that etcd's certificates are from. There is one just where the endpoints
    /// are `https`.
    pub ca: Option<PathBuf>,
    /// The files of the certificate and key by which etcd knows us.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The user and the file of the password by which etcd knows us.
    pub user: Option<(String, PathBuf)>,
}
