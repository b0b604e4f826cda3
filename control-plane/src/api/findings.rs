//! The admin API's view of active findings and of silences.

use std::sync::Arc;

use ironmesh_admin::{ApiError, Principal};
use ironmesh_api::{
    FindingList, FindingView, ProxyView, RejectedAddress, SilenceList, SilenceRequest, SilenceView,
};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    ActiveSilences, Code, InvalidCode, InvalidObject, JoinRecord, ObjectRef, Silence, SilenceId,
    SilenceRemoval, SilenceState, UnknownFields,
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{RunningControlPlane, check_lines};
use crate::findings::{FindingCounts, FindingSources, counts};
use crate::journal;
use crate::silences::SilenceError;
use crate::stores::host_name;

/// How many objects an error names.
const NAMED: usize = 5;

impl RunningControlPlane {
    /// The silences that are active now.
    pub(super) fn active_silences(&self) -> ActiveSilences {
        self.silences.active(Timestamp::now(), Instant::now())
    }

    /// All active findings, marked with their silences.
    pub(super) fn active_findings(&self, now: Timestamp) -> Vec<FindingView> {
        let readiness = self.readiness_view();
        let proxies = self.proxies_with_problems(&readiness.handshakes.recent, now);
        let audit = self.audit.view_with(self.peers.audit());
        let host = host_name();
        let (readiness, proxies, audit) = (&readiness, &*proxies, &audit);
        let mut findings = FindingSources { readiness, proxies, audit, host, now }.findings();
        let silences = self.active_silences();
        for finding in &mut findings {
            finding.mark(&silences);
        }
        findings
    }

    /// The views of the proxies that may have a problem. Most have none, and a view costs more than the decision.
    fn proxies_with_problems(&self, failed: &[RejectedAddress], now: Timestamp) -> Vec<ProxyView> {
        let records = self.register.all_records();
        let convergence = self.feeds.convergence.borrow().clone();
        let may_have = |record: &&Arc<JoinRecord>| {
            let id = record.id;
            let is_at = |one: &RejectedAddress| {
                record.mesh_address.ip() == one.address || record.addresses.contains(&one.address)
            };
            !self.is_connected(id)
                || convergence.laggards().contains_key(&id)
                || self.feeds.inactive_resources.borrow().contains_key(&id)
                || self.peers.nacks(id).is_some()
                || self.feeds.findings.borrow().contains_key(&id)
                || !self.alarms.of_proxy(id, now).is_empty()
                || failed.iter().any(is_at)
        };
        records.values().filter(may_have).map(|record| self.view(record)).collect()
    }

    /// The answer of `/v1/findings`.
    pub(super) fn finding_list(&self) -> FindingList {
        let findings = self.active_findings(Timestamp::now());
        let silenced = findings.iter().filter(|finding| finding.silenced.is_some()).count();
        FindingList { findings, silenced }
    }

    /// The counts of all active findings, for the metrics.
    pub(super) fn finding_counts(&self) -> FindingCounts {
        counts(&self.active_findings(Timestamp::now()))
    }

    /// The answer of `/v1/silences`.
    pub(super) fn silence_list(&self) -> SilenceList {
        let now = Timestamp::now();
        let findings = self.active_findings(now);
        let silences = self.silences.all();
        let views = silences.iter().map(|silence| view(silence, &findings, now));
        SilenceList { silences: views.collect() }
    }

    /// Silences findings. Blocks on the store.
    pub(super) fn set_silence(
        &self,
        principal: &Principal,
        request: &SilenceRequest,
    ) -> Result<SilenceView, ApiError> {
        let result = self.new_silence(principal, request);
        let about = match &request.object {
            Some(object) => format!("{} {object}", request.code),
            None => request.code.clone(),
        };
        let entry = journal::silence_change(principal, &about, result.as_ref());
        self.journal.record_and_wait(entry);
        let now = Timestamp::now();
        result.map(|silence| view(&silence, &self.active_findings(now), now))
    }

