//! `ironmesh proxy bootstrap`: lets Envoys into the mesh that somebody runs by hand, or simulates.
//! Their keys are made here and stay here.

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
use ironmesh_catalog::{HostUpstream, ProxyStatement, SpiffeId, TrustDomain, Upstream};
use ironmesh_cert::generate_proxy_key_and_csr;
use ironmesh_sidecar::envoy::{self, Admin, Bootstrap};
use serde_json::json;

use crate::cli::{BootstrapArguments, Declared, Output};
use crate::exit::Usage;
use crate::new_folder::NewFolder;
use crate::places::Places;
use crate::stdout::{Unwritten, outln};

/// Lets one proxy in, whose folder is the one that is named; or several, with a folder each in there.
pub(crate) async fn bootstrap(arguments: BootstrapArguments, output: Output) -> anyhow::Result<()> {
    check_local_ports(&arguments.upstreams)?;
    let places = Places::find(&arguments.config)?;
    let client = Client::new(&places.admin_socket());
    let proxies = new_proxies(arguments.address, arguments.count)?;
    let folder = NewFolder::create(&arguments.out, 0o700)?;
    if admin(&arguments) == Admin::Socket {
        for proxy in &proxies {
            envoy::check_socket_path(&folder.path.join(&proxy.name))?;
        }
    }
    let mut all = Vec::new();
    let mut notes = Vec::new();
    // What has joined is kept also when the next ones fail.
    let mut end = Ok(());
    for batch in proxies.chunks(MAX_ENROLLMENTS) {
        match join(&client, &arguments, &folder, batch).await {
            Ok((joined, more_notes)) => {
                all.extend(joined);
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
        let (there, asked) = (all.len(), proxies.len());
        format!("{there} of {asked} proxies are there, in `{}`", path.display())
    })?;
    notes.sort();
    notes.dedup();
    if rustix::process::geteuid().is_root() {
        notes.insert(0, run_by_root(&path));
    }
    let tell = if arguments.count.is_some() { tell_all } else { tell_one };
    Ok(tell(&arguments, &path, &all, &notes, output)?)
}

/// Fails where two upstreams have one local port: Envoy would reject one of their listeners.
fn check_local_ports(upstreams: &[Declared]) -> Result<(), Usage> {
    let mut ports = BTreeMap::new();
    for upstream in upstreams {
        if let Some(other) = ports.insert(upstream.local_port(), upstream) {
            return Err(Usage(format!(
                "two upstreams have the local port {}: `{other}` and `{upstream}`; give each a port of its own",
                upstream.local_port()
            )));
        }
    }
    Ok(())
}

/// A proxy that is to be let in.
struct NewProxy {
    /// The name of its folder; empty where it has the whole.
    name: String,
    address: IpAddr,
}

/// A proxy that is there.
struct ProxyThere {
    joined: EnrolledProxy,
    address: IpAddr,
    folder: PathBuf,
}

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
        let address =
            address.with_context(|| format!("there are no {count} addresses from {first} on"));
        Ok(NewProxy { name: format!("{:0width$}", index + 1), address: address? })
    };
    (0..count).map(proxy).collect()
}

/// Lets a batch in, all or none.
async fn join(
    client: &Client,
    arguments: &BootstrapArguments,
    folder: &NewFolder,
    batch: &[NewProxy],
) -> anyhow::Result<(Vec<ProxyThere>, Vec<String>)> {
    let newcomers = tokio::task::block_in_place(|| on_all_cores(batch, |p| begin(folder, p)))?;
    let request = BootstrapRequest {
        services: arguments.services.clone(),
        labels: arguments.labels.iter().map(|(name, word)| (&**name, &**word)).collect(),
        locality: arguments.locality.clone().unwrap_or_default(),
        known_as: arguments.known_as.clone(),
        machine: arguments.azure_vm_id,
        upstreams: declared(arguments).0,
        new_authority: arguments.new_authority,
        proxies: newcomers,
    };
    let mut response = client.bootstrap(&request).await?;
    let notes = std::mem::take(&mut response.notes);
    let joined = std::mem::take(&mut response.proxies);
    anyhow::ensure!(joined.len() == batch.len(), "the control plane let in {}", joined.len());
    let trust_domain = TrustDomain::of(&response.control_plane_id);
    let trust_domain = trust_domain.context("the control plane has no SPIFFE ID")?;
    let control_plane_id = trust_domain.control_plane().0;
    let pairs: Vec<_> = batch.iter().zip(joined).collect();
    let complete = |(proxy, joined): &(&NewProxy, EnrolledProxy)| {
        complete(arguments, folder, proxy, joined, &response, &control_plane_id)
    };
    let there = tokio::task::block_in_place(|| on_all_cores(&pairs, complete))?;
    Ok((there, notes))
}

/// Makes the proxy's folder and key. Whether they can be written at all is known before anybody joins.
fn begin(folder: &NewFolder, proxy: &NewProxy) -> anyhow::Result<EnrollmentRequest> {
    if !proxy.name.is_empty() {
        folder.make(Path::new(&proxy.name))?;
    }
    let (key, certificate_request) = generate_proxy_key_and_csr()?;
    folder.write(&Path::new(&proxy.name).join(envoy::KEY), key.expose(), 0o600)?;
    Ok(EnrollmentRequest { address: proxy.address, certificate_request })
}

