//! The JSON types of active findings and of silences.

use ironmesh_catalog::{ActiveSilences, Code, ObjectRef, Silence, SilenceId, codes};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::readiness::FindingView;

/// All active findings of the mesh, errors first.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct FindingList {
    /// The findings, also the silenced ones.
    pub findings: Vec<FindingView>,
    /// How many of them are silenced.
    pub silenced: usize,
}

/// The silence of a finding, beside the finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SilencedView {
    /// The silence.
    pub id: SilenceId,
    /// Why an operator set it.
    pub reason: String,
    /// The operator who set it.
    pub by: String,
    /// When the finding is active again.
    pub until: Timestamp,
}

impl From<&Silence> for SilencedView {
    fn from(silence: &Silence) -> Self {
        Self {
            id: silence.id.clone(),
            reason: silence.reason.clone(),
            by: silence.by.clone(),
            until: silence.expires_at,
        }
    }
}

impl FindingView {
    /// Marks the finding if a silence covers it.
    pub fn mark(&mut self, silences: &ActiveSilences) {
        let code = self.code.parse();
        let silence = code.ok().and_then(|code| silences.covering(code, &self.objects));
        self.silenced = silence.map(SilencedView::from);
    }

    /// Whether it is an error.
    pub fn is_error(&self) -> bool {
        self.severity == "error"
    }

    /// Whether it is a problem, on which an operator must act: an error, or a warning that `status` counts as one.
    pub fn is_problem(&self) -> bool {
        self.is_error() || self.has_code(&codes::PROBLEMS)
    }

    /// Whether callers see the problem: no silence may hide it.
    pub fn is_outage(&self) -> bool {
        self.is_error() && self.has_code(&codes::OUTAGES)
    }

    /// Whether a silence takes the finding out of the problems.
    pub fn is_hidden(&self) -> bool {
        self.silenced.is_some() && !self.is_outage()
    }

    fn has_code(&self, codes: &[Code]) -> bool {
        self.code.parse().is_ok_and(|code| codes.contains(&code))
    }
}

/// The request to silence findings. Each key is checked by the control plane, so that its error says what is missing.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SilenceRequest {
    /// The code of the findings.
    #[serde(default)]
    pub code: String,
    /// The object of the findings; none for all findings of the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<String>,
    /// Why. Mandatory.
    #[serde(default)]
    pub reason: String,
    /// When the silence ends; this or `for` is mandatory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// After how many seconds it ends.
    #[serde(rename = "for", default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<u64>,
}

/// A silence.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct SilenceView {
    /// Its name.
    pub id: SilenceId,
    /// The state: `active`, `expired` or `removed`.
    pub state: String,
    /// The code of the findings.
    pub code: Code,
    /// The object of the findings; null for all findings of the code.
    pub object: Option<ObjectRef>,
    /// Why an operator set it.
    pub reason: String,
    /// The operator who set it.
    pub by: String,
    /// When it was set.
    pub created_at: Timestamp,
    /// When the findings are active again.
    pub expires_at: Timestamp,
    /// When it was removed; null if it was not.
    pub removed_at: Option<Timestamp>,
    /// The operator who removed it.
    pub removed_by: Option<String>,
    /// How many active findings it covers.
    pub findings: usize,
    /// How many active findings it covers in part: they have objects that no silence covers.
    pub in_part: usize,
}

/// The stored silences.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct SilenceList {
    /// The silences, the newest first.
    pub silences: Vec<SilenceView>,
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::Finding;

    use super::*;

    #[test]
    fn outage_is_a_problem_also_if_it_is_silenced() {
        let silenced = |finding: Finding| {
            let mut view = FindingView::from(&finding);
            view.silenced = Some(SilencedView {
                id: SilenceId::new(1),
                reason: "known".to_owned(),
                by: "root".to_owned(),
                until: Timestamp::UNIX_EPOCH,
            });
            (view.is_problem(), view.is_outage(), view.is_hidden())
        };
        let error = |code| silenced(Finding::error(code, None, "x"));
        let warning = |code| silenced(Finding::warning(code, None, "x"));
        assert_eq!(error(codes::NO_ENDPOINT_FOR_CALLERS), (true, true, false));
        assert_eq!(warning(codes::NO_ENDPOINT_FOR_CALLERS), (false, false, true));
        assert_eq!(error(codes::STATE_NOT_WRITTEN), (true, false, true));
        assert_eq!(warning(codes::ENDPOINTS_HELD), (true, false, true));
        assert_eq!(warning(codes::EXCLUDED_ENDPOINT), (false, false, true));
    }
}
