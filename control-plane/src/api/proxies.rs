//! The admin API's view of proxies.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_admin::ApiError;
use ironmesh_api::{
    ApplicationView, EndpointView, ExchangeView, FindingView, JoinRecordView, NackView,
    NackedVersion, NodeView, ProxyConfig, ProxyDetail, ProxyView, ResourceView, UpstreamView,
};
use ironmesh_catalog::{
    CertificateState, Finding, JoinRecord, Proxy, ProxyId, Records, ServicePort,
};
use ironmesh_xds_server::{Exchange, ResourceStatus};
use ironmesh_xds_wire::{Node, ResourceType};
use jiff::Timestamp;

use super::revocation::reach;
use super::{RunningControlPlane, wall_time};
use crate::node_metadata::node_metadata;
use crate::reconciler::NackReport;

/// The minimum length of the beginning of a UUID.
const SHORTEST: usize = 4;

/// The most proxies that an error names where an id is ambiguous.
const NAMED: usize = 5;

impl RunningControlPlane {
    /// The proxy with this name, or whose UUID is or begins with `id`.
    pub(super) fn find(&self, id: &str) -> Result<Arc<JoinRecord>, ApiError> {
        let records = self.register.all_records();
        let id = resolve(id, SHORTEST, &records, records.keys().copied())?;
        records.get(&id).cloned().ok_or_else(|| unknown(&id))
    }

    /// The view of a proxy in the list.
    pub(super) fn view(&self, record: &Arc<JoinRecord>) -> ProxyView {
        let streams = self.hub.streams(&record.id.to_string());
        let (nacks, withheld) = self.inactive_resources(record.id);
        let findings = self.feeds.findings.borrow();
        let findings = findings.get(&record.id).into_iter().flatten();
        let duplicates = self.feeds.duplicates.borrow();
        let alarms = match record.revoked {
            Some(_) => Vec::new(),
            None => self.alarms.of_proxy(record.id, Timestamp::now()),
        };
        let findings = alarms.iter().chain(duplicates.get(&record.id)).chain(findings);
        let live = self.hub.live_streams(&record.id.to_string());
        let addresses: BTreeSet<_> = live.iter().map(|stream| stream.address).collect();
        let disconnected = self.feeds.disconnected.borrow();
        let lost = record.unreachable_since.or_else(|| disconnected.since.get(&record.id).copied());
        let was_here = |started: Timestamp| record.claimed_at.is_some_and(|at| at <= started);
        let is_expected = lost.is_none() && disconnected.grace.is_some_and(was_here);
        // Of a proxy that is connected here, nothing else matters.
        let peer = self.peers.connection(record.id).filter(|_| streams == 0);
        let is_connected = streams > 0 || peer.is_some();
        let state = state(record, is_connected, is_expected, Timestamp::now());
        let node = self.hub.node(&record.id.to_string());
        let newest = live.iter().map(|stream| stream.since).max();
        let convergence = self.feeds.convergence.borrow();
        ProxyView {
            state: state.to_owned(),
            disconnected_since: lost.filter(|_| state == "disconnected"),
            envoy_version: node
                .and_then(|node| node.envoy_version.map(|version| version.to_string()))
                .or_else(|| record.versions.envoy.clone()),
            connected_since: newest
                .map(wall_time)
                .or_else(|| peer.as_ref().map(|(since, _)| *since)),
            control_plane: peer.map(|(_, host)| host),
            sync: self.sync_view(record, &convergence, is_expected),
            called: self.is_called(record),
            leaving_since: self.leaves.since(record.id),
            streams,
            stream_addresses: addresses.into_iter().collect(),
            nacks,
            withheld,
            findings: self.marked(findings),
            record: JoinRecordView::from(&**record),
        }
    }

