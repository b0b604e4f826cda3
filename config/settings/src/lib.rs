//! The settings of the control plane, `ironmesh.toml`.
//!
//! Pure: it turns text into settings or findings, and reads no file. Omitted settings have the defaults of
//! docs/reference/settings.md.

mod azure;
mod consul;
mod endpoints;
mod etcd;
mod log;
mod paths;
mod policy;
mod reload;
mod risks;
mod servers;
mod sidecar;
mod store;
#[cfg(test)]
mod tests;
mod traces;
mod values;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ironmesh_catalog::{Domain, DriverName, EgressMode, Finding, Mode, Name, TrustDomain};

use ironmesh_config_language::Document;
use ironmesh_config_language::codes;
use ironmesh_config_language::duration;
use ironmesh_config_language::mode;
use ironmesh_config_language::syntax;
use ironmesh_config_language::table::{FindingReported, Table, Value};

pub use azure::{AttestationSettings, AzureCloudSetting, AzureCredentialSetting, AzureSettings};
pub use consul::{ConsulSettings, LocalityKeySettings};
pub use endpoints::EndpointsSettings;
pub use etcd::EtcdSettings;
pub use log::LogSettings;
pub use policy::PolicyLocation;
pub use reload::{ChangedKeys, ReloadableSettings};
pub use store::StoreLocation;
pub use values::SettingValue;

/// The settings of the control plane.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The name of the mesh.
    pub mesh: Name,
    /// The domain of the hostnames of services.
    pub domain: Domain,
    /// The trust domain; by default the domain.
    pub trust_domain: TrustDomain,
    /// The default mode of services: the treatment of calls that no policy allows.
    pub mode: Mode,
    /// The default treatment of calls out of the mesh that no policy allows, for namespaces that set none.
    pub egress: EgressMode,
    /// The folder of persistent state. Paths are as written.
    pub state: Option<PathBuf>,
    /// The place of the state that all control planes of the mesh share.
    pub store: StoreLocation,
    /// The source of policy.
    pub policy: Option<PolicyLocation>,
    /// How long a change of the policy folder that removes many objects is held back; zero holds nothing
    /// back.
    pub removal_hold: Duration,
    /// The file of the key that encrypts keys at rest.
    pub key_encryption_key: Option<PathBuf>,
    /// The listeners of the control plane.
    pub listen: Listen,
    /// The socket for a group of operators, if it is on.
    pub group_socket: Option<PathBuf>,
    /// The addresses of the control plane that bootstraps of proxies name, each with host and port.
    pub advertise: Vec<(String, u16)>,
    /// Certificates.
    pub certificates: Certificates,
    /// Connections of proxies.
    pub xds: Xds,
    /// How the control plane reaches Consul.
    pub consul: ConsulSettings,
    /// How the control plane reaches Azure.
    pub azure: AzureSettings,
    /// How the provider guard works.
    pub endpoints: EndpointsSettings,
    /// The sidecar driver of proxies whose enrollment chooses none.
    pub sidecar_class: DriverName,
    /// The control plane's log.
    pub log: LogSettings,
    /// The collector of traces: an address with `https`, or with `http` on this machine. Without one there are none.
    pub traces_endpoint: Option<String>,
    /// The debounce window after a change. The first change of a burst takes effect at once.
    pub settle: Duration,
}

/// The listeners of the control plane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// xDS, with mutual TLS.
    pub xds: SocketAddr,
    /// The enrollment and renewal of machines, with TLS. By default port 15129 at the address of xDS.
    pub enrollment: SocketAddr,
    /// The admin API on this machine. Invariant: a loopback address, since it does not authenticate callers.
    pub admin: SocketAddr,
    /// The API for operators on the network, if it is on.
    pub api: Option<SocketAddr>,
}

/// Settings of certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Certificates {
    /// The lifetime of a service certificate.
    pub service_lifetime: Duration,
}

/// Settings of xDS connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Xds {
    /// The most age of a connection, plus or minus a tenth, if it is set ([`Settings::max_connection_age`]).
    pub max_connection_age: Option<Duration>,
    /// The most proxies that this control plane serves, if it is set.
    pub max_proxies: Option<u32>,
}

/// Reads the settings from `text`, the content of the file that findings name `path`. All problems are
/// reported at once, in order.
pub fn load_settings(text: &str, path: &str) -> Result<Settings, Vec<Finding>> {
    syntax::read_whole(&Document::new(path, text), "the settings file", read)
}

