//! The settings of a machine's own listeners, which `proxy bootstrap` and `agent join` share.

use std::net::IpAddr;

use clap::Args;
use ironmesh_agent::{ListenerSettings, UpstreamTarget};
use ironmesh_catalog::LogFolder;

/// The settings of a machine's own listeners.
#[derive(Debug, Args)]
pub struct ListenerArguments {
    /// Listen on this address instead of --address
    #[arg(long, value_name = "IP")]
    pub bind: Option<IpAddr>,
    /// Forward traffic to applications at this address [default: 127.0.0.1]
    #[arg(long, value_name = "IP")]
    pub app_address: Option<IpAddr>,
    /// Offer this service (`NS/NAME` or `NS/NAME:PORT`) or outside host (`api.example.com:443=14443`) on a local
    /// port; may be repeated
    #[arg(long = "upstream", value_name = "NS/NAME=PORT")]
    pub upstreams: Vec<UpstreamTarget>,
    /// Write file access logs to this folder on the proxy's machine [default: no file access logs]
    #[arg(long, value_name = "DIR")]
    pub access_log_dir: Option<LogFolder>,
    /// Open Envoy's admin interface to all local users, on loopback port 15000 [default: `admin.sock`, for Envoy's
    /// user only]
    #[arg(long)]
    pub admin_tcp: bool,
}

impl ListenerArguments {
    /// The settings of the listeners.
    pub fn settings(&self) -> ListenerSettings {
        ListenerSettings {
            bind: self.bind,
            app_address: self.app_address,
            upstreams: self.upstreams.clone(),
            access_log_dir: self.access_log_dir.clone(),
        }
    }
}