    /// The views of findings, marked with their silences.
    fn marked<'a>(&self, findings: impl Iterator<Item = &'a Finding>) -> Vec<FindingView> {
        let mut views: Vec<_> = findings.map(FindingView::from).collect();
        if !views.is_empty() {
            let silences = self.active_silences();
            for view in &mut views {
                view.mark(&silences);
            }
        }
        views
    }

    /// The resources that a proxy NACKs, and those that are withheld from it, at the control plane of its connection.
    pub(super) fn inactive_resources(&self, id: ProxyId) -> (Vec<NackView>, Vec<NackView>) {
        let views = |of: &[NackReport]| of.iter().map(NackView::from).collect();
        if let Some(inactive) = self.feeds.inactive_resources.borrow().get(&id) {
            return (views(&inactive.nacked), views(&inactive.withheld));
        }
        let at_peer = self.peers.nacks(id).filter(|_| self.hub.streams(&id.to_string()) == 0);
        let Some(at_peer) = at_peer else { return Default::default() };
        (at_peer.nacked.into_iter().map(|note| note.view).collect(), at_peer.withheld)
    }

    /// Whether callers dial a proxy on any of its service ports.
    fn is_called(&self, record: &JoinRecord) -> bool {
        let snapshot = self.feeds.snapshot.borrow();
        let Some(snapshot) = snapshot.as_ref() else { return false };
        let services = record.services.iter().filter_map(|name| snapshot.service(name));
        let mut ports = services.flat_map(|service| service.service_ports());
        ports.any(|(port, _)| {
            let hosts = snapshot.endpoints.get(&port);
            hosts.is_some_and(|hosts| {
                hosts.binary_search_by_key(&record.mesh_address, |host| host.address).is_ok()
            })
        })
    }

    /// The view of a proxy with all its details.
    pub(super) fn detail(&self, record: &Arc<JoinRecord>) -> ProxyDetail {
        let report = self.hub.report(&record.id.to_string());
        let exchanges = self.hub.exchanges(&record.id.to_string());
        let mut resources: BTreeMap<_, usize> = BTreeMap::new();
        for resource in report.iter().flat_map(|report| &report.resources) {
            if !resource.is_unrequested_secret() {
                *resources.entry(resource.state().word().to_owned()).or_default() += 1;
            }
        }
        let snapshot = self.feeds.snapshot.borrow().clone();
        let service = |name| snapshot.as_ref()?.service(name).cloned();
        let first = record.services.first();
        let identity =
            first.map(|first| self.mesh.trust_domain.proxy(record.id, first).to_string());
        let services = record.services.iter().filter_map(service);
        let ports = services.flat_map(|service| {
            let ports = service.service_ports().map(|(port, _)| port);
            ports.collect::<Vec<_>>()
        });
        let endpoint = |port: ServicePort| {
            let behind = (record.id, port.clone());
            let applications =
                snapshot.as_ref().and_then(|snapshot| snapshot.local_endpoints.get(&behind));
            let dialled = snapshot.as_ref().and_then(|snapshot| snapshot.endpoints.get(&port));
            let is_dialled = dialled.is_some_and(|dialled| {
                dialled.iter().any(|one| one.address == record.mesh_address)
            });
            EndpointView {
                dialled_at: (applications.is_some() && is_dialled).then_some(record.mesh_address),
                applications: applications
                    .map(|all| all.iter().map(ApplicationView::from).collect())
                    .unwrap_or_default(),
                service: port.service,
                port: port.port,
            }
        };
        let metadata = report.as_ref().and_then(|report| node_metadata(&report.node).ok());
        let proxy = Proxy { record: (**record).clone(), metadata: metadata.unwrap_or_default() };
        let upstreams = snapshot.as_ref().map(|snapshot| snapshot.upstreams_of(&proxy).services);
        ProxyDetail {
            upstreams: upstreams.iter().flatten().map(UpstreamView::from).collect(),
            proxy: self.view(record),
            identity: identity.unwrap_or_default(),
            account: first.and_then(service).map(|service| service.account.clone()),
            node: report.map(|report| node_view(&report.node)),
            endpoints: ports.map(endpoint).collect(),
            exchanges: exchanges.into_iter().map(exchange_view).collect(),
            resources,
            reach: match record.revoked {
                Some(_) => reach(record, snapshot.as_deref(), Timestamp::now()),
                None => Vec::new(),
            },
        }
    }

    /// All resources that a proxy should have.
    pub(super) fn config(&self, id: ProxyId) -> ProxyConfig {
        let report = self.hub.report(&id.to_string());
        let streams = report.as_ref().map_or(0, |report| report.streams);
        let resources = report.into_iter().flat_map(|report| report.resources);
        ProxyConfig { id, streams, resources: resources.map(resource_view).collect() }
    }
}

