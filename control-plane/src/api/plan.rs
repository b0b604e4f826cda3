//! Answers to questions about calls, and plans of policy changes. Both use the newest snapshot, and change nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_admin::{ApiError, Cancellation};
use ironmesh_analysis::verdict::{QuestionError, VerdictBasis};
use ironmesh_api::{Plan, PlanRequest};
use ironmesh_catalog::text::escape_line;
use ironmesh_catalog::{Proxy, Snapshot};
use ironmesh_config_language::{Document, load_documents, render};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};

use super::RunningControlPlane;
use crate::forecast::{ForecastProxy, add_findings, forecast};
use crate::node_metadata::node_metadata;
use crate::question::advice;

/// Admits one plan at a time, since each compiles all proxies twice.
#[derive(Debug, Default)]
pub(crate) struct Planning {
    /// Held while a plan is made.
    running: Mutex<()>,
    /// When the last plan was started.
    started_at: Mutex<Option<Timestamp>>,
}

impl Planning {
    fn begin(&self) -> Result<MutexGuard<'_, ()>, ApiError> {
        let Some(running) = self.running.try_lock() else {
            let since = self.started_at.lock().map(|started_at| format!(", since {started_at:.0}"));
            return Err(ApiError::Busy(format!(
                "a different plan is being computed{}: try again when it is complete",
                since.unwrap_or_default()
            )));
        };
        *self.started_at.lock() = Some(Timestamp::now());
        Ok(running)
    }
}

impl RunningControlPlane {
    /// The answer to a question about the newest snapshot.
    pub(super) fn answer_question<V>(
        &self,
        question: impl FnOnce(&Snapshot) -> Result<V, QuestionError>,
    ) -> Result<V, ApiError> {
        question(&*self.newest_snapshot()?).map_err(|error| ApiError::BadRequest(advice(&error)))
    }

    /// Predicts the effect of other policy documents.
    pub(super) fn make_plan(
        &self,
        request: &PlanRequest,
        cancellation: &Cancellation,
    ) -> Result<Plan, ApiError> {
        let _running = self.planning.begin()?;
        check_paths(request).map_err(ApiError::BadRequest)?;
        let documents = request.documents.iter();
        let loaded = load_documents(documents.map(|(path, text)| Document::new(&**path, &**text)));
        let Some(specification) = loaded.specification else {
            let rendered = render(&loaded.findings, &loaded.documents, false);
            return Err(ApiError::BadRequest(format!("the policy would be rejected:\n{rendered}")));
        };
        let snapshot = self.newest_snapshot()?;
        let proxies = self.proxies_of(&snapshot);
        let basis = VerdictBasis::Mesh;
        let is_wanted = || !cancellation.is_cancelled();
        let with_fields = request.resources;
        let plan = forecast(&snapshot, &specification, &proxies, basis, with_fields, &is_wanted);
        let mut plan = plan.map_err(|error| ApiError::Busy(error.to_string()))?;
        let view = self.policy.borrow().view.clone();
        // If the source holds a policy that is not active, its findings are about that one.
        if view.stale_since.is_none() {
            let new: Vec<_> = loaded.findings.iter().map(Into::into).collect();
            add_findings(&mut plan, &view.findings, &new);
        }
        Ok(plan)
    }

    fn newest_snapshot(&self) -> Result<Arc<Snapshot>, ApiError> {
        let snapshot = self.feeds.snapshot.borrow().clone();
        let none = || ApiError::Busy("no policy is active yet: see `ironmesh status`".to_owned());
        snapshot.ok_or_else(none)
    }

    /// The proxies of a snapshot, each with the node metadata that it reported last.
    fn proxies_of(&self, snapshot: &Snapshot) -> Vec<ForecastProxy> {
        let known = |record: &ironmesh_catalog::JoinRecord| {
            let status = self.hub.status_of(&record.id.to_string());
            // Admission accepts only well-formed node metadata.
            let reported = status.as_ref().and_then(|status| node_metadata(&status.node).ok());
            let metadata = reported.unwrap_or_default();
            ForecastProxy {
                proxy: Proxy { record: record.clone(), metadata },
                connected: status.is_some_and(|status| status.streams > 0),
            }
        };
        snapshot.inputs().records.values().map(|record| known(record)).collect()
    }
}

/// Each path may occur once: findings are shown in the text of their path.
fn check_paths(request: &PlanRequest) -> Result<(), String> {
    let mut known = BTreeSet::new();
    match request.documents.iter().find(|(path, _)| !known.insert(path)) {
        Some((path, _)) => Err(format!("there are two documents `{}`", escape_line(path))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_that_is_given_twice_is_rejected() {
        let request = |paths: &[&str]| {
            let documents = paths.iter().map(|path| ((*path).to_owned(), String::new()));
            PlanRequest { documents: documents.collect(), resources: false }
        };
        assert_eq!(check_paths(&request(&["a.toml", "b.toml"])), Ok(()));
        let twice = check_paths(&request(&["a.toml", "b.toml", "a.toml"])).unwrap_err();
        assert_eq!(twice, "there are two documents `a.toml`");
    }

    #[test]
    fn concurrent_plan_is_rejected_with_the_start_time() {
        let planning = Planning::default();
        let running = planning.begin().unwrap();
        let started_at = planning.started_at.lock().unwrap();
        let busy = planning.begin().unwrap_err().to_string();
        assert!(busy.contains(&format!("being computed, since {started_at:.0}: try")), "{busy}");
        drop(running);
        assert!(planning.begin().is_ok());
    }
}
