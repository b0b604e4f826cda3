//! Contexts: the remote meshes that an operator of this machine can use.
//!
//! A context is one private file with the servers, the roots and the credential. Nothing of a credential is ever on a
//! command line.

use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context as _, bail, ensure};
use ironmesh_admin::RemoteServer;
use ironmesh_api::IssuedCredential;
use ironmesh_catalog::{OperatorName, OperatorRole, Secret, SpiffeId};
use ironmesh_cert::tls::operator_client_config;
use ironmesh_command_line::{
    ConnectionArguments, ContextAddArguments, ContextCommand, ContextName, Output, ServerAddress,
};
use ironmesh_terminal::stdout::outln;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::exit::UsageError;

/// The context of the control plane on this machine, which has no file.
const LOCAL: &str = "local";

/// The file that names the current context.
const CURRENT: &str = "current-context";

/// A context, as its file has it.
#[derive(Debug, Serialize, Deserialize)]
struct Context {
    operator: OperatorName,
    role: OperatorRole,
    expires_at: Timestamp,
    servers: Vec<(String, u16)>,
    control_plane: SpiffeId,
    roots: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    certificate: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Secret>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    token: Option<Secret>,
}

impl Context {
    fn server(self) -> anyhow::Result<RemoteServer> {
        let identity = self.certificate.as_deref().zip(self.key.as_ref());
        let tls = operator_client_config(&self.roots, self.control_plane, identity)?;
        Ok(RemoteServer::new(self.servers, tls, self.token))
    }
}

/// The control plane that the flags, the variables or the current context choose, in this order; none for that of this
/// machine.
///
/// A settings file on the command line is the control plane of this machine. One in the environment decides nothing: it
/// may be set for all commands of a machine.
pub(crate) fn chosen(arguments: &ConnectionArguments) -> anyhow::Result<Option<RemoteServer>> {
    let (named, server) = (arguments.context.clone(), arguments.server.clone());
    let has_settings = arguments.settings.config.is_some() && is_on_command_line("--config");
    if has_settings {
        if named.is_some() || server.is_some() {
            let error = "`--config` chooses the control plane of this machine, and `--context` or `--server` another: leave one out";
            return Err(UsageError(error.to_owned()).into());
        }
        return Ok(None);
    }
    let folder = folder();
    let name = match named
        .map_or_else(|| variable::<ContextName>("IRONMESH_CONTEXT"), |n| Ok(Some(n)))?
    {
        Some(name) => name.0,
        None => folder.as_ref().map_or_else(|_| Ok(LOCAL.to_owned()), |folder| current(folder))?,
    };
    if name == LOCAL {
        if server.is_some() {
            let error = "`--server` needs a context with a credential: name one with `--context`, or add one with `ironmesh context add`";
            return Err(UsageError(error.to_owned()).into());
        }
        return Ok(None);
    }
    let mut context = read(&folder?, &name)?;
    ensure!(
        Timestamp::now() < context.expires_at,
        "the credential of context {name} expired at {:.0}: ask an admin for a new one, by the request that you have (`ironmesh \
         operator issue --csr`) or a token, then `ironmesh context remove {name}`, `context add {name}` and `context use {name}`",
        context.expires_at
    );
    let server = server.map_or_else(|| variable("IRONMESH_SERVER"), |server| Ok(Some(server)))?;
    if let Some(ServerAddress(host, port)) = server {
        context.servers = vec![(host, port)];
    }
    Ok(Some(context.server()?))
}

/// Whether the command line has this flag: an environment variable may set the same argument.
fn is_on_command_line(flag: &str) -> bool {
    let is_flag = |word: &OsString| {
        word.to_str().is_some_and(|word| {
            word.strip_prefix(flag).is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
        })
    };
    std::env::args_os().skip(1).any(|word| is_flag(&word))
}

/// The value of an environment variable, if it is set and not empty.
fn variable<T: FromStr<Err = String>>(name: &str) -> anyhow::Result<Option<T>> {
    let Some(text) = std::env::var_os(name).filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let value = text.to_str().ok_or_else(|| "it is not UTF-8".to_owned()).and_then(str::parse);
    value.map(Some).map_err(|error| UsageError(format!("`{name}` is malformed: {error}")).into())
}

/// Runs a command of `ironmesh context`.
pub(crate) fn run(command: ContextCommand, output: Output) -> anyhow::Result<()> {
    let folder = folder()?;
    match command {
        ContextCommand::Add(arguments) => add(&folder, arguments, output),
        ContextCommand::List => list(&folder, output),
        ContextCommand::Use(argument) => {
            let name = argument.name.0;
            if name != LOCAL {
                read(&folder, &name)?;
            }
            write_private(&folder.join(CURRENT), &format!("{name}\n"))?;
            print(output, &json!({ "current": name }), &format!("using context {name} from now on"))
        }
        ContextCommand::Remove(argument) => {
            let name = argument.name.0;
            read(&folder, &name)?;
            fs_err::remove_file(file(&folder, &name))?;
            let was_current = current(&folder)? == name;
            if was_current {
                fs_err::remove_file(folder.join(CURRENT))?;
            }
            let note = if was_current {
                "; using the control plane of this machine from now on"
            } else {
                ""
            };
            print(output, &json!({ "removed": name }), &format!("removed context {name}{note}"))
        }
    }
}

fn print(output: Output, json: &serde_json::Value, text: &str) -> anyhow::Result<()> {
    match output {
        Output::Json => outln!("{json:#}")?,
        Output::Text => outln!("{text}")?,
    }
    Ok(())
}

