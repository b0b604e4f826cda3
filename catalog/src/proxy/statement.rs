//! The statement of a proxy: what its node metadata says of its own machine.
//!
//! A statement shapes the proxy's own resources and nothing else. A reader ignores fields that it does not
//! know and reports them, because a bootstrap may be newer than the control plane.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::HostUpstream;
use crate::name::ServiceName;

/// What a proxy says of itself in its node metadata. It shapes its own resources and nothing else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProxyStatement {
    /// The address on which it listens for the mesh; that of its join record where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<IpAddr>,
    /// Where its applications listen; 127.0.0.1 where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub app_address: Option<IpAddr>,
    /// The services that its applications call by a local port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstreams: Vec<Upstream>,
    /// The hosts outside of the mesh that its applications call by a local port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostUpstream>,
    /// The fields that the proxy states and this version does not know, for a finding. They are escaped.
    #[serde(skip)]
    pub unknown: Vec<String>,
}

impl ProxyStatement {
    /// The names of the fields that this version reads.
    pub const FIELDS: &[&str] = &["bind", "app_address", "upstreams", "hosts"];
}

/// A local port that stands for a service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Upstream {
    /// The service.
    pub service: ServiceName,
    /// Which of its ports; its only one where left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The port on which the proxy listens for the application.
    pub local_port: u16,
}

impl Upstream {
    /// The names of the fields that this version reads.
    pub const FIELDS: &[&str] = &["service", "port", "local_port"];
}