/// The default age of a connection if there may be several control planes: a new one gets its share of the proxies within
/// minutes.
const CONNECTION_AGE_WITH_REPLICAS: Duration = Duration::from_secs(5 * 60);

/// The range of the most proxies of a control plane. It has connections for no more.
const MAX_PROXIES: RangeInclusive<u32> = 1..=20_000;

impl Settings {
    /// The most age of a connection, plus or minus a tenth; none if it is unlimited.
    pub fn max_connection_age(&self) -> Option<Duration> {
        let has_replicas = matches!(self.store, StoreLocation::Etcd(_));
        self.xds.max_connection_age.or_else(|| has_replicas.then_some(CONNECTION_AGE_WITH_REPLICAS))
    }

    /// Whether providers may report loopback and link-local addresses. Every machine has these addresses, so
    /// they are useful only in a mesh on one machine: by default if xDS listens on loopback.
    pub fn allows_local_addresses(&self) -> bool {
        self.endpoints.allow_local_addresses.unwrap_or_else(|| self.listen.xds.ip().is_loopback())
    }
}

impl Default for Settings {
    fn default() -> Self {
        let domain = Domain::default();
        Self {
            mesh: Name::default_namespace(),
            trust_domain: TrustDomain::new(domain.clone()),
            domain,
            mode: Mode::Strict,
            egress: EgressMode::Policy,
            state: None,
            store: StoreLocation::default(),
            policy: None,
            removal_hold: Duration::from_secs(30),
            key_encryption_key: None,
            listen: Listen::default(),
            group_socket: None,
            advertise: Vec::new(),
            certificates: Certificates::default(),
            xds: Xds::default(),
            consul: ConsulSettings::default(),
            azure: AzureSettings::default(),
            endpoints: EndpointsSettings::default(),
            sidecar_class: DriverName::default(),
            log: LogSettings::default(),
            traces_endpoint: None,
            settle: Duration::from_millis(20),
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            xds: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 15128),
            enrollment: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 15129),
            admin: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 15014),
            api: None,
        }
    }
}

impl Default for Certificates {
    fn default() -> Self {
        Self { service_lifetime: Duration::from_secs(24 * 60 * 60) }
    }
}

fn read(table: &mut Table<'_>) -> Result<Settings, FindingReported> {
    let default = Settings::default();
    let mesh = table.optional("mesh", Value::name);
    let domain = table.optional("domain", read_domain);
    let trust_domain = table.optional("trust_domain", read_domain);
    let mode = table.optional("mode", mode::read);
    let egress = table.optional("egress", |value| value.word("mode of egress", &EgressMode::ALL));
    let state = table.optional("state", read_path);
    let name = mesh.as_ref().ok().and_then(Clone::clone).unwrap_or(default.mesh);
    let store = table.optional("store", |value| store::read(value, &name));
    let policy = table.optional("policy", |value| policy::read(value, &name));
    let key_encryption_key = table.optional("key_encryption_key", read_path);
    let listen = table.optional("listen", read_listen);
    let group_socket = table.optional("group_socket", read_path);
    let advertise = table.optional("advertise", |value| value.each(read_authority));
    let certificates = table.optional("certificates", read_certificates);
    let xds = table.optional("xds", read_xds);
    let consul = table.optional("consul", consul::read);
    let azure = table.optional("azure", azure::read);
    let endpoints = table.optional("endpoints", endpoints::read);
    let sidecar_class = table.optional("sidecar", sidecar::read);
    let log = table.optional("log", log::read);
    let traces_endpoint = table.optional("traces", traces::read);
    let at_most_a_minute = Duration::ZERO..=Duration::from_secs(60);
    let settle = table.optional("settle", |value| duration::read(value, &at_most_a_minute));

    let domain = domain?.unwrap_or(default.domain);
    let policy = policy?.unwrap_or_default();
    Ok(Settings {
        mesh: mesh.map(|_| name)?,
        trust_domain: TrustDomain::new(trust_domain?.unwrap_or_else(|| domain.clone())),
        domain,
        mode: mode?.unwrap_or(default.mode),
        egress: egress?.unwrap_or(default.egress),
        state: state?,
        store: store?.unwrap_or_default(),
        policy: policy.place,
        removal_hold: policy.removal_hold.unwrap_or(default.removal_hold),
        key_encryption_key: key_encryption_key?,
        listen: listen?.unwrap_or(default.listen),
        group_socket: group_socket?,
        advertise: advertise?.unwrap_or(default.advertise),
        certificates: certificates?.unwrap_or(default.certificates),
        xds: xds?.unwrap_or(default.xds),
        consul: consul?.unwrap_or(default.consul),
        azure: azure?.unwrap_or(default.azure),
        endpoints: endpoints?.unwrap_or(default.endpoints),
        sidecar_class: sidecar_class?.unwrap_or(default.sidecar_class),
        log: log?.unwrap_or(default.log),
        traces_endpoint: traces_endpoint?,
        settle: settle?.unwrap_or(default.settle),
    })
}

