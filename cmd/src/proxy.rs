//! `ironmesh proxy …`

use std::io::Write;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use anyhow::{Context, bail};
use fs_err::os::unix::fs::OpenOptionsExt;
use ironmesh_admin::{BootstrapRequest, BootstrapResponse, Client, ProxyView};
use ironmesh_catalog::proxy::local_address;
use ironmesh_catalog::{ProxyStatement, Secret, TrustDomain};
use ironmesh_cert::generate_proxy_key_and_csr;
use ironmesh_sidecar::envoy::{self, Bootstrap};
use serde_json::json;

use crate::cli::{BootstrapArguments, ListArguments, Output};
use crate::places::Places;

/// Lets an Envoy into the mesh that somebody runs by hand. Its key is made here and stays here.
#[expect(clippy::print_stdout, reason = "the command that starts Envoy is this command's result")]
pub(crate) async fn bootstrap(arguments: BootstrapArguments, output: Output) -> anyhow::Result<()> {
    let places = Places::find(&arguments.config)?;
    let out = std::path::absolute(&arguments.out)?;
    if out.try_exists()? {
        bail!("`{}` is there already: name a new folder, or remove it first", out.display());
    }
    let (key, certificate_request) = generate_proxy_key_and_csr()?;
    let request = BootstrapRequest {
        services: arguments.services,
        address: arguments.address,
        upstreams: arguments.upstreams,
        certificate_request,
    };
    let response = Client::new(&places.admin_socket()).bootstrap(&request).await?;
    let bind = arguments.bind.unwrap_or(arguments.address);
    let statement = ProxyStatement {
        bind: arguments.bind,
        app_address: arguments.app_address,
        upstreams: request.upstreams,
    };
    let service = request.services.first().context("a proxy serves one service at least")?;
    let trust_domain = TrustDomain::of(&response.control_plane_id);
    let control_plane_id =
        trust_domain.context("the control plane has no SPIFFE ID")?.control_plane().0;
    let files = Bootstrap {
        proxy: response.id,
        service,
        statement: &statement,
        admin_address: local_address(bind),
        control_plane: &response.control_plane,
        control_plane_id: &control_plane_id,
        folder: &out,
    }
    .files();
    write(&out, &key, &response, &files)?;

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

/// Writes the folder whole, or not at all.
fn write(
    out: &Path,
    key: &Secret,
    response: &BootstrapResponse,
    files: &[envoy::File],
) -> anyhow::Result<()> {
    let name = out.file_name().context("the folder has no name")?.to_string_lossy().into_owned();
    let part = out.with_file_name(format!(".{name}.{}", response.id));
    let create = |name: &str, content: &str, mode: u32| {
        let mut options = fs_err::OpenOptions::new();
        options.write(true).create_new(true);
        options.mode(mode);
        let mut file = options.open(part.join(name))?;
        file.write_all(content.as_bytes())?;
        file.sync_all()
    };
    let all = || {
        if let Some(parent) = out.parent() {
            fs_err::create_dir_all(parent)?;
        }
        std::fs::DirBuilder::new().mode(0o700).create(&part)?;
        create(envoy::KEY, key.expose(), 0o600)?;
        create(envoy::CERTIFICATE, &response.certificate, 0o644)?;
        create(envoy::ROOTS, &response.roots, 0o644)?;
        for file in files {
            create(file.name, &file.content, 0o644)?;
        }
        fs_err::rename(&part, out)
    };
    all().inspect_err(|_| drop(fs_err::remove_dir_all(&part))).context("cannot write the bootstrap")
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
        (0, None) => "unclaimed",
        (0, Some(_)) => "away",
        _ => "connected",
    };
    let services: Vec<_> = record.services.iter().map(ToString::to_string).collect();
    println!("{:<36}  {:<21}  {state:<9}  {}", record.id, record.mesh_address, services.join(", "));
    for nack in &proxy.nacks {
        println!("  refuses {} `{}`: {}", nack.resource_type, nack.name, nack.message);
    }
    for finding in &proxy.findings {
        println!("  {}[{}]: {}", finding.severity, finding.code, finding.message);
    }
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}
