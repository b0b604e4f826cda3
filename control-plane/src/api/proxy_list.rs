//! The list of proxies for the admin API: its filter, its order and its pages.

use std::sync::Arc;

use ironmesh_admin::ApiError;
use ironmesh_api::{MAX_PROXY_PAGE, ProxyFilter, ProxyPage, ProxyQuery, SyncState, SyncView};
use ironmesh_catalog::{CertificateState, JoinRecord, ProxyId, ProxyName};
use jiff::Timestamp;

use super::RunningControlPlane;
use super::convergence::acked_revision;
use crate::reconciler::convergence::{Convergence, Lag};

impl RunningControlPlane {
    /// A page of the enrolled proxies, by name. Its cost is that of the filter for all of them, and of the views of one
    /// page.
    pub(super) fn proxy_page(&self, query: &ProxyQuery) -> Result<ProxyPage, ApiError> {
        let after = query.after.as_deref().map(parse_position).transpose()?;
        let limit = query.limit.unwrap_or(MAX_PROXY_PAGE).clamp(1, MAX_PROXY_PAGE);
        let records = self.register.all_records();
        let convergence = self.feeds.convergence.borrow().clone();
        let now = Timestamp::now();
        let matches = |record: &&Arc<JoinRecord>| {
            query.service.as_ref().is_none_or(|service| record.services.contains(service))
                && query.state.is_none_or(|state| self.is_in(record, state, &convergence, now))
        };
        let mut matching: Vec<_> = records
            .values()
            .filter(matches)
            .map(|record| (Position::of(record.display_name(), record.id), record))
            .collect();
        matching.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        let start = after.map_or(0, |after| matching.partition_point(|(one, _)| *one <= after));
        let page = matching.get(start..).unwrap_or_default();
        let has_more = page.len() > limit;
        let page = page.get(..limit).unwrap_or(page);
        let next = page.last().filter(|_| has_more);
        Ok(ProxyPage {
            next: next.map(|(position, _)| format!("{}/{}", position.name, position.id)),
            matching: matching.len(),
            proxies: page.iter().map(|(_, record)| self.view(record)).collect(),
        })
    }

    /// How far a proxy has ACKed its resources; none if it is neither connected nor was.
    pub(super) fn sync_view(
        &self,
        record: &JoinRecord,
        convergence: &Convergence,
        is_expected: bool,
    ) -> Option<SyncView> {
        let client = record.id.to_string();
        if self.hub.streams(&client) == 0 {
            // The control plane to which it is connected knows, and notes NACKs alone.
            if self.peers.connection(record.id).is_some() {
                let since = self.peers.nacks(record.id)?.since?;
                let state = SyncState::Nacked;
                return Some(SyncView { state, since: Some(since), revision: None });
            }
            if record.certificate_state(Timestamp::now()) != CertificateState::Claimed {
                return None;
            }
            let departed = convergence.departed().get(&record.id);
            return Some(SyncView {
                state: if is_expected { SyncState::Reconnecting } else { SyncState::Disconnected },
                since: departed.map(|departed| departed.since).or(record.unreachable_since),
                revision: departed.and_then(|one| acked_revision(convergence, one.acked)),
            });
        }
        if let Some(laggard) = convergence.laggards().get(&record.id) {
            return Some(SyncView {
                state: laggard.lag.into(),
                since: Some(laggard.since),
                revision: acked_revision(convergence, laggard.acked),
            });
        }
        // Before the reconciler has examined a new connection, the proxy is no laggard yet.
        Some(if self.hub.is_synced(&client) {
            let revision = convergence.revision().map(ToString::to_string);
            SyncView { state: SyncState::Synced, since: None, revision }
        } else {
            SyncView { state: SyncState::Updating, since: None, revision: None }
        })
    }

    /// Whether a proxy is connected to a control plane of the mesh.
    pub(super) fn is_connected(&self, id: ProxyId) -> bool {
        self.hub.streams(&id.to_string()) > 0 || self.peers.connection(id).is_some()
    }

