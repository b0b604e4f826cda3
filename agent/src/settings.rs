//! The settings of a machine, `agent.toml`: text to settings, or an error with the place in the text.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use ironmesh_catalog::{LogFolder, Name, ProxyName};
use ironmesh_enrollment::{CaHash, ControlPlaneAddress, MetadataService};
use ironmesh_sidecar::DriverSettings;
use ironmesh_sidecar::envoy::EnvoySettings;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::error::AgentError;
use crate::listeners::{ListenerSettings, UpstreamTarget};

/// The default path of the settings.
pub const SETTINGS_FILE: &str = "/etc/ironmesh/agent.toml";

/// The default folder of the proxy.
const FOLDER: &str = "/var/lib/ironmesh-agent/proxy";

/// The commands that a health check may name, each a program with its arguments.
pub(crate) type Commands = BTreeMap<Name, Vec<String>>;

/// The settings of a machine.
#[derive(Debug, Clone)]
pub struct AgentSettings {
    /// Where the replicas of the control plane serve enrollment, in the order in which the agent tries them.
    pub control_plane: Vec<ControlPlaneAddress>,
    /// The hashes of the mesh's CA.
    pub ca_hashes: Vec<CaHash>,
    /// The file of the join token. Default: the systemd credential `join-token`.
    pub token_file: Option<PathBuf>,
    /// The metadata service of Azure that attests the machine, if it joins without a token.
    pub azure: Option<MetadataService>,
    /// The folder of the proxy.
    pub folder: PathBuf,
    /// The name of the proxy, for display. Default: the hostname.
    pub name: Option<ProxyName>,
    /// The address to which callers connect. Default: the one from which the control plane sees this machine.
    pub address: Option<IpAddr>,
    /// The listeners.
    pub listeners: ListenerSettings,
    /// Whether Envoy's admin interface is open to all local users, on loopback port 15000. Default: as at the enrollment,
    /// or not.
    pub admin_tcp: Option<bool>,
    /// The commands that a health check may name.
    pub commands: BTreeMap<Name, Vec<String>>,
    /// The settings of the sidecar.
    pub sidecar: DriverSettings,
}

/// The text of `agent.toml`. Omitted keys have defaults; unknown ones are errors.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Text {
    #[serde(default)]
    control_plane: Vec<Parsed<ControlPlaneAddress>>,
    #[serde(default)]
    ca_hash: Vec<Parsed<CaHash>>,
    token_file: Option<PathBuf>,
    join: Option<JoinWord>,
    /// For tests: a stand-in of the metadata service on this machine.
    azure_metadata: Option<Parsed<MetadataService>>,
    folder: Option<PathBuf>,
    name: Option<Parsed<ProxyName>>,
    address: Option<IpAddr>,
    bind: Option<IpAddr>,
    app_address: Option<IpAddr>,
    #[serde(default)]
    upstreams: Vec<Parsed<UpstreamTarget>>,
    access_log_dir: Option<LogFolder>,
    admin_tcp: Option<bool>,
    #[serde(default)]
    commands: BTreeMap<String, Vec<String>>,
    #[serde(default)]
    envoy: EnvoySettings,
}

/// How the machine proves that it may join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum JoinWord {
    Token,
    Azure,
}

/// A value that is written as text.
#[derive(Debug)]
struct Parsed<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

impl AgentSettings {
    /// How the machine becomes a new proxy, when its own one is revoked or too old to be renewed.
    pub(crate) fn enroll_again(&self) -> &'static str {
        if self.azure.is_some() {
            // The first join has bound the machine, whatever becomes of its proxy.
            "reimage the machine in Azure; or remove the folder and `join = \"azure\"`, and enroll the machine again with a token (`ironmesh proxy token --azure-vm-id`)"
        } else {
            "remove the folder and enroll the machine again with a new token"
        }
    }

    /// Reads the file. Relative paths in it are relative to its folder.
    pub fn read(path: &Path) -> Result<Self, AgentError> {
        let text = fs_err::read_to_string(path).map_err(|source| AgentError::File {
            action: "read",
            path: path.to_owned(),
            source,
        })?;
        let mut settings = Self::parse(&text).map_err(|problem| AgentError::Settings {
            path: path.to_owned(),
            problem: problem.to_string().trim_end().to_owned(),
        })?;
        let base = path.parent().unwrap_or_else(|| Path::new("/"));
        settings.folder = base.join(&settings.folder);
        settings.token_file = settings.token_file.map(|file| base.join(file));
        let overlay = &mut settings.sidecar.envoy.bootstrap_overlay;
        *overlay = overlay.take().map(|file| base.join(file));
        Ok(settings)
    }

    /// Reads the text.
    pub fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let text: Text = toml::from_str(text)?;
        let listeners = ListenerSettings {
            bind: text.bind,
            app_address: text.app_address,
            upstreams: text.upstreams.into_iter().map(|Parsed(upstream)| upstream).collect(),
            access_log_dir: text.access_log_dir,
        };
        listeners.node_metadata().map_err(toml::de::Error::custom)?;
        let commands = text.commands.into_iter().map(read_command).collect::<Result<_, _>>()?;
        let is_azure = text.join == Some(JoinWord::Azure);
        if is_azure && text.token_file.is_some() {
            let problem = "`join = \"azure\"` needs no token: leave out `token_file`";
            return Err(toml::de::Error::custom(problem));
        }
        let metadata = text.azure_metadata.map(|Parsed(metadata)| metadata).unwrap_or_default();
        Ok(Self {
            control_plane: text.control_plane.into_iter().map(|Parsed(address)| address).collect(),
            ca_hashes: text.ca_hash.into_iter().map(|Parsed(hash)| hash).collect(),
            token_file: text.token_file,
            azure: is_azure.then_some(metadata),
            folder: text.folder.unwrap_or_else(|| FOLDER.into()),
            name: text.name.map(|Parsed(name)| name),
            address: text.address,
            listeners,
            admin_tcp: text.admin_tcp,
            commands,
            sidecar: DriverSettings { envoy: text.envoy },
        })
    }
}

