//! The workload: the record of a proxy as its machine knows it.

use std::net::IpAddr;
use std::path::PathBuf;

use ironmesh_catalog::proxy::local_address;
use ironmesh_catalog::{DriverName, NodeMetadata, ProxyId, ProxyName, ServiceName, SpiffeId};
use serde::{Deserialize, Serialize};

/// The record of an enrolled proxy as its machine knows it: the input of a [`SidecarDriver`](crate::SidecarDriver).
///
/// A reader ignores unknown fields: the folder may be of a newer version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// The sidecar driver.
    #[serde(default)]
    pub driver: DriverName,
    /// The proxy.
    pub id: ProxyId,
    /// Its name, for people.
    pub name: ProxyName,
    /// Its first service, whose account identifies it when it calls others.
    pub service: ServiceName,
    /// Its further services.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_services: Vec<ServiceName>,
    /// The address to which callers connect.
    pub address: IpAddr,
    /// Its node metadata.
    #[serde(default)]
    pub metadata: NodeMetadata,
    /// The access to the admin interface of its sidecar.
    #[serde(default)]
    pub admin: Admin,
    /// Host and port of each replica of the control plane.
    pub control_plane: Vec<(String, u16)>,
    /// The SPIFFE ID that the control plane must present.
    pub control_plane_id: SpiffeId,
    /// The folder of its files. It is where the record was read: a folder may be moved.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// The access to the admin interface of a sidecar.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Admin {
    /// A socket in the folder of the proxy, which only its user may open.
    #[default]
    Socket,
    /// A port at the local address: every user of the machine may change the proxy.
    Tcp,
}

impl Workload {
    /// The address of the sidecar's listeners for its own machine.
    pub fn local_address(&self) -> IpAddr {
        local_address(self.metadata.bind.unwrap_or(self.address))
    }
}
