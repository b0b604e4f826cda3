//! `ironmesh policy explain`: whether a call is allowed, and why.

use ironmesh_admin::{Client, ClientError};
use ironmesh_analysis::text::{egress_verdict_text, ingress_verdict_text, verdict_text};
use ironmesh_analysis::verdict::{
    Answer, EgressQuestion, IngressQuestion, OutsideCaller, QuestionError, VerdictBasis,
    egress_verdict, ingress_verdict, verdict,
};
use ironmesh_analysis::{Question, Request};
use ironmesh_catalog::{Records, Snapshot};
use ironmesh_command_line::{Output, PolicyExplainArguments};
use ironmesh_control_plane::advice;
use ironmesh_control_plane::forecast::offline::snapshot;
use serde::Serialize;

use super::offline;
use crate::exit::{DENIED, NoAnswer, UsageError};
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::out;

/// Prints whether a call is allowed. A denied call is no failure, but scripts see it in the exit code.
pub(crate) async fn explain(
    arguments: PolicyExplainArguments,
    output: Output,
) -> anyhow::Result<()> {
    let (answer, text) = answer(arguments, output).await.map_err(NoAnswer)?;
    out!("{text}").map_err(|error| NoAnswer(error.into()))?;
    if answer == Answer::Allowed { Ok(()) } else { Err(DENIED.into()) }
}

/// A question, by the source and the destination of the call.
enum AnyQuestion {
    /// Within the mesh.
    Within(Question),
    /// To the outside.
    Outward(EgressQuestion),
    /// From the outside.
    Inward(IngressQuestion),
}

/// The answer, with the text or JSON of the verdict.
async fn answer(
    arguments: PolicyExplainArguments,
    output: Output,
) -> anyhow::Result<(Answer, String)> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    let folder = arguments.offline.clone();
    let question = question(arguments)?;
    let evaluator = match &folder {
        None => Evaluator::ControlPlane(resolved.client()),
        Some(folder) => {
            let (_, specification) = offline::load(folder, output)?;
            let snapshot = snapshot(&resolved.settings, &specification, Records::default());
            Evaluator::Policy(Box::new(snapshot))
        }
    };
    let assumptions = folder.map(|_| offline::assumptions(&resolved));
    let assumptions = assumptions.as_deref();
    Ok(match question {
        AnyQuestion::Within(question) => {
            let verdict = match &evaluator {
                Evaluator::Policy(snapshot) => {
                    from_policy(verdict(snapshot, &question, VerdictBasis::PolicyOnly))
                }
                Evaluator::ControlPlane(client) => {
                    from_control_plane(client.explain(&question).await)
                }
            }?;
            let text = render(output, &verdict, || verdict_text(&verdict, assumptions))?;
            (verdict.answer, text)
        }
        AnyQuestion::Outward(question) => {
            let verdict = match &evaluator {
                Evaluator::Policy(snapshot) => from_policy(egress_verdict(snapshot, &question)),
                Evaluator::ControlPlane(client) => {
                    from_control_plane(client.explain_outward(&question).await)
                }
            }?;
            let text = render(output, &verdict, || egress_verdict_text(&verdict, assumptions))?;
            (verdict.answer, text)
        }
        AnyQuestion::Inward(question) => {
            let verdict = match &evaluator {
                Evaluator::Policy(snapshot) => from_policy(ingress_verdict(snapshot, &question)),
                Evaluator::ControlPlane(client) => {
                    from_control_plane(client.explain_inward(&question).await)
                }
            }?;
            let text = render(output, &verdict, || ingress_verdict_text(&verdict, assumptions))?;
            (verdict.answer, text)
        }
    })
}

/// The source of a verdict.
enum Evaluator {
    /// A policy folder, without a control plane.
    Policy(Box<Snapshot>),
    /// A running control plane.
    ControlPlane(Client),
}

/// The verdict of a policy folder.
fn from_policy<V>(verdict: Result<V, QuestionError>) -> anyhow::Result<V> {
    verdict.map_err(|error| UsageError(advice(&error)).into())
}

/// The verdict of a control plane.
fn from_control_plane<V>(verdict: Result<V, ClientError>) -> anyhow::Result<V> {
    match verdict {
        Err(ClientError::Rejected(reason)) => Err(UsageError(reason).into()),
        verdict => Ok(verdict?),
    }
}

/// A verdict in the format of the output.
fn render(
    output: Output,
    verdict: &impl Serialize,
    text: impl FnOnce() -> String,
) -> anyhow::Result<String> {
    Ok(match output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(verdict)?),
        Output::Text => text(),
    })
}

/// The question that the arguments describe.
fn question(arguments: PolicyExplainArguments) -> Result<AnyQuestion, UsageError> {
    let PolicyExplainArguments {
        from, from_outside, to, to_host, port, method, path, headers, ..
    } = arguments;
    let has_request = method.is_some() || path.is_some() || !headers.is_empty();
    let any = Request::default();
    let request = has_request.then(|| Request {
        method: method.unwrap_or(any.method),
        path: path.unwrap_or(any.path),
        headers,
    });
    // An impossible request has no verdict.
    if let Some(problem) = request.as_ref().and_then(Request::problem) {
        return Err(UsageError(problem));
    }
    match (from, to, to_host) {
        (Some(caller), Some(service), None) => {
            Ok(AnyQuestion::Within(Question { caller, service, port, request }))
        }
        (Some(caller), None, Some(to)) => {
            Ok(AnyQuestion::Outward(EgressQuestion { caller, to, request }))
        }
        (None, Some(service), None) => {
            let caller = OutsideCaller::parse(from_outside);
            let OutsideCaller { names, address } =
                caller.map_err(|error| UsageError(error.to_string()))?;
            Ok(AnyQuestion::Inward(IngressQuestion { service, port, names, address, request }))
        }
        _ => Err(UsageError(
            "name the caller and the destination, for example with `--from` and `--to`".to_owned(),
        )),
    }
}