/// The proxy with the name `text`, or the one of `ids` that `text` is or begins. It must not be two proxies.
pub(super) fn resolve(
    text: &str,
    shortest: usize,
    records: &Records,
    ids: impl Iterator<Item = ProxyId>,
) -> Result<ProxyId, ApiError> {
    let Some(named) = by_name(records, text)? else { return identify(text, shortest, ids) };
    let is_other = |id: &ProxyId| {
        *id != named.id && text.len() >= shortest && id.to_string().starts_with(text)
    };
    let others: Vec<_> = ids.filter(is_other).collect();
    if others.is_empty() {
        return Ok(named.id);
    }
    Err(ApiError::BadRequest(format!(
        "`{text}` is the name of the proxy {} and begins the UUID of {}: give the whole UUID",
        named.id,
        listed(&others)
    )))
}

/// The proxy with this name: the one in use, or else the newest.
fn by_name<'a>(records: &'a Records, name: &str) -> Result<Option<&'a Arc<JoinRecord>>, ApiError> {
    let is_named = |record: &&Arc<JoinRecord>| {
        record.name.as_ref().is_some_and(|known| known.as_str() == name)
    };
    let now = Timestamp::now();
    let (in_use, others): (Vec<_>, Vec<_>) =
        records.values().filter(is_named).partition(|record| record.is_in_use(now));
    if in_use.len() > 1 {
        let ids: Vec<_> = in_use.iter().map(|record| record.id).collect();
        return Err(ApiError::BadRequest(format!(
            "{} proxies have the name `{name}`: give the UUID of one; they are {}",
            ids.len(),
            listed(&ids)
        )));
    }
    let newest = || others.into_iter().max_by_key(|record| record.enrolled_at);
    Ok(in_use.into_iter().next().or_else(newest))
}

/// The one of `ids` that `text` is or begins; a whole UUID needs no match.
fn identify(
    text: &str,
    shortest: usize,
    ids: impl Iterator<Item = ProxyId>,
) -> Result<ProxyId, ApiError> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    // A text that begins no UUID is a name, and one that no proxy has.
    let is_hexadecimal = text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    if text.len() < shortest && is_hexadecimal {
        let words = format!(
            "`{text}` is too short: give the first {shortest} characters of the proxy's UUID, or more"
        );
        return Err(ApiError::BadRequest(words));
    }
    let found: Vec<_> = ids.filter(|id| id.to_string().starts_with(text)).collect();
    match &found[..] {
        [] => Err(unknown(&text)),
        [id] => Ok(*id),
        several => Err(ApiError::BadRequest(format!(
            "the UUIDs of {} proxies begin with `{text}`: give more characters; they are {}",
            several.len(),
            listed(several)
        ))),
    }
}

/// The first ids of a list, and the number of the others.
fn listed(ids: &[ProxyId]) -> String {
    let named: Vec<_> = ids.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match ids.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", named.join(", "))
}

pub(super) fn unknown(id: &impl std::fmt::Display) -> ApiError {
    ApiError::NotFound(format!(
        "no proxy `{id}` is enrolled; `ironmesh proxy list` shows all that are"
    ))
}

fn state(
    record: &JoinRecord,
    is_connected: bool,
    is_expected: bool,
    now: Timestamp,
) -> &'static str {
    match record.certificate_state(now) {
        CertificateState::Revoked => "revoked",
        _ if is_connected => "connected",
        CertificateState::Expired => "expired",
        CertificateState::EnrollmentExpired => "enrollment_expired",
        CertificateState::Unclaimed => "unclaimed",
        CertificateState::Claimed if is_expected => "reconnecting",
        CertificateState::Claimed => "disconnected",
    }
}