/// Checks a command: policy refers to its name, and a relative program would depend on the folder of the agent.
fn read_command(
    (name, words): (String, Vec<String>),
) -> Result<(Name, Vec<String>), toml::de::Error> {
    let invalid = |problem: String| toml::de::Error::custom(format!("command `{name}`: {problem}"));
    let valid = Name::new(&name).map_err(|error| invalid(format!("its name {}", error.problem)))?;
    match words.first() {
        Some(program) if Path::new(program).is_absolute() => Ok((valid, words)),
        Some(program) => Err(invalid(format!("`{program}` is no absolute path"))),
        None => Err(invalid("it names no program".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omitted_keys_have_defaults() {
        let settings = AgentSettings::parse("").unwrap();
        assert_eq!(settings.folder, Path::new(FOLDER));
        assert!(settings.control_plane.is_empty() && settings.admin_tcp.is_none());
    }

    #[test]
    fn all_keys_are_read() {
        let hash = format!("sha256:{}", "ab".repeat(32));
        let text = format!(
            "control_plane = [\"https://cp1:15129\", \"cp2\"]\nca_hash = [\"{hash}\"]\n\
             token_file = \"/run/token\"\nfolder = \"/srv/proxy\"\nname = \"vm1\"\naddress = \"10.0.0.5\"\n\
             bind = \"0.0.0.0\"\napp_address = \"127.0.0.2\"\nupstreams = [\"shop/bookstore=14001\"]\n\
             access_log_dir = \"/var/log/ironmesh\"\nadmin_tcp = true\n"
        );
        let settings = AgentSettings::parse(&text).unwrap();
        let addresses: Vec<_> = settings.control_plane.iter().map(ToString::to_string).collect();
        assert_eq!(addresses, ["cp1:15129", "cp2:15129"]);
        assert_eq!(settings.ca_hashes.first().unwrap().to_string(), hash);
        let metadata = settings.listeners.node_metadata().unwrap();
        assert_eq!(metadata.upstreams.first().unwrap().local_port, 14001);
    }

    #[test]
    fn commands_are_named_programs_with_absolute_paths() {
        let settings =
            AgentSettings::parse("[commands]\ncheck = [\"/bin/check\", \"-v\"]").unwrap();
        let words = settings.commands.get(&Name::new("check").unwrap()).unwrap();
        assert_eq!(words, &["/bin/check", "-v"]);
        for (text, problem) in [
            ("[commands]\ncheck = [\"check\"]", "`check` is no absolute path"),
            ("[commands]\ncheck = []", "names no program"),
            ("[commands]\nCHECK = [\"/bin/check\"]", "command `CHECK`: its name"),
            ("[commands]\ncheck = \"/bin/check\"", "expected a sequence"),
        ] {
            let error = AgentSettings::parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn machine_joins_by_azure_only_if_the_settings_say_so() {
        let azure = |text: &str| AgentSettings::parse(text).unwrap().azure;
        assert_eq!(azure("token_file = \"/run/token\""), None);
        assert_eq!(azure("join = \"token\""), None);
        assert_eq!(azure("join = \"azure\""), Some(MetadataService::default()));
        let stand_in = azure("join = \"azure\"\nazure_metadata = \"http://127.0.0.1:80\"");
        assert_eq!(stand_in.unwrap().to_string(), "http://127.0.0.1:80");
        for (text, problem) in [
            ("join = \"azure\"\ntoken_file = \"/a\"", "leave out `token_file`"),
            ("join = \"gcp\"", "unknown variant `gcp`"),
            ("azure_metadata = \"http://10.0.0.1:80\"", "on this machine"),
        ] {
            let error = AgentSettings::parse(text).unwrap_err().to_string();
            assert!(error.contains(problem), "{text}: {error}");
        }
    }

    #[test]
    fn only_azure_machines_are_advised_to_reimage() {
        for (text, is_azure) in [("", false), ("join = \"azure\"", true)] {
            let advice = AgentSettings::parse(text).unwrap().enroll_again();
            assert_eq!(advice.contains("reimage"), is_azure, "{advice}");
            assert!(advice.contains("enroll the machine again with a"), "{advice}");
        }
    }

    #[test]
    fn errors_name_the_line_and_the_problem() {
        for (text, line, problem) in [
            ("folder = \"/a\"\nfoldr = \"/b\"\n", "line 2", "unknown field `foldr`"),
            ("control_plane = [\"http://cp\"]", "line 1", "is malformed"),
            ("\nca_hash = [\"sha256:12\"]", "line 2", "sha256"),
            ("upstreams = [\"shop/bookstore\"]", "line 1", "NS/NAME=PORT"),
            ("bind = \"localhost\"", "line 1", "IP address"),
            ("name = 5", "line 1", "string"),
            ("\n[envoy]\ndrain_time = \"90s\"", "line 2", "parent_shutdown_time"),
            ("[envoy]\nbinry = \"envoy\"", "line 2", "unknown field `binry`"),
        ] {
            let error = AgentSettings::parse(text).unwrap_err().to_string();
            assert!(error.contains(line) && error.contains(problem), "{text}: {error}");
        }
        let twice = AgentSettings::parse("upstreams = [\"a=1\", \"b=1\"]").unwrap_err().to_string();
        assert!(twice.contains("local port 1"), "{twice}");
    }
}