    fn new_silence(
        &self,
        principal: &Principal,
        request: &SilenceRequest,
    ) -> Result<Silence, ApiError> {
        let bad = ApiError::BadRequest;
        let code: Code =
            request.code.parse().map_err(|error: InvalidCode| bad(error.to_string()))?;
        let object = request.object.as_deref().map(|object| self.object(object)).transpose()?;
        let reason = request.reason.trim().to_owned();
        if reason.is_empty() {
            let words = "a silence needs a reason, which others read: `--reason TEXT`";
            return Err(bad(words.to_owned()));
        }
        check_lines(&[&Some(reason.clone())])?;
        let now = Timestamp::now();
        let expires_at = expiry(request, now).map_err(bad)?;
        is_active_finding(code, object.as_ref(), &self.active_findings(now))
            .map_err(ApiError::NotFound)?;
        let silence = |id| Silence {
            id,
            code,
            object: object.clone(),
            reason: reason.clone(),
            by: operator_name(principal),
            created_at: now,
            expires_at,
            removed: None,
            unknown: UnknownFields::default(),
        };
        self.silences.create(silence, now).map_err(|error| match error {
            SilenceError::TooMany => bad(error.to_string()),
            SilenceError::Store(_) => ApiError::Internal(chain(&error)),
        })
    }

    /// The object of this text, in which a proxy may have its name in place of its UUID.
    fn object(&self, text: &str) -> Result<ObjectRef, ApiError> {
        text.parse().or_else(|invalid: InvalidObject| match text.strip_prefix("proxy:") {
            Some(name) if !name.is_empty() => Ok(ObjectRef::Proxy(self.find(name)?.id)),
            _ => Err(ApiError::BadRequest(invalid.to_string())),
        })
    }

    /// Removes a silence. Blocks on the store.
    pub(super) fn end_silence(
        &self,
        principal: &Principal,
        id: &SilenceId,
    ) -> Result<SilenceView, ApiError> {
        let now = Timestamp::now();
        let removal = SilenceRemoval { at: now, by: operator_name(principal) };
        let result = self.silences.remove(id, &removal);
        let result = result.map_err(|error| ApiError::Internal(chain(&error))).and_then(|found| {
            let unknown = || format!("no silence `{id}`: see `ironmesh finding list`");
            found.ok_or_else(|| ApiError::NotFound(unknown()))
        });
        // One that had ended before is not changed.
        if !matches!(&result, Ok((_, false))) {
            let ended = result.as_ref().map(|(silence, _)| silence);
            let entry = journal::silence_change(principal, &id.to_string(), ended);
            self.journal.record_and_wait(entry);
        }
        result.map(|(silence, _)| view(&silence, &self.active_findings(now), now))
    }
}

/// The name of an operator, for people.
fn operator_name(principal: &Principal) -> String {
    journal::principal_name(principal).unwrap_or_else(|| "an unknown user".to_owned())
}

/// The end of a requested silence.
fn expiry(request: &SilenceRequest, now: Timestamp) -> Result<Timestamp, String> {
    let days = Silence::MAX_LENGTH.as_hours() / 24;
    let expires_at = match (request.expires_at, request.seconds) {
        (Some(_), Some(_)) => return Err("a silence has one end: `for` or `expires_at`".to_owned()),
        (None, None) => {
            return Err(format!(
                "a silence needs an end, at most {days} days from now: `--for 2h` or `--until TIME`"
            ));
        }
        (Some(at), None) => at,
        (None, Some(seconds)) => {
            let length = SignedDuration::from_secs(i64::try_from(seconds).unwrap_or(i64::MAX));
            now.checked_add(length).unwrap_or(Timestamp::MAX)
        }
    };
    if expires_at <= now {
        return Err(format!("the end of a silence is in the future; {expires_at:.0} is over"));
    }
    if expires_at.duration_since(now) > Silence::MAX_LENGTH {
        return Err(format!(
            "a silence lasts at most {days} days; {expires_at:.0} is later: silence it again then, if it must be"
        ));
    }
    Ok(expires_at)
}

/// Fails unless there is an active finding of this code and object.
fn is_active_finding(
    code: Code,
    object: Option<&ObjectRef>,
    findings: &[FindingView],
) -> Result<(), String> {
    let text = code.to_string();
    let of_code: Vec<_> = findings.iter().filter(|finding| finding.code == text).collect();
    let see = "`ironmesh finding list` shows all active findings with their objects";
    if of_code.is_empty() {
        return Err(format!("no active finding has the code {code}: {see}"));
    }
    let Some(object) = object else { return Ok(()) };
    let mut objects = of_code.iter().flat_map(|finding| &finding.objects);
    if objects.any(|other| object.includes(other)) {
        return Ok(());
    }
    let known: std::collections::BTreeSet<_> =
        of_code.iter().flat_map(|finding| &finding.objects).collect();
    let named: Vec<_> = known.iter().take(NAMED).map(|object| format!("`{object}`")).collect();
    let more = known.len().saturating_sub(NAMED);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Err(if named.is_empty() {
        format!("the active findings {code} have no object: leave `--object` out")
    } else {
        format!(
            "no active finding {code} is about `{object}`: they are about {}{more}; {see}",
            named.join(", ")
        )
    })
}