fn add(folder: &Path, arguments: ContextAddArguments, output: Output) -> anyhow::Result<()> {
    let ContextAddArguments { name: ContextName(name), credential, key, servers } = arguments;
    if name == LOCAL {
        return Err(UsageError(
            "`local` is the control plane of this machine: use another name".to_owned(),
        )
        .into());
    }
    let path = file(folder, &name);
    ensure!(
        !fs_err::exists(&path)?,
        "context {name} exists: `ironmesh context remove {name}` first"
    );
    let text = fs_err::read_to_string(&credential).context("cannot read the credential")?;
    let issued: IssuedCredential = serde_json::from_str(&text).with_context(|| {
        format!("`{}` is no file of `operator issue` or `operator token`", credential.display())
    })?;
    let key = match (&issued.certificate, key) {
        (Some(_), Some(key)) => {
            Some(Secret::new(fs_err::read_to_string(key).context("cannot read the key")?))
        }
        (Some(_), None) => {
            let error = "the credential is a certificate: name its key with `--key`";
            return Err(UsageError(error.to_owned()).into());
        }
        (None, Some(_)) => {
            return Err(
                UsageError("the credential is a token: leave out `--key`".to_owned()).into()
            );
        }
        (None, None) => None,
    };
    let mut addresses: Vec<_> =
        servers.into_iter().map(|ServerAddress(host, port)| (host, port)).collect();
    if addresses.is_empty() {
        addresses = issued.servers;
    }
    if addresses.is_empty() {
        return Err(UsageError(
            "the credential names no server: name one with `--server HOST:PORT`".to_owned(),
        )
        .into());
    }
    let context = Context {
        operator: issued.name,
        role: issued.role,
        expires_at: issued.expires_at,
        servers: addresses,
        control_plane: issued.control_plane,
        roots: issued.roots,
        certificate: issued.certificate,
        key,
        token: issued.token,
    };
    let text = serde_json::to_string_pretty(&context)?;
    // It fails now if certificate and key do not belong together.
    let server = context.server()?;
    fs_err::create_dir_all(folder)?;
    write_private(&path, &text)?;
    let hint = format!(
        "added context {name} for {server}; use it with `ironmesh context use {name}` or `--context {name}`"
    );
    print(output, &json!({ "added": name, "servers": server.addresses() }), &hint)
}

fn list(folder: &Path, output: Output) -> anyhow::Result<()> {
    let current = current(folder)?;
    let mut names = Vec::new();
    match fs_err::read_dir(folder) {
        Ok(entries) => {
            for entry in entries {
                let name = entry?.file_name();
                let name = name.to_string_lossy();
                names.extend(name.strip_suffix(".json").map(str::to_owned));
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error.into()),
    }
    names.sort();
    names.insert(0, LOCAL.to_owned());
    let mut contexts = Vec::new();
    for name in names {
        let is_current = name == current;
        if name == LOCAL {
            contexts.push((name, is_current, None));
        } else {
            let context = read(folder, &name)?;
            contexts.push((name, is_current, Some(context)));
        }
    }
    if output == Output::Json {
        let contexts = contexts.iter().map(|(name, current, context)| {
            let context = context.as_ref();
            json!({
                "name": name, "current": current,
                "operator": context.map(|one| &one.operator), "role": context.map(|one| one.role),
                "expires_at": context.map(|one| one.expires_at),
                "servers": context.map(|one| &one.servers),
            })
        });
        return Ok(outln!("{:#}", json!({ "contexts": contexts.collect::<Vec<_>>() }))?);
    }
    for (name, is_current, context) in contexts {
        let mark = if is_current { '*' } else { ' ' };
        match context {
            None => outln!("{mark} {name}  the control plane of this machine")?,
            Some(one) => outln!(
                "{mark} {name}  {} as {} ({}), expires {:.0}",
                one.servers
                    .iter()
                    .map(|(host, port)| format!("{host}:{port}"))
                    .collect::<Vec<_>>()
                    .join(", "),
                one.operator,
                one.role,
                one.expires_at
            )?,
        }
    }
    Ok(())
}

fn file(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("{name}.json"))
}

fn read(folder: &Path, name: &str) -> anyhow::Result<Context> {
    let path = file(folder, name);
    let text = match fs_err::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("no context is named `{name}`: see `ironmesh context list`")
        }
        Err(error) => return Err(error.into()),
    };
    serde_json::from_str(&text).with_context(|| format!("`{}` is malformed", path.display()))
}

/// The name of the current context.
fn current(folder: &Path) -> anyhow::Result<String> {
    match fs_err::read_to_string(folder.join(CURRENT)) {
        Ok(text) => Ok(text.trim().parse::<ContextName>().map_err(anyhow::Error::msg)?.0),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(LOCAL.to_owned()),
        Err(error) => Err(error.into()),
    }
}

/// The folder of contexts: `ironmesh/contexts` in the user's configuration folder.
fn folder() -> anyhow::Result<PathBuf> {
    let set =
        |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(set("HOME")?.join(".config")));
    let config = config.context("no folder for contexts: set HOME or XDG_CONFIG_HOME")?;
    Ok(config.join("ironmesh/contexts"))
}

/// Replaces a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> anyhow::Result<()> {
    use std::io::Write as _;

    use fs_err::os::unix::fs::OpenOptionsExt as _;
    let folder = path.parent().context("a file has a folder")?;
    fs_err::create_dir_all(folder)?;
    let draft = path.with_extension(format!("draft-{}", std::process::id()));
    let file = fs_err::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    let replaced = written.and_then(|()| fs_err::rename(&draft, path));
    if replaced.is_err() {
        // The first error says more.
        let _ = fs_err::remove_file(&draft);
    }
    Ok(replaced?)
}
