//! `ironmesh policy explain`: whether a call would be let through, and why.

mod words;

use ironmesh_admin::{Client, ClientError};
use ironmesh_catalog::verdict::{Answer, QuestionError, Sight, verdict};
use ironmesh_catalog::{Question, Records, Request, Verdict};
use ironmesh_config::closest;

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
    let (verdict, told) = answer(arguments, output).await.map_err(Unanswered)?;
    out!("{told}").map_err(|error| Unanswered(error.into()))?;
    if verdict.answer == Answer::Allowed { Ok(()) } else { Err(DENIED.into()) }
}

/// The verdict, and what is said of it.
async fn answer(
    arguments: PolicyExplainArguments,
    output: Output,
) -> anyhow::Result<(Verdict, String)> {
    let places = Places::find(&arguments.config)?;
    let offline = arguments.offline.clone();
    let question = question(arguments);
    // Of a request that nobody can make there is nothing to ask, however long it is.
    if let Some(problem) = question.request.as_ref().and_then(Request::problem) {
        return Err(Usage(problem).into());
    }
    let verdict: Verdict = match &offline {
        Some(folder) => {
            let (_, specification) = offline::load(folder, output)?;
            let snapshot = offline::snapshot(&places.settings, &specification, Records::default());
            let verdict = verdict(&snapshot, &question, Sight::PolicyAlone);
            verdict.map_err(|error| Usage(advice(&error)))?
        }
        None => match Client::new(&places.admin_socket()).explain(&question).await {
            Err(ClientError::Refused(why)) => return Err(Usage(why).into()),
            answered => answered?,
        },
    };
    let told = match output {
        Output::Json => format!("{}\n", serde_json::to_string_pretty(&verdict)?),
        Output::Text => {
            let assumed = offline.map(|_| offline::assumed(&places));
            words::verdict(&verdict, assumed.as_deref())
        }
    };
    Ok((verdict, told))
}

fn question(arguments: PolicyExplainArguments) -> Question {
    let PolicyExplainArguments { from, to, port, method, path, headers, .. } = arguments;
    let is_about_one = method.is_some() || path.is_some() || !headers.is_empty();
    let any = Request::default();
    let request = is_about_one.then(|| Request {
        method: method.unwrap_or(any.method),
        path: path.unwrap_or(any.path),
        headers,
    });
    Question { caller: from, service: to, port, request }
}

/// Why a question has no answer, and what may have been meant.
pub(crate) fn advice(error: &QuestionError) -> String {
    let (asked, known) = match error {
        QuestionError::UnknownAccount { account, known } => (account.to_string(), known),
        QuestionError::UnknownService { service, known } => (service.to_string(), known),
        QuestionError::Port(_) | QuestionError::Request(_) => return error.to_string(),
    };
    match closest(&asked, known.iter().map(String::as_str)) {
        Some(near) => format!("{error}; did you mean `{near}`?"),
        None if (1..=10).contains(&known.len()) => {
            format!("{error}; it knows: {}", known.join(", "))
        }
        None => error.to_string(),
    }
}
