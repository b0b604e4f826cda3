//! Node metadata: what a proxy reports about its own machine.
//!
//! Node metadata affects only the proxy's own resources. A reader ignores and reports unknown fields, because a
//! bootstrap may be newer than the control plane.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Component, Path};
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::HostUpstream;
use crate::name::{InvalidName, ServiceName};

/// The node metadata of a proxy. It affects only its own resources.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct NodeMetadata {
    /// The address on which it listens for the mesh. Default: that of its join record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
    /// The address of its applications. Default: 127.0.0.1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_address: Option<IpAddr>,
    /// The services that its applications call at a local port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<Upstream>,
    /// The hosts outside the mesh that its applications call at a local port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostUpstream>,
    /// The folder for access logs on its machine. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_log_dir: Option<LogFolder>,
    /// Where it gets its service certificates from.
    #[serde(default, skip_serializing_if = "CertificateSource::is_default")]
    pub certificates: CertificateSource,
    /// The version of its bootstrap: what its Envoy can do besides reading resources. Default: 0, a bootstrap from before
    /// there were versions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub bootstrap_version: u32,
    /// The addresses of the control plane in its bootstrap, each as `host:port`. Default: none, a bootstrap that does not
    /// say it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub control_plane: Vec<String>,
    /// The unknown fields that the proxy reports, escaped, for a finding.
    #[serde(skip)]
    pub unknown: Vec<String>,
}

impl NodeMetadata {
    /// The names of the fields that this version reads.
    pub const FIELDS: &[&str] = &[
        "bind",
        "app_address",
        "upstreams",
        "hosts",
        "access_log_dir",
        "certificates",
        "bootstrap_version",
        "control_plane",
    ];

    /// The version of bootstraps written now. Version 1 added the runtime layer for withdrawals and internal listeners,
    /// version 2 health discovery for Envoys without an agent.
    pub const BOOTSTRAP_VERSION: u32 = 2;

    /// Whether a withdrawal from a TCP port can end only the withdrawn caller's connections (docs/decisions/0079).
    pub fn ends_single_callers(&self) -> bool {
        self.bootstrap_version >= 1
    }

    /// The address of the control plane, if the bootstrap has only this one. A host name may lead to several control
    /// planes, so it is none.
    pub fn only_address(&self) -> Option<SocketAddr> {
        match &self.control_plane[..] {
            [only] => only.parse().ok(),
            _ => None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(version: &u32) -> bool {
    *version == 0
}

/// Where a proxy gets its service certificates from.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Serialize,
    Deserialize,
    ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CertificateSource {
    /// From the control plane, with its other resources: all proxies of an account share one certificate.
    #[default]
    Ads,
    /// From the agent of its machine, which creates the key: each proxy has certificates of its own. The bootstrap has a
    /// cluster for the agent's socket.
    Agent,
}

impl CertificateSource {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A local port for a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Upstream {
    /// The service.
    pub service: ServiceName,
    /// The port of the service. Default: its only port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The port on which the proxy listens for the application.
    pub local_port: u16,
}

impl Upstream {
    /// The names of the fields that this version reads.
    pub const FIELDS: &[&str] = &["service", "port", "local_port"];
}

/// A folder of a proxy's machine for access logs: an absolute path without `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LogFolder(Arc<str>);

impl LogFolder {
    /// The most bytes of a path on Linux.
    const MAX: usize = 4096;

    /// The folder that a forecast assumes for a proxy that is not enrolled yet.
    pub fn assumed() -> Self {
        Self("/var/log/ironmesh".into())
    }

    /// The path of the file `name` in it.
    pub fn file(&self, name: &str) -> String {
        format!("{}/{name}", self.0.trim_end_matches('/'))
    }
}

impl FromStr for LogFolder {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| Err(InvalidName { text: text.to_owned(), problem });
        let path = Path::new(text);
        if !path.is_absolute() {
            return invalid("is not an absolute path");
        }
        if path.components().any(|part| part == Component::ParentDir) {
            return invalid("has `..` in it");
        }
        if text.len() > Self::MAX || text.contains(char::is_control) {
            return invalid("is longer than 4096 bytes or has control characters");
        }
        Ok(Self(text.into()))
    }
}

impl fmt::Display for LogFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for LogFolder {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<LogFolder> for String {
    fn from(folder: LogFolder) -> Self {
        folder.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_address_is_an_ip_address_without_others() {
        let only = |addresses: &[&str]| {
            let control_plane = addresses.iter().map(ToString::to_string).collect();
            NodeMetadata { control_plane, ..NodeMetadata::default() }.only_address()
        };
        assert_eq!(only(&["10.0.0.1:15128"]), "10.0.0.1:15128".parse().ok());
        assert_eq!(only(&["[fd00::1]:15128"]), "[fd00::1]:15128".parse().ok());
        for several in [&[][..], &["cp.example:15128"], &["10.0.0.1:15128", "10.0.0.2:15128"]] {
            assert_eq!(only(several), None, "{several:?}");
        }
    }

    #[test]
    fn log_folder_is_an_absolute_path_without_parents() {
        for (folder, file) in
            [("/var/log/x", "/var/log/x/a.log"), ("/x/", "/x/a.log"), ("/", "/a.log")]
        {
            assert_eq!(folder.parse::<LogFolder>().unwrap().file("a.log"), file);
        }
        for bad in ["", "log", "./log", "/var/../etc", "/var/log\n"] {
            bad.parse::<LogFolder>().unwrap_err();
        }
        format!("/{}", "x".repeat(4096)).parse::<LogFolder>().unwrap_err();
    }
}