fn read_domain(value: Value<'_>) -> Result<Domain, FindingReported> {
    let text = value.string()?;
    Domain::new(text).map_err(|invalid| {
        let message = format!("a part of `{}` {}: `{text}`", value.key(), invalid.problem);
        let finding = value.error(codes::INVALID_NAME, message).label("not a domain");
        value.report(finding.help("write a domain as in `mesh.internal`"))
    })
}

fn read_path(value: Value<'_>) -> Result<PathBuf, FindingReported> {
    let text = value.string()?;
    if text.is_empty() || text.contains('\0') {
        let message = format!("`{}` must be a path", value.key());
        return Err(value.report(value.error(codes::INVALID_VALUE, message).label("not a path")));
    }
    Ok(text.into())
}

fn read_listen(value: Value<'_>) -> Result<Listen, FindingReported> {
    const ADDRESS: &str = "an address with a port, such as `127.0.0.1:15014`";
    let mut table = value.table("`listen`")?;
    let xds = table.optional("xds", |value| value.parsed(ADDRESS));
    let admin = table.optional("admin", |value| {
        let address: SocketAddr = value.parsed(ADDRESS)?;
        if address.ip().is_loopback() {
            return Ok(address);
        }
        let message = format!("`admin` must be a loopback address: `{address}`");
        let finding = value.error(codes::INVALID_VALUE, message).label("reachable by others");
        let help = "this listener does not authenticate callers: use 127.0.0.1 or [::1], and `api` for operators on the network";
        Err(value.report(finding.help(help)))
    });
    let enrollment = table.optional("enrollment", |value| value.parsed(ADDRESS));
    let api = table.optional("api", |value| value.parsed(ADDRESS));
    table.finish();
    let default = Listen::default();
    let xds: SocketAddr = xds?.unwrap_or(default.xds);
    let beside_xds = SocketAddr::new(xds.ip(), default.enrollment.port());
    let enrollment = enrollment?.unwrap_or(beside_xds);
    Ok(Listen { xds, enrollment, admin: admin?.unwrap_or(default.admin), api: api? })
}

/// `host:port`, where the host is a name or an address, an IPv6 one in brackets.
fn authority(text: &str) -> Option<(String, u16)> {
    let in_a_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
    let (host, port) = text.rsplit_once(':')?;
    let host = match host.strip_prefix('[').and_then(|h| h.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().ok()?.to_string(),
        None if !host.is_empty() && host.bytes().all(in_a_name) => host.to_owned(),
        None => return None,
    };
    let port = port.parse::<u16>().ok().filter(|number| *number > 0)?;
    Some((host, port))
}

fn read_authority(value: Value<'_>) -> Result<(String, u16), FindingReported> {
    let text = value.string()?;
    authority(text).ok_or_else(|| {
        let message = format!("`advertise` must list `host:port`: `{text}`");
        let finding = value.error(codes::INVALID_VALUE, message).label("not `host:port`");
        value.report(finding.help("write it as in `control-plane.example.com:15128`"))
    })
}

fn read_certificates(value: Value<'_>) -> Result<Certificates, FindingReported> {
    let mut table = value.table("`certificates`")?;
    let range = Duration::from_secs(5 * 60)..=Duration::from_secs(30 * 24 * 60 * 60);
    let service_lifetime =
        table.optional("service_lifetime", |value| duration::read(value, &range));
    table.finish();
    let default = Certificates::default();
    Ok(Certificates { service_lifetime: service_lifetime?.unwrap_or(default.service_lifetime) })
}

fn read_xds(value: Value<'_>) -> Result<Xds, FindingReported> {
    let mut table = value.table("`xds`")?;
    let range = Duration::from_secs(1)..=Duration::from_secs(30 * 24 * 60 * 60);
    let max_connection_age =
        table.optional("max_connection_age", |value| duration::read(value, &range));
    let max_proxies =
        table.optional("max_proxies", |value| value.integer(codes::INVALID_VALUE, MAX_PROXIES));
    table.finish();
    Ok(Xds { max_connection_age: max_connection_age?, max_proxies: max_proxies? })
}
