//! The options of a proxy that a test enrolls.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use uuid::Uuid;

/// The options of a proxy to enroll.
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
    pub(crate) first_bootstrap: bool,
}

impl ProxyOptions {
    /// A proxy of `service` (`namespace/name`) at host `host` of the mesh. Its application is at
    /// the same address by default.
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
            first_bootstrap: false,
        }
    }

    /// Adds a further service.
    #[must_use]
    pub fn with_service(mut self, service: &str) -> Self {
        self.services.push(service.to_owned());
        self
    }

    /// Sets a listen address other than the address that peers dial.
    #[must_use]
    pub fn bind(mut self, host: u8) -> Self {
        self.bind = Some(host);
        self
    }

    /// Adds an upstream: `namespace/name=port`.
    #[must_use]
    pub fn upstream(mut self, upstream: &str) -> Self {
        self.upstreams.push(upstream.to_owned());
        self
    }

    /// Adds a label: `name=word`.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        self.labels.push(label.to_owned());
        self
    }

    /// Sets the Azure machine of the proxy.
    #[must_use]
    pub fn machine(mut self, vm_id: Uuid) -> Self {
        self.machine = Some(vm_id);
        self
    }

    /// Sets the locality of the proxy: `eu/1`.
    #[must_use]
    pub fn locality(mut self, locality: &str) -> Self {
        self.locality = Some(locality.to_owned());
        self
    }

    /// Allows access logs in this folder.
    #[must_use]
    pub fn access_log_dir(mut self, folder: &Path) -> Self {
        self.access_log_dir = Some(folder.to_owned());
        self
    }

    /// Puts Envoy's admin interface on a Unix socket, the default of operators, instead of TCP.
    #[must_use]
    pub fn admin_socket(mut self) -> Self {
        self.admin_socket = true;
        self
    }

    /// Sets the address of the application.
    #[must_use]
    pub fn app_address(mut self, address: IpAddr) -> Self {
        self.app_address = Some(address);
        self
    }

    /// Sets Envoy's drain time in seconds: how long connections of a changed listener may stay.
    #[must_use]
    pub fn drain_seconds(mut self, seconds: u32) -> Self {
        self.drain_seconds = seconds;
        self
    }

    /// Sets the DNS server of Envoy.
    #[must_use]
    pub fn name_server(mut self, address: SocketAddr) -> Self {
        self.name_server = Some(address);
        self
    }

    /// Selects the state-of-the-world variant of xDS.
    #[must_use]
    pub fn sotw(mut self) -> Self {
        self.sotw = true;
        self
    }

    /// Selects the bootstrap from before there were versions: without the runtime layer for
    /// withdrawals.
    #[must_use]
    pub fn first_bootstrap(mut self) -> Self {
        self.first_bootstrap = true;
        self
    }

    /// The name of the proxy's folder and log.
    pub(crate) fn name(&self) -> String {
        let mut services = self.services.join("+").replace('/', "-");
        // File names have at most 255 bytes; the host distinguishes proxies.
        services.truncate(200);
        format!("{services}-{}", self.host)
    }
}
