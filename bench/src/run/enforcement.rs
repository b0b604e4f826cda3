//! The time from a policy change to its enforcement by real Envoys. A grant is withdrawn and restored while a client sends
//! sequential requests. The time ends with the first request that the new policy decides.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::traffic::{APPLICATION, CallResponse, Caller, UPSTREAM, answer_all, start};
use crate::measure::median;
use crate::measured_control_plane::MeasuredControlPlane;
use crate::report::{Row, milliseconds};

/// The number of withdrawals and restorations.
const ROUNDS: usize = 25;
/// The pause between two changes, which is longer than the debounce.
const PAUSE: Duration = Duration::from_millis(120);
const GOAL: f64 = 20.0;

/// Measures with a store and a buyer, each with an Envoy.
pub(super) async fn measure(
    ironmesh: &Path,
    envoy: &Path,
    patience: Duration,
) -> anyhow::Result<Vec<Row>> {
    let mut subject = MeasuredControlPlane::prepare(ironmesh)?;
    subject.swap("policy.toml", &policy(true))?;
    subject.run().await?;
    let (store, buyer) = (subject.beside(1), subject.beside(2));
    let application = TcpListener::bind((store, APPLICATION)).await?;
    let application = tokio::spawn(answer_all(application, "store".to_owned()));
    let folder = subject.folder().to_owned();
    let address = store.to_string();
    let arguments = ["--service", "store", "--address", &address, "--app-address", &address];
    subject.bootstrap(&arguments, &folder.join("store")).await?;
    let address = buyer.to_string();
    let upstream = format!("default/store={UPSTREAM}");
    let arguments = ["--service", "buyer", "--address", &address, "--upstream", &upstream];
    subject.bootstrap(&arguments, &folder.join("buyer")).await?;
    let _envoys = [start(envoy, &folder.join("store"))?, start(envoy, &folder.join("buyer"))?];

    let mut caller = Caller::new(SocketAddr::from((buyer, UPSTREAM)), "store");
    let begun = caller.until("200", patience, |answer| answer.status == 200).await;
    begun.context("the buyer gets no 200 from the Envoys")?;
    let (mut withdrawn, mut granted) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (is_granted, status, times) in [(false, 403, &mut withdrawn), (true, 200, &mut granted)]
        {
            sleep(PAUSE).await;
            let begin = subject.swap("policy.toml", &policy(is_granted))?;
            let matches = |answer: &CallResponse| answer.status == status;
            times.push(caller.until(&status.to_string(), patience, matches).await? - begin);
        }
    }
    application.abort();
    let row = |work, times: &[Duration]| {
        Row::new(work, "ms", milliseconds(median(times))).itself_at_most(GOAL)
    };
    Ok(vec![
        row("a grant is withdrawn: to the first denied request, median", &withdrawn),
        row("a grant is restored: to the first allowed request, median", &granted),
    ])
}

fn policy(is_granted: bool) -> String {
    let target = "[[traffic_target]]\nname = \"buyers\"\ndestination = { name = \"store\" }\n\
                  sources = [{ name = \"buyer\" }]\n\
                  rules = [{ kind = \"HTTPRouteGroup\", name = \"all\" }]\n";
    format!(
        "[[service]]\nname = \"store\"\n\
         ports = [{{ name = \"web\", port = 80, protocol = \"http\", target_port = {APPLICATION} }}]\n\n\
         [[service]]\nname = \"buyer\"\n\n\
         [[http_route_group]]\nname = \"all\"\nmatches = [{{ name = \"all\" }}]\n\n{}",
        if is_granted { target } else { "" }
    )
}