    fn is_in(
        &self,
        record: &JoinRecord,
        state: ProxyFilter,
        convergence: &Convergence,
        now: Timestamp,
    ) -> bool {
        let is_connected = self.is_connected(record.id);
        let certificate = record.certificate_state(now);
        let sync = || self.sync_view(record, convergence, false).map(|sync| sync.state);
        match state {
            ProxyFilter::Connected => is_connected,
            ProxyFilter::Disconnected => !is_connected && certificate == CertificateState::Claimed,
            ProxyFilter::Unclaimed => !is_connected && certificate == CertificateState::Unclaimed,
            ProxyFilter::Expired => matches!(
                certificate,
                CertificateState::Expired | CertificateState::EnrollmentExpired
            ),
            ProxyFilter::Revoked => certificate == CertificateState::Revoked,
            ProxyFilter::Synced => is_connected && sync() == Some(SyncState::Synced),
            ProxyFilter::Stale => {
                is_connected && matches!(sync(), Some(SyncState::Updating | SyncState::Held))
            }
            ProxyFilter::Nacked => is_connected && sync() == Some(SyncState::Nacked),
            ProxyFilter::Cordoned => record.cordon.is_some() && record.revoked.is_none(),
        }
    }
}

impl From<Lag> for SyncState {
    fn from(lag: Lag) -> Self {
        match lag {
            Lag::Updating => Self::Updating,
            Lag::Nacked => Self::Nacked,
            Lag::Held => Self::Held,
        }
    }
}

/// A position in the list, as which a page ends. Proxies that are not in use may share a name.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    natural: Vec<u8>,
    name: ProxyName,
    id: ProxyId,
}

impl Position {
    fn of(name: ProxyName, id: ProxyId) -> Self {
        Self { natural: natural_key(name.as_str()), name, id }
    }
}

/// The key by which names are ordered: `web-2` is before `web-10`. Each number is preceded by its number of digits.
pub(crate) fn natural_key(name: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len() + 4);
    for part in name.as_bytes().chunk_by(|one, next| one.is_ascii_digit() == next.is_ascii_digit())
    {
        if part.first().is_some_and(u8::is_ascii_digit) {
            let zeros = part.iter().take_while(|digit| **digit == b'0').count();
            let number = part.get(zeros..).unwrap_or_default();
            // (A name has at most 253 characters.)
            key.extend([b'0', u8::try_from(number.len()).unwrap_or(u8::MAX)]);
            key.extend(number);
        } else {
            key.extend(part);
        }
    }
    key
}

fn parse_position(text: &str) -> Result<Position, ApiError> {
    let parse = || {
        let (name, id) = text.split_once('/')?;
        Some(Position::of(name.parse().ok()?, id.parse().ok()?))
    };
    parse().ok_or_else(|| {
        ApiError::BadRequest(format!(
            "`after` is `{text}`: it must be the `next` of an earlier page"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_of_a_page_parses_and_other_text_is_rejected() {
        let id = "11112222-0000-4000-8000-000000000001";
        let parsed = parse_position(&format!("web-1/{id}")).unwrap();
        assert_eq!((parsed.name.as_str(), &*parsed.id.to_string()), ("web-1", id));
        for bad in ["", "web-1", "web-1/", "/x", "web 1/x"] {
            let error = parse_position(bad).unwrap_err().to_string();
            assert!(error.contains("`next` of an earlier page"), "{error}");
        }
    }

    #[test]
    fn numbers_in_names_are_ordered_by_value() {
        let sorted =
            ["a", "a-1", "a1", "vm-2.b", "vm-10.a", "web", "web-1", "web-2", "web-10", "web-10-2"];
        let mut names = sorted;
        names.sort_by_key(|name| natural_key(name));
        assert_eq!(names, sorted);
        assert_eq!(natural_key("web-007"), natural_key("web-7"));
    }
}
