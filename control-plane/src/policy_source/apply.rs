//! `ironmesh policy apply`, and rollback while policy comes from releases.
//!
//! In contrast to a folder's policy, a release is durable before it is active: its operator waits for the answer, and
//! the state folder alone has the documents (docs/decisions/0059).

use ironmesh_admin::ApiError;
use ironmesh_api::{Applied, ApplyRequest, FindingView, RollbackRequest, RolledBack};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{MeshSpecification, PolicyRecord, Removals};
use ironmesh_config_language::{Document, Loaded, render};
use jiff::Timestamp;

use super::releases::{Release, ReleaseError, Releases};
use super::rollback::{find, no_longer_valid};
use super::{PolicySource, Source};

impl PolicySource {
    /// Makes a release of the documents, and activates it. Blocks on the disk.
    pub(super) fn apply(&mut self, request: ApplyRequest) -> Result<Applied, ApiError> {
        let releases = match &self.source {
            Source::Releases(source) => source.releases.clone(),
            other => return Err(ApiError::BadRequest(other_source(other))),
        };
        let ApplyRequest { documents, commit, by, message } = request;
        let documents: Vec<_> =
            documents.into_iter().map(|(path, text)| Document::new(path, text)).collect();
        Releases::check_paths(&documents).map_err(|error| self.release_error(&error))?;
        let loaded = self.loader.load(documents, Vec::new());
        let Some(specification) = &loaded.specification else {
            let rendered = render(&loaded.findings, &loaded.documents, false);
            let words = format!("the policy is rejected:\n{}", rendered.trim_end());
            return Err(ApiError::BadRequest(words));
        };
        if let Some(record) = self.active_release(&releases, &loaded) {
            return Ok(Applied {
                policy: record,
                is_old: true,
                findings: loaded.findings.iter().map(FindingView::from).collect(),
                removals: Removals::default(),
            });
        }
        let revision = loaded.revision.clone();
        let record = PolicyRecord { revision, at: Timestamp::now(), commit, by, message };
        let removals = self.removals_by(specification);
        let before = releases.current().ok().flatten();
        let published = releases.publish(&record, &loaded.documents);
        published.map_err(|error| self.release_error(&error))?;
        self.activate_release(&loaded, &record);
        releases.prune(before.as_ref());
        let findings = loaded.findings.iter().map(FindingView::from).collect();
        Ok(Applied { policy: record, is_old: false, findings, removals })
    }

    /// Makes an earlier release the current one. Blocks on the disk.
    pub(super) fn select_release(
        &mut self,
        releases: &Releases,
        request: &RollbackRequest,
    ) -> Result<RolledBack, ApiError> {
        self.check_expected(request)?;
        let records = releases.records().map_err(|error| self.release_error(&error))?;
        let old = find(&request.revision, records)?;
        let release = releases.read(&old.revision).map_err(|error| self.release_error(&error))?;
        let Release { documents, findings, .. } = release;
        let loaded = self.loader.load(documents, findings);
        let Some(specification) = &loaded.specification else {
            return Err(no_longer_valid(&old.revision, &loaded));
        };
        let removals = self.removals_by(specification);
        let findings = loaded.findings.iter().map(FindingView::from).collect();
        let is_old = self.active_release(releases, &loaded).is_some();
        let message =
            request.message.clone().unwrap_or_else(|| format!("rollback to {}", old.revision));
        let record = PolicyRecord {
            at: Timestamp::now(),
            by: request.by.clone(),
            message: Some(message),
            ..old.clone()
        };
        let policy = if is_old { old } else { record };
        if !is_old {
            releases.select(&policy.revision).map_err(|error| self.release_error(&error))?;
            // A rollback must work on a full disk, so it does not need the new record.
            if let Err(error) = releases.put_record(&policy) {
                tracing::warn!(error = chain(&error), "cannot record who rolled back and why");
            }
            self.activate_release(&loaded, &policy);
        }
        Ok(RolledBack { policy, is_old, findings, is_folder: false, folder: None, removals })
    }

    /// Activates a release that is current and durable, and stores it as the last good policy.
    fn activate_release(&mut self, loaded: &Loaded, record: &PolicyRecord) {
        let Some(specification) = &loaded.specification else { return };
        self.source_revision = Some(loaded.revision.clone());
        self.activate(specification, record, &loaded.documents, &loaded.findings);
        self.state.send_if_modified(|state| state.view.unreadable.take().is_some());
        self.keeper.keep();
    }

    /// The record of the active policy, if it is this one and the current release has all of it.
    fn active_release(&self, releases: &Releases, loaded: &Loaded) -> Option<PolicyRecord> {
        let view = &self.state.borrow().view;
        let active = view.active_record.as_ref().filter(|one| one.revision == loaded.revision)?;
        let is_stale = view.stale_since.is_some();
        let current = releases.read_current().ok()?;
        let is_current = current.documents == *loaded.documents;
        (is_current && !is_stale).then(|| active.clone())
    }

    /// The objects of the active policy that this one lacks.
    fn removals_by(&self, specification: &MeshSpecification) -> Removals {
        let active = self.state.borrow().specification.clone();
        active.map(|active| Removals::between(&active, specification)).unwrap_or_default()
    }

    /// The answer of an operation on releases that failed: nothing has changed.
    fn release_error(&self, error: &ReleaseError) -> ApiError {
        let active = self.state.borrow().view.revision.clone();
        let active = active.map_or_else(
            || "no policy is active yet".to_owned(),
            |revision| format!("revision {revision} stays active"),
        );
        match error {
            ReleaseError::Rejected(problem) => {
                ApiError::BadRequest(format!("the policy is rejected: {problem}"))
            }
            ReleaseError::Unwritable { .. } => ApiError::Internal(format!(
                "{}; {active}: free disk space, or let this user write there, and try again",
                chain(error)
            )),
            error => ApiError::Internal(format!("{}; {active}", chain(error))),
        }
    }
}

/// The error of an apply to a different source.
fn other_source(source: &Source) -> String {
    match source {
        Source::Folder(_) => format!(
            "policy comes from the folder `{}`, which the control plane follows by itself: edit the folder, or set \
             `policy.source = \"releases\"` in the settings and restart `ironmesh serve`",
            source.name()
        ),
        Source::Etcd(_) | Source::Releases(_) => format!(
            "policy comes from {}: use `ironmesh policy push` with settings that name it",
            source.name()
        ),
    }
}

#[cfg(test)]
mod tests;