fn exchange_view((of, exchange): (ResourceType, Exchange)) -> ExchangeView {
    let Exchange { pushes, bytes, acks, nacks } = exchange;
    ExchangeView {
        resource_type: of.to_string(),
        pushes: pushes.count,
        bytes,
        last_push: pushes.last.map(wall_time),
        acks: acks.count,
        last_ack: acks.last.map(wall_time),
        nacks: nacks.count,
        last_nack: nacks.last.map(wall_time),
    }
}

fn node_view(node: &Node) -> NodeView {
    NodeView {
        id: node.id.clone(),
        envoy_version: node.envoy_version.map(|version| version.to_string()),
        metadata: node.metadata.clone(),
    }
}

fn resource_view(status: ResourceStatus) -> ResourceView {
    ResourceView {
        resource_type: status.resource_type.to_string(),
        name: status.name.to_string(),
        state: status.state().word().to_owned(),
        version: status.wanted.as_ref().map(|wanted| wanted.version().to_string()),
        acked: status.acked.map(|version| version.to_string()),
        nacked: status
            .nack
            .map(|nack| NackedVersion { version: nack.version.to_string(), message: nack.message }),
        content: status.wanted.map(|wanted| wanted.to_json()),
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::Revocation;

    use super::*;

    #[test]
    fn short_id_names_one_proxy_or_fails_with_all_that_match() {
        let ids = [
            "11112222-0000-4000-8000-000000000001",
            "11112222-0000-4000-8000-000000000002",
            "33334444-0000-4000-8000-000000000003",
        ];
        let find = |text: &str| {
            let found = identify(text, 8, ids.iter().map(|id| id.parse().unwrap()));
            found.map(|id| id.to_string()).map_err(|error| error.to_string())
        };
        assert_eq!(find("33334444"), Ok(ids[2].to_owned()));
        assert_eq!(find(ids[0]), Ok(ids[0].to_owned()));
        let ambiguous = find("11112222-0").unwrap_err();
        for part in ["2 proxies begin with `11112222-0`", ids[0], ids[1]] {
            assert!(ambiguous.contains(part), "{ambiguous}");
        }
        assert!(!ambiguous.contains(ids[2]), "{ambiguous}");
        assert!(find("3333444").unwrap_err().contains("give the first 8 characters"));
        assert!(find("55556666").unwrap_err().starts_with("no proxy `55556666` is enrolled"));
    }

    fn record(id: &str, name: &str) -> JoinRecord {
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 15003));
        let services = vec!["shop/web".parse().unwrap()];
        let (id, now) = (id.parse().unwrap(), Timestamp::now());
        let record = JoinRecord::new(id, services, address, now, Timestamp::MAX);
        JoinRecord { name: Some(name.parse().unwrap()), ..record }
    }

    #[test]
    fn name_that_means_two_proxies_fails_with_both() {
        let one = "cafe1111-0000-4000-8000-000000000001";
        let other = "beef2222-0000-4000-8000-000000000002";
        let find = |names: [&str; 2], revoked: bool| {
            let mut second = record(other, names[1]);
            second.revoked = revoked.then(|| Revocation::by_operator(Timestamp::now(), None));
            let records = [record(one, names[0]), second];
            let records: Records =
                records.into_iter().map(|record| (record.id, Arc::new(record))).collect();
            move |text: &str| {
                let found = resolve(text, SHORTEST, &records, records.keys().copied());
                found.map(|id| id.to_string()).map_err(|error| error.to_string())
            }
        };
        // A name, and the beginning of a different UUID.
        let error = find(["web", "cafe"], false)("cafe").unwrap_err();
        assert!(error.contains(one) && error.contains(other), "{error}");
        assert_eq!(find(["cafe", "web"], false)("cafe"), Ok(one.to_owned()));
        // Shorter than the least beginning.
        assert_eq!(find(["web", "caf"], false)("caf"), Ok(other.to_owned()));
        // Two proxies in use, and one in use.
        let error = find(["web", "web"], false)("web").unwrap_err();
        assert!(error.contains(one) && error.contains(other), "{error}");
        assert_eq!(find(["web", "web"], true)("web"), Ok(one.to_owned()));
        assert_eq!(find(["web", "web"], false)(other), Ok(other.to_owned()));
    }
}