/// The view of a silence, beside these active findings.
fn view(silence: &Silence, findings: &[FindingView], now: Timestamp) -> SilenceView {
    let state = silence.state(now);
    let code = silence.code.to_string();
    let about = findings.iter().filter(|finding| {
        state == SilenceState::Active
            && finding.code == code
            && silence.is_about(silence.code, &finding.objects)
    });
    let (covered, in_part): (Vec<_>, Vec<_>) = about.partition(|one| one.silenced.is_some());
    SilenceView {
        id: silence.id.clone(),
        state: state.word().to_owned(),
        code: silence.code,
        object: silence.object.clone(),
        reason: silence.reason.clone(),
        by: silence.by.clone(),
        created_at: silence.created_at,
        expires_at: silence.expires_at,
        removed_at: silence.removed.as_ref().map(|removed| removed.at),
        removed_by: silence.removed.as_ref().map(|removed| removed.by.clone()),
        findings: covered.len(),
        in_part: in_part.len(),
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{Finding, codes};

    use super::*;

    fn request(expires_at: Option<&str>, seconds: Option<u64>) -> SilenceRequest {
        let expires_at = expires_at.map(|text| text.parse().unwrap());
        SilenceRequest { expires_at, seconds, ..SilenceRequest::default() }
    }

    #[test]
    fn silence_needs_exactly_one_end_of_at_most_90_days() {
        let now: Timestamp = "2026-11-23T12:00:00Z".parse().unwrap();
        let end = |at: Option<&str>, seconds| {
            expiry(&request(at, seconds), now).map(|end| end.to_string())
        };
        let at = "2026-11-23T14:00:00Z";
        assert_eq!(end(Some(at), None).as_deref(), Ok(at));
        assert_eq!(end(None, Some(7_200)).as_deref(), Ok(at));
        assert!(end(None, Some(90 * 86_400)).is_ok());
        for (at, seconds, words) in [
            (None, None, "needs an end"),
            (Some(at), Some(60), "one end"),
            (Some("2026-11-23T11:59:59Z"), None, "is over"),
            (Some("2026-11-23T12:00:00Z"), None, "is over"),
            (None, Some(0), "is over"),
            (None, Some(90 * 86_400 + 1), "at most 90 days"),
            (None, Some(u64::MAX), "at most 90 days"),
            (Some("2027-11-23T12:00:00Z"), None, "at most 90 days"),
        ] {
            let error = end(at, seconds).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn silence_of_no_active_finding_says_what_there_is() {
        let object = |text: &str| text.parse::<ObjectRef>().unwrap();
        let expired = Finding::error(codes::PROXY_CERTIFICATE_EXPIRED, None, "x")
            .object(object("service:shop/a"));
        let plain = Finding::error(codes::STATE_NOT_WRITTEN, None, "x");
        let findings = [FindingView::from(&expired), FindingView::from(&plain)];
        let check = |code, text: Option<&str>| {
            is_active_finding(code, text.map(object).as_ref(), &findings)
        };
        assert_eq!(check(codes::PROXY_CERTIFICATE_EXPIRED, None), Ok(()));
        assert_eq!(check(codes::PROXY_CERTIFICATE_EXPIRED, Some("service:shop/a")), Ok(()));
        assert_eq!(check(codes::STATE_NOT_WRITTEN, None), Ok(()));
        for (code, text, words) in [
            (codes::PROXY_CERTIFICATE_EXPIRING, None, "no active finding has the code IM0733"),
            (Code(199), Some("service:shop/a"), "no active finding has the code IM0199"),
            (
                codes::PROXY_CERTIFICATE_EXPIRED,
                Some("service:shop/b"),
                "they are about `service:shop/a`",
            ),
            (codes::STATE_NOT_WRITTEN, Some("service:shop/a"), "leave `--object` out"),
        ] {
            let error = check(code, text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }
}
