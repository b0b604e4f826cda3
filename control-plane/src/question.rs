//! Questions about calls that have no answer: what was wrong with them.

use ironmesh_analysis::verdict::QuestionError;
use ironmesh_config_language::closest;

/// Why a question has no answer, and what may have been meant.
pub fn advice(error: &QuestionError) -> String {
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
