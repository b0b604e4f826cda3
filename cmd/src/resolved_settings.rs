//! The settings of a command, with all defaults and relative paths resolved.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use ironmesh_admin::{Client, RemoteServer};
use ironmesh_command_line::{ConfigArgument, ConnectionArguments, ServeArguments};
use ironmesh_config_language::{Document, render};
use ironmesh_config_settings::{PolicyLocation, Settings, load_settings};
use ironmesh_control_plane::{LogControl, Options, StorePlace};

use crate::context;
use crate::exit::InvalidInput;

/// The default settings file.
const SETTINGS: &str = "/etc/ironmesh/ironmesh.toml";

/// The default policy folder.
const POLICY: &str = "/etc/ironmesh/policy";

/// The settings, with defaults filled in and paths made absolute.
#[derive(Debug)]
pub(crate) struct ResolvedSettings {
    /// The settings, with resolved paths.
    pub(crate) settings: Settings,
    /// The settings file.
    pub(crate) file: PathBuf,
    /// Whether the settings file exists. Only the default file may be missing.
    pub(crate) is_read: bool,
    /// Whether the settings file exists and is not empty.
    pub(crate) has_content: bool,
    /// The state folder.
    pub(crate) state: PathBuf,
    pub(crate) policy: PolicyLocation,
    pub(crate) key_encryption_key: PathBuf,
    /// The remote control plane that the command uses, if it does not use that of this machine.
    remote: Option<RemoteServer>,
}

impl ResolvedSettings {
    /// Reads and checks the settings file, and resolves defaults.
    pub(crate) fn load(config: &ConfigArgument) -> anyhow::Result<Self> {
        let path = config.config.as_deref().unwrap_or_else(|| Path::new(SETTINGS));
        let (text, is_read) = match fs_err::read_to_string(path) {
            Ok(text) => (text, true),
            Err(error) if error.kind() == ErrorKind::NotFound && config.config.is_none() => {
                (String::new(), false)
            }
            Err(error) => return Err(error).context("cannot read the settings"),
        };
        let name = path.display().to_string();
        let settings = load_settings(&text, &name).map_err(|findings| {
            let document = Document::new(name.as_str(), text.as_str());
            InvalidInput(format!(
                "the settings are rejected\n{}",
                render(&findings, &[document], false)
            ))
        })?;
        // Paths in the settings file are relative to that file.
        let folder = std::path::absolute(path)?.parent().map(Path::to_owned).unwrap_or_default();
        let settings = settings.with_paths_below(&folder);
        let state = settings.state.clone().map_or_else(default_state, Ok)?;
        let policy = settings.policy.clone();
        let key_encryption_key = settings.key_encryption_key.clone();
        Ok(Self {
            policy: policy.unwrap_or_else(|| PolicyLocation::Folder(POLICY.into())),
            key_encryption_key: key_encryption_key.unwrap_or_else(|| default_key(&state, &folder)),
            state,
            settings,
            file: path.to_owned(),
            is_read,
            has_content: !text.trim().is_empty(),
            remote: None,
        })
    }

    /// Reads the settings, and chooses the control plane that the flags or the current context name.
    pub(crate) fn connect(arguments: &ConnectionArguments) -> anyhow::Result<Self> {
        let remote = context::chosen(arguments)?;
        Ok(Self { remote, ..Self::load(&arguments.settings)? })
    }

    /// The options of a control plane with these settings.
    pub(crate) fn options(self, arguments: &ServeArguments, log: Arc<dyn LogControl>) -> Options {
        Options {
            admin_socket: self.admin_socket(),
            settings_file: self.is_read.then_some(self.file),
            settings: self.settings,
            state: self.state,
            policy: self.policy,
            key_encryption_key: self.key_encryption_key,
            without: arguments.without.iter().copied().collect(),
            accepts_older_store: arguments.accept_older_store,
            log,
        }
    }

    /// The stores of these settings.
    pub(crate) fn store_place(&self) -> StorePlace<'_> {
        StorePlace {
            settings: &self.settings,
            state: &self.state,
            key_file: &self.key_encryption_key,
        }
    }

    /// A client of the chosen control plane: a remote one, or that with these settings.
    pub(crate) fn client(&self) -> Client {
        match &self.remote {
            Some(remote) => Client::remote(remote.clone()),
            None => Client::new(&self.socket()).expecting(self.settings.listen.admin),
        }
    }

    /// The socket that this user may use: that for a group, if the state folder is another user's.
    pub(crate) fn socket(&self) -> PathBuf {
        let socket = self.admin_socket();
        // (A user outside the group cannot see it. The error should name it, not a state folder that is another user's.)
        let for_group = self.settings.group_socket.as_ref();
        let for_group = for_group.filter(|path| path.try_exists().unwrap_or(true));
        match for_group {
            Some(path) if !socket.exists() => path.clone(),
            _ => socket,
        }
    }

    /// The source of policy of the chosen control plane. That of a remote one is asked for: the settings here are those of
    /// a different mesh.
    pub(crate) async fn policy_source(&self) -> anyhow::Result<PolicyLocation> {
        if !self.is_remote() {
            return Ok(self.policy.clone());
        }
        let policy = self.client().readiness().await?.policy;
        if policy.is_folder {
            return Ok(PolicyLocation::Folder(policy.source.into()));
        }
        if policy.is_releases {
            return Ok(PolicyLocation::Releases);
        }
        bail!(
            "policy of this mesh is in etcd, which the settings of its machines name: run this command there, without a \
             context"
        )
    }

    /// Whether the chosen control plane is a remote one.
    pub(crate) fn is_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The path of the admin socket.
    pub(crate) fn admin_socket(&self) -> PathBuf {
        self.state.join("admin.sock")
    }
}

/// The default file of the key-encryption key: the systemd credential `kek`, or the file `kek` beside the settings, from
/// which the packaged unit makes that credential, or `kek` in the state folder.
fn default_key(state: &Path, settings: &Path) -> PathBuf {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let outside = credentials.iter().map(PathBuf::as_path).chain([settings]);
    let outside = outside.map(|folder| folder.join("kek")).find(|file| file.exists());
    outside.unwrap_or_else(|| state.join("kek"))
}

/// The default state folder: `/var/lib/ironmesh` for root, otherwise below the user's state folder.
fn default_state() -> anyhow::Result<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(home) = set("XDG_STATE_HOME") {
        return Ok(home.join("ironmesh"));
    }
    if rustix::process::getuid().is_root() {
        return Ok("/var/lib/ironmesh".into());
    }
    let home = set("HOME").context("no state folder: set `state` in the settings, or HOME")?;
    Ok(home.join(".local/state/ironmesh"))
}
