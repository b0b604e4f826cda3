//! `ironmesh proxy bootstrap`: enrolls proxies, and writes their keys, certificates and Envoy bootstraps.
//!
//! Private keys are generated here and never leave this machine.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::thread;

use anyhow::Context;
use ironmesh_admin::{
    BootstrapRequest, BootstrapResponse, Client, EnrolledProxy, EnrollmentRequest, MAX_ENROLLMENTS,
};
use ironmesh_catalog::proxy::local_address;
use ironmesh_catalog::{HostUpstream, NodeMetadata, SpiffeId, TrustDomain, Upstream};
use ironmesh_cert::generate_proxy_key_and_csr;
use ironmesh_sidecar::envoy::{self, Admin, Bootstrap};
use serde_json::json;

use crate::cli::{BootstrapArguments, Output, UpstreamArgument};
use crate::exit::UsageError;
use crate::new_folder::NewFolder;
use crate::resolved_settings::ResolvedSettings;
use crate::stdout::{StdoutError, outln};

/// Enrolls one proxy, whose folder is `--out`; or several, each in its own folder below `--out`.
pub(crate) async fn bootstrap(arguments: BootstrapArguments, output: Output) -> anyhow::Result<()> {
    check_local_ports(&arguments.upstreams)?;
    let resolved = ResolvedSettings::load(&arguments.config)?;
    let client = resolved.client();
    let proxies = new_proxies(arguments.address, arguments.count)?;
    let folder = NewFolder::create(&arguments.out, 0o700)?;
    if admin(&arguments) == Admin::Socket {
        for proxy in &proxies {
            envoy::check_admin_socket_path(&folder.path.join(&proxy.name))?;
        }
    }
    let mut all = Vec::new();
    let mut notes = Vec::new();
    // Enrolled proxies are kept even if a later batch fails.
    let mut end = Ok(());
    for batch in proxies.chunks(MAX_ENROLLMENTS) {
        match enroll_batch(&client, &arguments, &folder, batch).await {
            Ok((enrolled, more_notes)) => {
                all.extend(enrolled);
                notes.extend(more_notes);
            }
            Err(error) => {
                for proxy in batch.iter().filter(|proxy| !proxy.name.is_empty()) {
                    drop(folder.remove(&proxy.name));
                }
                end = Err(error);
                break;
            }
        }
    }
    let path = folder.path.clone();
    if all.is_empty() {
        return end;
    }
    folder.finish()?;
    end.with_context(|| {
        let (enrolled, requested) = (all.len(), proxies.len());
        format!("{enrolled} of {requested} proxies are enrolled, in `{}`", path.display())
    })?;
    notes.sort();
    notes.dedup();
    if rustix::process::geteuid().is_root() {
        notes.insert(0, run_by_root(&path));
    }
    let print = if arguments.count.is_some() { print_batch } else { print_one };
    Ok(print(&arguments, &path, &all, &notes, output)?)
}

/// Fails if two upstreams have the same local port: Envoy would reject one of the listeners.
fn check_local_ports(upstreams: &[UpstreamArgument]) -> Result<(), UsageError> {
    let mut ports = BTreeMap::new();
    for upstream in upstreams {
        if let Some(other) = ports.insert(upstream.local_port(), upstream) {
            return Err(UsageError(format!(
                "two upstreams have the local port {}: `{other}` and `{upstream}`; give each upstream its own port",
                upstream.local_port()
            )));
        }
    }
    Ok(())
}

/// A proxy to enroll.
struct NewProxy {
    /// The name of its folder below `--out`; empty if its folder is `--out` itself.
    name: String,
    address: IpAddr,
}

/// An enrolled proxy, with its folder.
struct WrittenProxy {
    enrollment: EnrolledProxy,
    address: IpAddr,
    folder: PathBuf,
}

/// The proxies to enroll, at consecutive addresses from `first` on.
fn new_proxies(first: IpAddr, count: Option<u32>) -> anyhow::Result<Vec<NewProxy>> {
    let Some(count) = count else {
        return Ok(vec![NewProxy { name: String::new(), address: first }]);
    };
    let width = count.to_string().len().max(4);
    let proxy = |index: u32| {
        let address = match first {
            IpAddr::V4(first) => {
                first.to_bits().checked_add(index).map(|bits| IpAddr::V4(bits.into()))
            }
            IpAddr::V6(first) => {
                first.to_bits().checked_add(index.into()).map(|bits| IpAddr::V6(bits.into()))
            }
        };
        let address = address.with_context(|| {
            format!("{count} consecutive addresses from {first} exceed the address range")
        });
        Ok(NewProxy { name: format!("{:0width$}", index + 1), address: address? })
    };
    (0..count).map(proxy).collect()
}

