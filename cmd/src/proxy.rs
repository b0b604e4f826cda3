//! `ironmesh proxy …`

use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fs_err::os::unix::fs::OpenOptionsExt;
use ironmesh_admin::{BootstrapRequest, Client, NackView, ProxyView};
use ironmesh_catalog::proxy::local_address;
use ironmesh_catalog::{ProxyStatement, TrustDomain};
use ironmesh_cert::generate_proxy_key_and_csr;
use ironmesh_sidecar::envoy::{self, Bootstrap};
use jiff::Timestamp;
use serde_json::json;

use crate::cli::{BootstrapArguments, ListArguments, Output};
use crate::places::Places;

/// Lets an Envoy into the mesh that somebody runs by hand. Its key is made here and stays here.
#[expect(clippy::print_stdout, reason = "the command that starts Envoy is this command's result")]
pub(crate) async fn bootstrap(arguments: BootstrapArguments, output: Output) -> anyhow::Result<()> {
    let places = Places::find(&arguments.config)?;
    let folder = NewFolder::create(&arguments.out)?;
    let out = folder.path.clone();
    let (key, certificate_request) = generate_proxy_key_and_csr()?;
    // Whether it can be written at all is known before anybody joins.
    folder.write(envoy::KEY, key.expose(), 0o600)?;
    let request = BootstrapRequest {
        services: arguments.services,
        address: arguments.address,
        upstreams: arguments.upstreams,
        certificate_request,
    };
    let response = Client::new(&places.admin_socket()).bootstrap(&request).await?;
    let statement = ProxyStatement {
        bind: arguments.bind,
        app_address: arguments.app_address,
        upstreams: request.upstreams,
    };
    let service = request.services.first().context("a proxy serves one service at least")?;
    let trust_domain = TrustDomain::of(&response.control_plane_id);
    let trust_domain = trust_domain.context("the control plane has no SPIFFE ID")?;
    let files = Bootstrap {
        proxy: response.id,
        service,
        statement: &statement,
        admin_address: local_address(arguments.bind.unwrap_or(arguments.address)),
        control_plane: &response.control_plane,
        control_plane_id: &trust_domain.control_plane().0,
        folder: &out,
    }
    .files();
    folder.write(envoy::CERTIFICATE, &response.certificate, 0o644)?;
    folder.write(envoy::ROOTS, &response.roots, 0o644)?;
    for file in files {
        folder.write(file.name, &file.content, 0o644)?;
    }
    folder.finish()?;

    let configuration = out.join(envoy::CONFIGURATION);
    let command =
        format!("envoy -c {} --disable-hot-restart --drain-time-s 30", quoted(&configuration));
    match output {
        Output::Json => println!(
            "{:#}",
            json!({
                "id": response.id,
                "folder": out,
                "expires_at": response.expires_at,
                "command": command,
                "notes": response.notes,
            })
        ),
        Output::Text => {
            println!(
                "proxy {} joined as {service}; its certificate holds until {}",
                response.id, response.expires_at
            );
            println!("its key was made here, in {}, and was sent nowhere", out.display());
            for note in &response.notes {
                println!("note: {note}");
            }
            println!("start it with:\n\n  {command}\n");
        }
    }
    Ok(())
}

/// A folder that is there whole, or not at all: it is written beside its name and then renamed.
struct NewFolder {
    path: PathBuf,
    part: PathBuf,
    /// The folders above that were missing, the deepest first.
    made: Vec<PathBuf>,
    is_finished: bool,
}

impl NewFolder {
    fn create(path: &Path) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let shown = path.display();
        let name = path.file_name().with_context(|| format!("`{shown}` names no folder"))?;
        // Envoy's bootstrap is text and has this path in it.
        let name = path.to_str().and_then(|_| name.to_str());
        let name =
            name.with_context(|| format!("`{shown}` is not in UTF-8: name another folder"))?;
        match fs_err::symlink_metadata(&path) {
            Ok(_) => {
                bail!("`{shown}` is there already: name a new folder, or remove it first")
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let part = path.with_file_name(format!(".{name}.{}", std::process::id()));
        // What is made on the way to it goes again with it.
        let is_missing = |folder: &&Path| !folder.exists();
        let made = path.ancestors().skip(1).take_while(is_missing).map(Path::to_owned).collect();
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent)?;
        }
        let folder = Self { path, part, made, is_finished: false };
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder.part)
            .with_context(|| format!("cannot make `{}`", folder.part.display()))?;
        Ok(folder)
    }

    fn write(&self, name: &str, content: &str, mode: u32) -> anyhow::Result<()> {
        let mut options = fs_err::OpenOptions::new();
        options.write(true).create_new(true);
        options.mode(mode);
        let mut file = options.open(self.part.join(name))?;
        file.write_all(content.as_bytes())?;
        file.sync_all()?;
        Ok(())
    }

    fn finish(mut self) -> anyhow::Result<()> {
        fs_err::rename(&self.part, &self.path)?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.is_finished {
            drop(fs_err::remove_dir_all(&self.part));
            for folder in &self.made {
                drop(fs_err::remove_dir(folder));
            }
        }
    }
}

/// Lists the proxies that have joined.
#[expect(clippy::print_stdout, reason = "the list is this command's result")]
pub(crate) async fn list(arguments: &ListArguments, output: Output) -> anyhow::Result<()> {
    let places = Places::find(&arguments.config)?;
    let proxies = Client::new(&places.admin_socket()).proxies().await?;
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&proxies)?),
        Output::Text => {
            println!("{:<36}  {:<21}  {:<9}  SERVICES", "PROXY", "ADDRESS", "STATE");
            for proxy in &proxies {
                print_proxy(proxy);
            }
        }
    }
    Ok(())
}

#[expect(clippy::print_stdout, reason = "the list is this command's result")]
fn print_proxy(proxy: &ProxyView) {
    let record = &proxy.record;
    let state = match (proxy.streams, record.claimed_at) {
        (0, _) if record.certificate_expires_at < Timestamp::now() => "expired",
        (0, None) => "unclaimed",
        (0, Some(_)) => "away",
        _ => "connected",
    };
    let services: Vec<_> = record.services.iter().map(ToString::to_string).collect();
    println!("{:<36}  {:<21}  {state:<9}  {}", record.id, record.mesh_address, services.join(", "));
    for nack in &proxy.nacks {
        println!("  refuses {} `{}`: {}", nack.resource_type, nack.name, nack.message);
        print_instead(nack);
    }
    for nack in &proxy.withheld {
        println!("  was not asked to take {} `{}`,", nack.resource_type, nack.name);
        println!("    which others refuse and nobody has taken: {}", nack.message);
        print_instead(nack);
    }
    for finding in &proxy.findings {
        println!("  {}[{}]: {}", finding.severity, finding.code, finding.message);
    }
}

#[expect(clippy::print_stdout, reason = "the list is this command's result")]
fn print_instead(nack: &NackView) {
    match &*nack.instead {
        "closed" => println!("    until policy changes, it lets nobody in there"),
        "narrowed" => {
            println!("    until policy changes, it allows what was allowed before as well");
        }
        _ => println!("    it goes on with what it had before, if anything"),
    }
    for origin in &nack.policy {
        println!("    from {} ({}:{}:{})", origin.object, origin.file, origin.line, origin.column);
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
