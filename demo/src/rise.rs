//! How the mesh comes up, until everything in it is as it will stay.

use tokio::time::Instant;

use crate::control_plane::{proxies, readiness};
use crate::error::Problem;
use crate::http_client::get_once;
use crate::sidecars::{BUYER, FIRST, SECOND, SIDECARS, STORE_PORT, Sidecar, THIEF};
use crate::stage::Stage;
use crate::waiting::{ensure, eventually, milliseconds};

/// What it took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Risen {
    /// Milliseconds from the start of the control plane to the buyer's first answer.
    pub(crate) first_answer: u64,
}

/// Starts everything, telling what is being done. Afterwards both versions of the store serve, the
/// stores know the warehouse, and the thief knows the store.
pub(crate) async fn rise(stage: &mut Stage, tell: impl Fn(&str)) -> Result<Risen, Problem> {
    let begin = Instant::now();
    tell("starting the control plane");
    start_control_plane(stage).await?;
    tell("letting five proxies join, and starting their Envoys");
    stage.start_sidecars().await?;
    tell("waiting for the first answer to the buyer");
    let buyer = BUYER.socket(&stage.network, STORE_PORT);
    eventually(stage, "the buyer's first answer", async || {
        let answer = get_once(buyer, "/books/1").await?;
        ensure(answer.status == 200, || format!("{} {}", answer.status, answer.text().trim()))
    })
    .await?;
    let first_answer = milliseconds(begin);

    for sidecar in &SIDECARS {
        in_force(stage, sidecar).await?;
    }
    let mut unseen = vec![FIRST.name, SECOND.name];
    eventually(stage, "answers of both versions", async || {
        let answer = get_once(buyer, "/books/1").await?;
        unseen.retain(|name| answer.application.as_deref() != Some(*name));
        ensure(unseen.is_empty(), || format!("no answer of {unseen:?} yet"))
    })
    .await?;
    let thief = THIEF.socket(&stage.network, STORE_PORT);
    eventually(stage, "the thief to see the front page", async || {
        let answer = get_once(thief, "/").await?;
        ensure(answer.status == 200, || format!("{} {}", answer.status, answer.text().trim()))
    })
    .await?;
    eventually(stage, "the stores to reach the warehouse", async || {
        let opened = [&stage.first, &stage.second].map(|store| store.records.opened());
        ensure(!opened.contains(&0), || format!("connections of the two: {opened:?}"))
    })
    .await?;
    Ok(Risen { first_answer })
}

/// Starts the control plane, and waits until it serves.
async fn start_control_plane(stage: &mut Stage) -> Result<(), Problem> {
    stage.start_control_plane()?;
    let admin = stage.admin();
    eventually(stage, "the control plane to be ready", async || {
        let answer = readiness(admin).await?;
        ensure(answer.ready, || format!("waiting for {:?}", answer.waiting_for))
    })
    .await
}

/// Waits until a sidecar is ready, connected, and has in force what it serves.
pub(crate) async fn in_force(stage: &Stage, sidecar: &Sidecar) -> Result<(), Problem> {
    let network = &stage.network;
    let address = network.host(sidecar.host);
    eventually(stage, &format!("the sidecar {}", sidecar.name), async || {
        sidecar.ready(network).await?;
        let all = proxies(stage.admin()).await?;
        let found = all.iter().find(|proxy| proxy.mesh_address.ip() == address);
        let is_right = found.is_some_and(|proxy| {
            let serves = |port| proxy.participation.iter().any(|(_, found)| *found == port);
            proxy.streams > 0 && sidecar.serves.is_none_or(serves)
        });
        ensure(is_right, || format!("{found:?}"))
    })
    .await
}