/// Writes all else.
fn complete(
    arguments: &BootstrapArguments,
    folder: &NewFolder,
    proxy: &NewProxy,
    joined: &EnrolledProxy,
    response: &BootstrapResponse,
    control_plane_id: &SpiffeId,
) -> anyhow::Result<ProxyThere> {
    let own = match &*proxy.name {
        "" => folder.path.clone(),
        name => folder.path.join(name),
    };
    let (upstreams, hosts) = declared(arguments);
    let statement = ProxyStatement {
        bind: arguments.bind,
        app_address: arguments.app_address,
        upstreams,
        hosts,
        access_log_dir: arguments.access_log_dir.clone(),
        unknown: Vec::new(),
    };
    let service = arguments.services.first().context("a proxy serves one service at least")?;
    let files = Bootstrap {
        proxy: joined.id,
        service,
        statement: &statement,
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
    write(envoy::CERTIFICATE, &joined.certificate)?;
    write(envoy::ROOTS, &response.roots)?;
    for file in files {
        write(file.name, &file.content)?;
    }
    Ok(ProxyThere { joined: joined.clone(), address: proxy.address, folder: own })
}

/// Does the same with each, on as many threads as there are cores, and keeps the order.
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
        // All are started before the first is waited for.
        for share in shares.collect::<Vec<_>>() {
            let share = share.join().map_err(|_| anyhow::anyhow!("a thread panicked"))?;
            done.extend(share?);
        }
        Ok(done)
    })
}

fn tell_one(
    arguments: &BootstrapArguments,
    out: &Path,
    all: &[ProxyThere],
    notes: &[String],
    output: Output,
) -> Result<(), Unwritten> {
    let (Some(service), Some(ProxyThere { joined, .. })) =
        (arguments.services.first(), all.first())
    else {
        return Ok(());
    };
    let command = command(out);
    match output {
        Output::Json => outln!(
            "{:#}",
            json!({
                "id": joined.id,
                "folder": out,
                "expires_at": joined.expires_at,
                "command": command,
                "notes": notes,
            })
        )?,
        Output::Text => {
            outln!(
                "proxy {} joined as {service}; its certificate holds until {}",
                joined.id,
                joined.expires_at
            )?;
            outln!("its key was made here, in {}, and was sent nowhere", out.display())?;
            for note in notes {
                outln!("note: {note}")?;
            }
            outln!("start it with:\n\n  {command}\n")?;
        }
    }
    Ok(())
}

fn tell_all(
    arguments: &BootstrapArguments,
    out: &Path,
    all: &[ProxyThere],
    notes: &[String],
    output: Output,
) -> Result<(), Unwritten> {
    let (Some(service), Some(first), Some(last)) =
        (arguments.services.first(), all.first(), all.last())
    else {
        return Ok(());
    };
    match output {
        Output::Json => {
            let proxy = |there: &ProxyThere| {
                json!({
                    "id": there.joined.id,
                    "address": there.address,
                    "folder": there.folder,
                    "expires_at": there.joined.expires_at,
                    "command": command(&there.folder),
                })
            };
            let proxies: Vec<_> = all.iter().map(proxy).collect();
            outln!("{:#}", json!({ "folder": out, "proxies": proxies, "notes": notes }))?;
        }
        Output::Text => {
            outln!(
                "{} proxies joined as {service}, at {} to {}; their certificates hold until {}",
                all.len(),
                first.address,
                last.address,
                first.joined.expires_at
            )?;
            outln!("their keys were made here, in {}, and were sent nowhere", out.display())?;
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

/// The advice to root, whose shell would run the printed command as root. Envoy opens the files that its
/// configuration names, and accepts connections from the network.
fn run_by_root(folder: &Path) -> String {
    let folder = quoted(folder);
    format!(
        "running as root: start Envoy as an unprivileged user that can read {folder}, for example \
         `chown -R envoy: {folder}` and `User=envoy` in its systemd unit"
    )
}

/// How many notes a person is shown.
const SHOWN_NOTES: usize = 5;

fn admin(arguments: &BootstrapArguments) -> Admin {
    if arguments.admin_tcp { Admin::Tcp } else { Admin::Socket }
}

/// The whole command that starts an Envoy.
fn command(folder: &Path) -> String {
    let configuration = folder.join(envoy::CONFIGURATION);
    format!("envoy -c {} --disable-hot-restart --drain-time-s 30", quoted(&configuration))
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+@%:,".contains(c));
    if is_plain { text } else { format!("'{}'", text.replace('\'', r"'\''")) }
}

/// The services and the hosts that local ports stand for.
fn declared(arguments: &BootstrapArguments) -> (Vec<Upstream>, Vec<HostUpstream>) {
    let (mut upstreams, mut hosts) = (Vec::new(), Vec::new());
    for declared in &arguments.upstreams {
        match declared {
            Declared::Service(upstream) => upstreams.push(upstream.clone()),
            Declared::Host(host) => hosts.push(host.clone()),
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
