//! What calls would come to, and what another policy would change. Both look at the newest moment of the
//! mesh, and change nothing.

use std::sync::Arc;

use ironmesh_admin::{Plan, PlanRequest, Refusal};
use ironmesh_catalog::verdict::{Sight, verdict};
use ironmesh_catalog::{Proxy, Question, Snapshot, Verdict};
use ironmesh_config::{Document, load_documents, render};

use super::RunningControlPlane;
use crate::policy::advice;
use crate::policy::forecast::{Known, add_findings, forecast};
use crate::serve::admission::statement;

impl RunningControlPlane {
    pub(super) fn verdict(&self, question: &Question) -> Result<Verdict, Refusal> {
        let verdict = verdict(&*self.newest()?, question, Sight::Mesh);
        verdict.map_err(|error| Refusal::Request(advice(&error)))
    }

    pub(super) fn foresee(&self, request: &PlanRequest) -> Result<Plan, Refusal> {
        let Some(_only) = self.planning.try_lock() else {
            return Err(Refusal::Busy("another plan is being made: try again".to_owned()));
        };
        let documents = request.documents.iter();
        let loaded = load_documents(documents.map(|(path, text)| Document::new(&**path, &**text)));
        let Some(specification) = loaded.specification else {
            let drawn = render(&loaded.findings, &loaded.documents, false);
            return Err(Refusal::Request(format!("the policy would be refused:\n{drawn}")));
        };
        let snapshot = self.newest()?;
        let proxies = self.proxies_of(&snapshot);
        let sight = Sight::Mesh;
        let mut plan = forecast(&snapshot, &specification, &proxies, sight, request.resources);
        let view = self.policy.borrow().view.clone();
        // If the source holds something else than what is in force, its findings are about that.
        if view.stale_since.is_none() {
            let new: Vec<_> = loaded.findings.iter().map(Into::into).collect();
            add_findings(&mut plan, &view.findings, &new);
        }
        Ok(plan)
    }

    fn newest(&self) -> Result<Arc<Snapshot>, Refusal> {
        let snapshot = self.outlook.snapshot.borrow().clone();
        let none = || Refusal::Busy("there is no policy in force yet; see /readyz".to_owned());
        snapshot.ok_or_else(none)
    }

    /// The proxies of that moment, each with what it last said of itself.
    fn proxies_of(&self, snapshot: &Snapshot) -> Vec<Known> {
        let known = |record: &ironmesh_catalog::JoinRecord| {
            let status = self.hub.status_of(&record.id.to_string());
            // Admission has let in no other than well-formed ones.
            let said = status.as_ref().and_then(|status| statement(&status.node).ok());
            let statement = said.unwrap_or_default();
            Known {
                proxy: Proxy { record: record.clone(), statement },
                connected: status.is_some_and(|status| status.streams > 0),
            }
        };
        snapshot.inputs().records.values().map(|record| known(record)).collect()
    }
}