/// Enrolls a batch: all proxies, or none.
async fn enroll_batch(
    client: &Client,
    arguments: &BootstrapArguments,
    folder: &NewFolder,
    batch: &[NewProxy],
) -> anyhow::Result<(Vec<WrittenProxy>, Vec<String>)> {
    let created = tokio::task::block_in_place(|| on_all_cores(batch, |p| create_key(folder, p)))?;
    let request = BootstrapRequest {
        services: arguments.services.clone(),
        labels: arguments.labels.iter().map(|(name, word)| (&**name, &**word)).collect(),
        locality: arguments.locality.clone().unwrap_or_default(),
        known_as: arguments.known_as.clone(),
        machine: arguments.azure_vm_id,
        upstreams: split_upstreams(arguments).0,
        name: arguments.name.clone(),
        new_authority: arguments.new_authority,
        proxies: created,
    };
    let mut response = client.bootstrap(&request).await?;
    let notes = std::mem::take(&mut response.notes);
    let enrollments = std::mem::take(&mut response.proxies);
    anyhow::ensure!(
        enrollments.len() == batch.len(),
        "the control plane enrolled {} of {} proxies",
        enrollments.len(),
        batch.len()
    );
    let trust_domain = TrustDomain::of(&response.control_plane_id);
    let trust_domain = trust_domain.context("the control plane has no SPIFFE ID")?;
    let control_plane_id = trust_domain.control_plane().0;
    let pairs: Vec<_> = batch.iter().zip(enrollments).collect();
    let write = |(proxy, enrollment): &(&NewProxy, EnrolledProxy)| {
        write_files(arguments, folder, proxy, enrollment, &response, &control_plane_id)
    };
    let enrolled = tokio::task::block_in_place(|| on_all_cores(&pairs, write))?;
    Ok((enrolled, notes))
}

/// Creates the folder and the key of a proxy. An unwritable folder thus fails before any enrollment.
fn create_key(folder: &NewFolder, proxy: &NewProxy) -> anyhow::Result<EnrollmentRequest> {
    if !proxy.name.is_empty() {
        folder.create_subfolder(Path::new(&proxy.name))?;
    }
    let (key, certificate_request) = generate_proxy_key_and_csr()?;
    folder.write(&Path::new(&proxy.name).join(envoy::KEY), key.expose(), 0o600)?;
    Ok(EnrollmentRequest { address: proxy.address, certificate_request })
}

/// Writes the certificate and the bootstrap of an enrolled proxy.
fn write_files(
    arguments: &BootstrapArguments,
    folder: &NewFolder,
    proxy: &NewProxy,
    enrollment: &EnrolledProxy,
    response: &BootstrapResponse,
    control_plane_id: &SpiffeId,
) -> anyhow::Result<WrittenProxy> {
    let own = match &*proxy.name {
        "" => folder.path.clone(),
        name => folder.path.join(name),
    };
    let (upstreams, hosts) = split_upstreams(arguments);
    let metadata = NodeMetadata {
        bind: arguments.bind,
        app_address: arguments.app_address,
        upstreams,
        hosts,
        access_log_dir: arguments.access_log_dir.clone(),
        unknown: Vec::new(),
    };
    let service = arguments.services.first().context("a proxy serves at least one service")?;
    let files = Bootstrap {
        proxy: enrollment.id,
        service,
        metadata: &metadata,
        local_address: local_address(arguments.bind.unwrap_or(proxy.address)),
        admin: admin(arguments),
        control_plane: &response.control_plane,
        control_plane_id,
        folder: &own,
    }
    .files();
    let write = |name: &str, content: &str| {
        folder.write(&Path::new(&proxy.name).join(name), content, 0o644)
    };
    write(envoy::CERTIFICATE, &enrollment.certificate)?;
    write(envoy::ROOTS, &response.roots)?;
    for file in files {
        write(file.name, &file.content)?;
    }
    Ok(WrittenProxy { enrollment: enrollment.clone(), address: proxy.address, folder: own })
}

/// Applies `work` to each item, on as many threads as there are cores, and keeps the order.
fn on_all_cores<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> anyhow::Result<R> + Sync,
) -> anyhow::Result<Vec<R>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let (work, share) = (&work, items.len().div_ceil(threads).max(1));
    thread::scope(|scope| {
        let shares = items.chunks(share).map(|share| {
            scope.spawn(move || share.iter().map(work).collect::<anyhow::Result<Vec<_>>>())
        });
        let mut done = Vec::with_capacity(items.len());
        // Collected first, so that all threads start before the first join.
        for share in shares.collect::<Vec<_>>() {
            let share = share.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            done.extend(share?);
        }
        Ok(done)
    })
}

