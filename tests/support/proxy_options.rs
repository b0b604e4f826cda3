//! What a test says of a proxy that is to join its mesh.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// A proxy that is to join.
#[derive(Debug, Clone)]
pub struct ProxyOptions {
    pub(crate) services: Vec<String>,
    pub(crate) host: u8,
    pub(crate) bind: Option<u8>,
    pub(crate) upstreams: Vec<String>,
    pub(crate) labels: Vec<String>,
    pub(crate) locality: Option<String>,
    pub(crate) access_log_dir: Option<PathBuf>,
    pub(crate) admin_socket: bool,
    pub(crate) app_address: Option<IpAddr>,
    pub(crate) machine: Option<Uuid>,
    pub(crate) drain_seconds: u32,
    pub(crate) sotw: bool,
    pub(crate) name_server: Option<SocketAddr>,
}

impl ProxyOptions {
    /// One of `service` (as `namespace/name`), at host `host` of the mesh's addresses. Its
    /// application is at the same address, unless said otherwise.
    pub fn new(service: &str, host: u8) -> Self {
        Self {
            services: vec![service.to_owned()],
            host,
            bind: None,
            upstreams: Vec::new(),
            labels: Vec::new(),
            locality: None,
            access_log_dir: None,
            admin_socket: false,
            app_address: None,
            machine: None,
            drain_seconds: 30,
            sotw: false,
            name_server: None,
        }
    }

    /// Lets it serve a further service.
    #[must_use]
    pub fn with_service(mut self, service: &str) -> Self {
        self.services.push(service.to_owned());
        self
    }

    /// Lets it listen at another host of the mesh's addresses than where others dial it.
    #[must_use]
    pub fn bind(mut self, host: u8) -> Self {
        self.bind = Some(host);
        self
    }

    /// Gives it a local port for a service: `namespace/name=port`.
    #[must_use]
    pub fn upstream(mut self, upstream: &str) -> Self {
        self.upstreams.push(upstream.to_owned());
        self
    }

    /// Says something of it: `name=word`.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.labels.push(label.to_owned());
        self
    }

    /// Says on which machine of Azure it is.
    #[must_use]
    pub fn machine(mut self, vm_id: Uuid) -> Self {
        self.machine = Some(vm_id);
        self
    }

    /// Says in which place it is: `eu/1`.
    #[must_use]
    pub fn locality(mut self, locality: &str) -> Self {
        self.locality = Some(locality.to_owned());
        self
    }

    /// Allows access logs of policy in this folder.
    #[must_use]
    pub fn access_log_dir(mut self, folder: &Path) -> Self {
        self.access_log_dir = Some(folder.to_owned());
        self
    }

    /// Puts its Envoy's admin interface on the socket that operators have, and not on TCP as tests do.
    #[must_use]
    pub fn admin_socket(mut self) -> Self {
        self.admin_socket = true;
        self
    }

    /// Says where its application is.
    #[must_use]
    pub fn app_address(mut self, address: IpAddr) -> Self {
        self.app_address = Some(address);
        self
    }

    /// Lets its Envoy end connections so many seconds after what they came in by has changed.
    #[must_use]
    pub fn drain_seconds(mut self, seconds: u32) -> Self {
        self.drain_seconds = seconds;
        self
    }

    /// Lets its Envoy ask this name server.
    #[must_use]
    pub fn name_server(mut self, address: SocketAddr) -> Self {
        self.name_server = Some(address);
        self
    }

    /// Lets its Envoy use the state-of-the-world variant of xDS.
    #[must_use]
    pub fn sotw(mut self) -> Self {
        self.sotw = true;
        self
    }

    /// Names its folder and its log.
    pub(crate) fn name(&self) -> String {
        let mut services = self.services.join("+").replace('/', "-");
        // A file has 255 bytes for its name; the host tells proxies apart.
        services.truncate(200);
        format!("{services}-{}", self.host)
    }
}
