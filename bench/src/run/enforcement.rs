//! From policy to real Envoys: a grant is withdrawn and given again by a swap, while requests are made as
//! fast as they are answered. The time runs until the first that is judged anew.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use tokio::net::TcpListener;
use tokio::time::sleep;

use super::traffic::{APPLICATION, Answer, Caller, UPSTREAM, answer_all, start};
use crate::measure::median;
use crate::report::{Row, milliseconds};
use crate::subject::Subject;

/// How often it is withdrawn and given again.
const ROUNDS: usize = 25;
/// How long all is left alone between two changes: longer than a burst settles.
const PAUSE: Duration = Duration::from_millis(120);
const BUDGET: f64 = 20.0;

/// A store and a buyer, each behind an Envoy, and a control plane that lets the one call the other.
pub(super) async fn measure(
    ironmesh: &Path,
    envoy: &Path,
    patience: Duration,
) -> anyhow::Result<Vec<Row>> {
    let mut subject = Subject::prepare(ironmesh)?;
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
    begun.context("the Envoys do not let the buyer in")?;
    let (mut withdrawn, mut granted) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        for (is_granted, status, times) in [(false, 403, &mut withdrawn), (true, 200, &mut granted)]
        {
            sleep(PAUSE).await;
            let begin = subject.swap("policy.toml", &policy(is_granted))?;
            let is_it = |answer: &Answer| answer.status == status;
            times.push(caller.until(&status.to_string(), patience, is_it).await? - begin);
        }
    }
    application.abort();
    let row = |work, times: &[Duration]| {
        Row::new(work, "ms", milliseconds(median(times))).itself_at_most(BUDGET)
    };
    Ok(vec![
        row("a grant is withdrawn: to the first request that is denied, median", &withdrawn),
        row("a grant is given: to the first request that is let in, median", &granted),
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
