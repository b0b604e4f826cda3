//! Errors of questions about calls, with suggestions.

use ironmesh_analysis::verdict::QuestionError;
use ironmesh_config_language::closest;

/// The text of an error, with the names that may have been meant.
pub fn advice(error: &QuestionError) -> String {
    let (name, known) = match error {
        QuestionError::UnknownAccount { account, known } => (account.to_string(), known),
        QuestionError::UnknownService { service, known } => (service.to_string(), known),
        QuestionError::Port(_) | QuestionError::Request(_) => return error.to_string(),
    };
    match closest(&name, known.iter().map(String::as_str)) {
        Some(near) => format!("{error}; did you mean `{near}`?"),
        None if (1..=10).contains(&known.len()) => {
            format!("{error}; known names: {}", known.join(", "))
        }
        None => error.to_string(),
    }
}