/// Prints the result for one proxy.
fn print_one(
    arguments: &BootstrapArguments,
    out: &Path,
    all: &[WrittenProxy],
    notes: &[String],
    output: Output,
) -> Result<(), StdoutError> {
    let (Some(service), Some(WrittenProxy { enrollment, .. })) =
        (arguments.services.first(), all.first())
    else {
        return Ok(());
    };
    let command = command(out);
    match output {
        Output::Json => outln!(
            "{:#}",
            json!({
                "id": enrollment.id,
                "name": enrollment.name,
                "folder": out,
                "expires_at": enrollment.expires_at,
                "command": command,
                "notes": notes,
            })
        )?,
        Output::Text => {
            outln!(
                "proxy {} ({}) is enrolled as {service}; its certificate expires at {}",
                enrollment.name,
                enrollment.id,
                enrollment.expires_at
            )?;
            outln!("its private key was generated in {} and stays there", out.display())?;
            for note in notes {
                outln!("note: {note}")?;
            }
            outln!("start it with:\n\n  {command}\n")?;
        }
    }
    Ok(())
}

/// Prints the result for a batch.
fn print_batch(
    arguments: &BootstrapArguments,
    out: &Path,
    all: &[WrittenProxy],
    notes: &[String],
    output: Output,
) -> Result<(), StdoutError> {
    let (Some(service), Some(first), Some(last)) =
        (arguments.services.first(), all.first(), all.last())
    else {
        return Ok(());
    };
    match output {
        Output::Json => {
            let proxy = |enrolled: &WrittenProxy| {
                json!({
                    "id": enrolled.enrollment.id,
                    "name": enrolled.enrollment.name,
                    "address": enrolled.address,
                    "folder": enrolled.folder,
                    "expires_at": enrolled.enrollment.expires_at,
                    "command": command(&enrolled.folder),
                })
            };
            let proxies: Vec<_> = all.iter().map(proxy).collect();
            outln!("{:#}", json!({ "folder": out, "proxies": proxies, "notes": notes }))?;
        }
        Output::Text => {
            outln!(
                "{} proxies are enrolled as {service}, {} to {} at {} to {}; their certificates expire at {}",
                all.len(),
                first.enrollment.name,
                last.enrollment.name,
                first.address,
                last.address,
                first.enrollment.expires_at
            )?;
            outln!("their private keys were generated in {} and stay there", out.display())?;
            for note in notes.iter().take(SHOWN_NOTES) {
                outln!("note: {note}")?;
            }
            if let Some(more @ 1..) = notes.len().checked_sub(SHOWN_NOTES) {
                outln!("note: {more} more like this; --output json shows all")?;
            }
            outln!("start the first with:\n\n  {}\n", command(&first.folder))?;
        }
    }
    Ok(())
}

/// The advice for root, who would run the printed command as root. Envoy opens the files that its configuration
/// names, and accepts connections from the network.
fn run_by_root(folder: &Path) -> String {
    let folder = quoted(folder);
    format!(
        "running as root: start Envoy as an unprivileged user that can read {folder}, for example \
         `chown -R envoy: {folder}` and `User=envoy` in its systemd unit"
    )
}

/// The most notes in the text output.
const SHOWN_NOTES: usize = 5;

fn admin(arguments: &BootstrapArguments) -> Admin {
    if arguments.admin_tcp { Admin::Tcp } else { Admin::Socket }
}

/// The complete command that starts Envoy.
fn command(folder: &Path) -> String {
    let configuration = folder.join(envoy::CONFIGURATION);
    format!("envoy -c {} --disable-hot-restart --drain-time-s 30", quoted(&configuration))
}

/// A path quoted for a shell.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The upstream services and the upstream hosts.
fn split_upstreams(arguments: &BootstrapArguments) -> (Vec<Upstream>, Vec<HostUpstream>) {
    let (mut upstreams, mut hosts) = (Vec::new(), Vec::new());
    for upstream in &arguments.upstreams {
        match upstream {
            UpstreamArgument::Service(upstream) => upstreams.push(upstream.clone()),
            UpstreamArgument::Host(host) => hosts.push(host.clone()),
        }
    }
    (upstreams, hosts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulk_enrollment_counts_addresses_and_numbers_folders() {
        let of = |first: &str, count| {
            let proxies = new_proxies(first.parse().unwrap(), count).ok()?;
            let last = proxies.last()?;
            Some((last.name.clone(), last.address.to_string()))
        };
        let last = |name: &str, address: &str| Some((name.to_owned(), address.to_owned()));
        assert_eq!(of("10.0.0.7", None), last("", "10.0.0.7"));
        assert_eq!(of("10.0.0.7", Some(1)), last("0001", "10.0.0.7"));
        assert_eq!(of("10.0.0.250", Some(10)), last("0010", "10.0.1.3"));
        assert_eq!(of("10.0.0.0", Some(20_000)), last("20000", "10.0.78.31"));
        assert_eq!(of("fd00::fffe", Some(3)), last("0003", "fd00::1:0"));
        assert_eq!(of("255.255.255.254", Some(3)), None);
    }
}
