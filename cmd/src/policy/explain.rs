//! `ironmesh policy explain`: whether a call would be let through, and why.

mod outside;
mod words;

use std::net::IpAddr;

use ironmesh_admin::{Client, ClientError};
use ironmesh_analysis::verdict::{
    Answer, InwardQuestion, OutwardQuestion, QuestionError, Sight, inward, outward, verdict,
};
use ironmesh_analysis::{Question, Request};
use ironmesh_catalog::{Hostname, Records, Snapshot};
use ironmesh_control_plane::advice;
use ironmesh_control_plane::forecast::offline::snapshot;
use serde::Serialize;

use super::offline;
use crate::cli::{Output, PolicyExplainArguments};
use crate::exit::{DENIED, Unanswered, Usage};
use crate::places::Places;
use crate::stdout::out;

/// Tells whether a call would be let through. To be asked about one that is not allowed is no failure, but
/// scripts learn of it by the exit code.
pub(crate) async fn explain(
    arguments: PolicyExplainArguments,
    output: Output,
) -> anyhow::Result<()> {
    let (answer, told) = answer(arguments, output).await.map_err(Unanswered)?;
    out!("{told}").map_err(|error| Unanswered(error.into()))?;
    if answer == Answer::Allowed { Ok(()) } else { Err(DENIED.into()) }
}

/// A question, by where the call comes from and where it goes.
enum Asked {
    /// In the mesh.
    Within(Question),
    /// To the outside.
    Outward(OutwardQuestion),
    /// From the outside.
    Inward(InwardQuestion),
}

/// The answer, and what is said of it.
async fn answer(
    arguments: PolicyExplainArguments,
    output: Output,
) -> anyhow::Result<(Answer, String)> {
    let places = Places::find(&arguments.config)?;
    let folder = arguments.offline.clone();
    let asked = question(arguments)?;
    let mesh = match &folder {
        None => Mesh::Running(Client::new(&places.admin_socket())),
        Some(folder) => {
            let (_, specification) = offline::load(folder, output)?;
            let snapshot = snapshot(&places.settings, &specification, Records::default());
            Mesh::Policy(Box::new(snapshot))
        }
    };
    let assumed = folder.map(|_| offline::assumed(&places));
    let assumed = assumed.as_deref();
    Ok(match asked {
        Asked::Within(question) => {
            let told = match &mesh {
                Mesh::Policy(snapshot) => known(verdict(snapshot, &question, Sight::PolicyAlone)),
                Mesh::Running(client) => answered(client.explain(&question).await),
            }?;
            let words = told_as(output, &told, || words::verdict(&told, assumed))?;
            (told.answer, words)
        }
        Asked::Outward(question) => {
            let told = match &mesh {
                Mesh::Policy(snapshot) => known(outward(snapshot, &question)),
                Mesh::Running(client) => answered(client.explain_outward(&question).await),
            }?;
            let words = told_as(output, &told, || outside::outward(&told, assumed))?;
            (told.answer, words)
        }
        Asked::Inward(question) => {
            let told = match &mesh {
                Mesh::Policy(snapshot) => known(inward(snapshot, &question)),
                Mesh::Running(client) => answered(client.explain_inward(&question).await),
            }?;
            let words = told_as(output, &told, || outside::inward(&told, assumed))?;
            (told.answer, words)
        }
    })
}

/// Who is asked.
enum Mesh {
    /// A policy folder alone.
    Policy(Box<Snapshot>),
    /// A control plane.
    Running(Client),
}

fn known<V>(verdict: Result<V, QuestionError>) -> anyhow::Result<V> {
    verdict.map_err(|error| Usage(advice(&error)).into())
}

fn answered<V>(verdict: Result<V, ClientError>) -> anyhow::Result<V> {
    match verdict {
        Err(ClientError::Rejected(why)) => Err(Usage(why).into()),
        answered => Ok(answered?),
    }
}

fn told_as(
    output: Output,
    verdict: &impl Serialize,
    words: impl FnOnce() -> String,
) -> anyhow::Result<String> {
    Ok(match output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(verdict)?),
        Output::Text => words(),
    })
}

fn question(arguments: PolicyExplainArguments) -> Result<Asked, Usage> {
    let PolicyExplainArguments {
        from, from_outside, to, to_host, port, method, path, headers, ..
    } = arguments;
    let is_about_one = method.is_some() || path.is_some() || !headers.is_empty();
    let any = Request::default();
    let request = is_about_one.then(|| Request {
        method: method.unwrap_or(any.method),
        path: path.unwrap_or(any.path),
        headers,
    });
    // Of a request that nobody can make there is nothing to ask, however long it is.
    if let Some(problem) = request.as_ref().and_then(Request::problem) {
        return Err(Usage(problem));
    }
    match (from, to, to_host) {
        (Some(caller), Some(service), None) => {
            Ok(Asked::Within(Question { caller, service, port, request }))
        }
        (Some(caller), None, Some(to)) => {
            Ok(Asked::Outward(OutwardQuestion { caller, to, request }))
        }
        (None, Some(service), None) => {
            let (addresses, names): (Vec<_>, Vec<_>) =
                from_outside.into_iter().partition(|one| one.parse::<IpAddr>().is_ok());
            let is_name =
                |name: &String| name.starts_with("spiffe://") || Hostname::new(name).is_ok();
            if let Some(neither) = names.iter().find(|name| !is_name(name)) {
                let message = format!(
                    "`{neither}` is neither an address (10.1.2.3) nor a name of a certificate: a SPIFFE ID, or a name of DNS"
                );
                return Err(Usage(message));
            }
            let mut addresses = addresses.iter().filter_map(|one| one.parse().ok());
            let address = addresses.next();
            if let Some(other) = addresses.next() {
                let message = format!("a call comes from one address: leave `{other}` out");
                return Err(Usage(message));
            }
            Ok(Asked::Inward(InwardQuestion { service, port, names, address, request }))
        }
        _ => Err(Usage("say who calls, and what: `--from` and `--to`, say".to_owned())),
    }
}
