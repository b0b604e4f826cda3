//! The start of the mesh, until all proxies are configured.

use tokio::time::Instant;

use crate::control_plane::{proxies, readiness};
use crate::error::Problem;
use crate::http_client::get_once;
use crate::sidecars::{BUYER, FIRST, SECOND, SIDECARS, STORE_PORT, Sidecar, THIEF};
use crate::stage::Stage;
use crate::waiting::{ensure, eventually, milliseconds};

/// The measurements of the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Startup {
    /// Milliseconds from the start of the control plane to the buyer's first answer.
    pub(crate) first_answer: u64,
}

/// Starts the mesh and reports progress. Afterwards both versions of the store answer, the stores reach the
/// warehouse, and the thief reaches the store's front page.
pub(crate) async fn start_mesh(
    stage: &mut Stage,
    print_progress: impl Fn(&str),
) -> Result<Startup, Problem> {
    let begin = Instant::now();
    print_progress("starting the control plane");
    start_control_plane(stage).await?;
    print_progress("enrolling five proxies and starting their Envoys");
    stage.start_sidecars().await?;
    print_progress("waiting for the first answer to the buyer");
    let buyer = BUYER.socket(&stage.network, STORE_PORT);
    eventually(stage, "the buyer's first answer", async || {
        let answer = get_once(buyer, "/books/1").await?;
        ensure(answer.status == 200, || format!("{} {}", answer.status, answer.text().trim()))
    })
    .await?;
    let first_answer = milliseconds(begin);

    for sidecar in &SIDECARS {
        await_sidecar(stage, sidecar).await?;
    }
    let mut unseen = vec![FIRST.name, SECOND.name];
    eventually(stage, "answers of both versions", async || {
        let answer = get_once(buyer, "/books/1").await?;
        unseen.retain(|name| answer.application.as_deref() != Some(*name));
        ensure(unseen.is_empty(), || format!("no answer of {unseen:?} yet"))
    })
    .await?;
    let thief = THIEF.socket(&stage.network, STORE_PORT);
    eventually(stage, "an answer of the store to the thief", async || {
        let answer = get_once(thief, "/").await?;
        ensure(answer.status == 200, || format!("{} {}", answer.status, answer.text().trim()))
    })
    .await?;
    eventually(stage, "the stores to reach the warehouse", async || {
        let opened = [&stage.first, &stage.second].map(|store| store.records.opened());
        ensure(!opened.contains(&0), || format!("connections of the two: {opened:?}"))
    })
    .await?;
    Ok(Startup { first_answer })
}

/// Starts the control plane, and waits until it is ready.
async fn start_control_plane(stage: &mut Stage) -> Result<(), Problem> {
    stage.start_control_plane()?;
    let admin = stage.admin();
    eventually(stage, "the control plane to be ready", async || {
        let answer = readiness(admin).await?;
        ensure(answer.ready, || format!("waiting for {:?}", answer.waiting_for))
    })
    .await
}

/// Waits until a sidecar is ready, connected, and has ACKed the port that it serves.
pub(crate) async fn await_sidecar(stage: &Stage, sidecar: &Sidecar) -> Result<(), Problem> {
    let network = &stage.network;
    let address = network.host(sidecar.host);
    eventually(stage, &format!("the sidecar {}", sidecar.name), async || {
        sidecar.ready(network).await?;
        let all = proxies(stage.admin()).await?;
        let found = all.iter().find(|proxy| proxy.mesh_address.ip() == address);
        let is_ready = found.is_some_and(|proxy| {
            let serves = |port| proxy.participation.iter().any(|(_, found)| *found == port);
            proxy.streams > 0 && sidecar.serves.is_none_or(serves)
        });
        ensure(is_ready, || format!("{found:?}"))
    })
    .await
}
