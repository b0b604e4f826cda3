//! The hot paths. Each prepares its state first, which is not counted.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;

use anyhow::{bail, ensure};
use bytes::Bytes;
use ironmesh_xds_compile::Compiler;
use ironmesh_xds_server::delta::{DeltaOutput, DeltaStream};
use ironmesh_xds_wire::{DeltaRequest, ResourceSet, ResourceType};
use tokio::time::Instant;

use crate::mesh::{Mesh, SERVICES};

/// Their names.
pub(crate) const NAMES: [&str; 4] = ["compile", "update", "push", "reconnect"];

pub(crate) fn run(name: &str) -> anyhow::Result<()> {
    match name {
        "compile" => compile(),
        "update" => update(),
        "push" => push(),
        "reconnect" => reconnect(),
        _ => bail!("unknown path `{name}`; there are: {}", NAMES.join(", ")),
    }
}

/// What callgrind counts.
#[inline(never)]
fn hot_path<R>(work: impl FnOnce() -> R) -> R {
    black_box(work())
}

/// The first proxy of an account connects: everything in its scope is compiled and encoded.
fn compile() -> anyhow::Result<()> {
    let mesh = Mesh::new()?;
    let mut compiler = Compiler::new(Arc::clone(&mesh.snapshot));
    let compiled = hot_path(|| compiler.compile(&mesh.caller));
    ensure!(compiled.resources.of(ResourceType::Cluster).len() >= SERVICES, "the caller calls all");
    Ok(())
}

/// One document of policy is edited.
fn update() -> anyhow::Result<()> {
    let mesh = Mesh::new()?;
    let mut compiler = Compiler::new(Arc::clone(&mesh.snapshot));
    compiler.compile(&mesh.caller);
    compiler.compile(&mesh.server);
    let next = mesh.with_edited_match()?;
    let changes = hot_path(|| compiler.update(next));
    ensure!(changes.proxies.len() == 1, "only the server is affected: {changes:?}");
    Ok(())
}

/// A service has another endpoint: one stream pushes it, and gets the ACK.
fn push() -> anyhow::Result<()> {
    let (set, changed) = sets()?;
    let (mut stream, now) = (DeltaStream::new(&BTreeMap::new()), Instant::now());
    stream.on_set(set.clone(), now);
    for request in subscriptions(&set) {
        settle(&mut stream, &request, now);
    }
    let pushed = hot_path(|| {
        let outputs = stream.on_set(changed, now);
        let Some(DeltaOutput::Send(response)) = outputs.first() else { return 0 };
        let bytes: usize = response.frame().iter().map(Bytes::len).sum();
        let ack =
            DeltaRequest { nonce: response.nonce.to_string(), ..request(ResourceType::Endpoint) };
        bytes + stream.on_request(&ack, now).len()
    });
    ensure!(pushed > 1, "nothing was pushed");
    Ok(())
}

/// A client returns after a restart of the control plane, with everything in its current version.
fn reconnect() -> anyhow::Result<()> {
    let (set, _) = sets()?;
    let now = Instant::now();
    let requests: Vec<_> = subscriptions(&set)
        .into_iter()
        .map(|request| {
            let of = ResourceType::from_url(&request.type_url);
            let resources = of.into_iter().flat_map(|of| set.of(of).values());
            let versions = resources.map(|one| (one.name().to_string(), one.version().to_string()));
            DeltaRequest { initial_versions: Arc::new(versions.collect()), ..request }
        })
        .collect();
    let sent = hot_path(|| {
        let mut stream = DeltaStream::new(&BTreeMap::new());
        let mut outputs = stream.on_set(set, now);
        for request in &requests {
            outputs.extend(stream.on_request(request, now));
        }
        let sent = outputs.iter().filter(|output| match output {
            DeltaOutput::Send(response) => !response.resources.is_empty(),
            _ => false,
        });
        sent.count()
    });
    ensure!(sent == 0, "{sent} responses with resources that the client has");
    Ok(())
}

/// The set of the caller, and the same with other endpoints of one service.
fn sets() -> anyhow::Result<(ResourceSet, ResourceSet)> {
    let mesh = Mesh::new()?;
    let mut compiler = Compiler::new(Arc::clone(&mesh.snapshot));
    let set = compiler.compile(&mesh.caller).resources;
    let mut compiler = Compiler::new(mesh.with_other_endpoint()?);
    let changed = compiler.compile(&mesh.caller).resources.sharing_with(&set);
    Ok((set, changed))
}

fn request(of: ResourceType) -> DeltaRequest {
    DeltaRequest { type_url: of.url().to_owned(), ..DeltaRequest::default() }
}

/// The first request of each type, in Envoy's order.
fn subscriptions(set: &ResourceSet) -> Vec<DeltaRequest> {
    use ResourceType::{Cluster, Endpoint, Listener, Route};
    let of_type = |of: ResourceType| {
        let names = set.of(of).keys().filter(|_| !of.allows_wildcard());
        DeltaRequest { subscribe: names.collect(), ..request(of) }
    };
    [Cluster, Endpoint, Listener, Route].into_iter().map(of_type).collect()
}

/// Sends a request, and ACKs what follows.
fn settle(stream: &mut DeltaStream, request: &DeltaRequest, now: Instant) {
    let mut outputs = stream.on_request(request, now);
    while let Some(output) = outputs.pop() {
        if let DeltaOutput::Send(response) = output {
            let (type_url, nonce) = (response.type_url.into_owned(), response.nonce.to_string());
            let ack = DeltaRequest { type_url, nonce, ..DeltaRequest::default() };
            outputs.extend(stream.on_request(&ack, now));
        }
    }
}
