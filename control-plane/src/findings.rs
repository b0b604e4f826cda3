//! The active findings of the mesh, in one place: `/v1/findings`, `status`, metrics and silences use this list.
//!
//! The other parts of the control plane find most of them. This module adds the problems of readiness, of the source of
//! policy, of proxies and of audit mode, which are states and not findings elsewhere.

use std::collections::{BTreeMap, HashSet};

use ironmesh_api::{AuditView, FindingView, PolicyView, ProxyView, Readiness};
use ironmesh_catalog::{ActiveSilences, Finding, ObjectRef, ServiceName, ServicePort, codes};
use jiff::Timestamp;

/// What the list is made of, at one moment.
#[derive(Debug)]
pub(crate) struct FindingSources<'a> {
    pub(crate) readiness: &'a Readiness,
    /// The proxies with any problem; others may be among them.
    pub(crate) proxies: &'a [ProxyView],
    pub(crate) audit: &'a AuditView,
    /// The host name of this control plane.
    pub(crate) host: String,
    pub(crate) now: Timestamp,
}

/// How many findings there are of a code and a severity, silenced or not.
pub(crate) type FindingCounts = BTreeMap<(String, String, bool), usize>;

impl FindingSources<'_> {
    /// All active findings, errors first. Those that [`FindingSources::problems`] adds bear no mark of a silence yet.
    pub(crate) fn findings(&self) -> Vec<FindingView> {
        let of_mesh = self.readiness.findings.iter().chain(&self.readiness.policy.findings);
        let of_proxies = self.proxies.iter().flat_map(|proxy| &proxy.findings);
        let mut findings: Vec<_> = of_mesh.cloned().collect();
        // (Those about copied certificates and identities are findings of the mesh, too.)
        let known: HashSet<_> = findings.iter().map(identity).collect();
        let new: Vec<_> =
            of_proxies.filter(|finding| !known.contains(&identity(finding))).cloned().collect();
        drop(known);
        findings.extend(new);
        findings.extend(self.problems().iter().map(FindingView::from));
        let key = |finding: &FindingView| (!finding.is_error(), finding.code.clone());
        findings.sort_by_cached_key(key);
        findings
    }

    /// The problems that are states elsewhere.
    fn problems(&self) -> Vec<Finding> {
        let policy = &self.readiness.policy;
        let not_ready = (!self.readiness.ready).then(|| self.not_ready());
        let mut problems: Vec<_> = not_ready.into_iter().chain(not_active(policy)).collect();
        for proxy in self.proxies {
            problems.extend(proxy.is_disconnected().then(|| disconnected(proxy)));
            problems.extend((!proxy.nacks.is_empty()).then(|| nacked(proxy)));
            let since = proxy.unacked_since();
            let since =
                since.filter(|since| self.now.duration_since(*since) >= ProxyView::STALE_AFTER);
            problems.extend(since.map(|since| stale(proxy, since)));
        }
        problems.extend(self.failed_handshakes());
        let port = |service: &ServiceName, port| ServicePort::new(service.clone(), port);
        problems.extend(self.audit.denied.iter().map(|denied| {
            let port = port(&denied.service, denied.port);
            let message = format!(
                "strict would deny `{}` on `{port}`: {} calls",
                denied.caller, denied.count
            );
            would_deny(&port, message)
        }));
        problems.extend(self.audit.others.iter().map(|others| {
            let port = port(&others.service, others.port);
            let message =
                format!("strict would deny {} calls of further callers on `{port}`", others.count);
            would_deny(&port, message)
        }));
        problems
    }

    fn not_ready(&self) -> Finding {
        let message = format!(
            "the control plane is not ready and serves no xDS; it waits for: {}",
            self.readiness.waiting_for.join("; ")
        );
        let help = "proxies that run keep their configuration; the log of the control plane shows what delays it";
        let host = ObjectRef::ControlPlane(self.host.clone());
        Finding::error(codes::NOT_READY, None, message).object(host).help(help)
    }

    fn failed_handshakes(&self) -> Vec<Finding> {
        let repeated = self.readiness.handshakes.recent.iter().filter(|one| one.is_repeated());
        let of_address = repeated.filter_map(|one| {
            let proxy = self.proxies.iter().find(|proxy| proxy.is_cut_off_at(one.address))?;
            let message = format!(
                "{} TLS handshakes with {}, the address of proxy {}, failed, the last at {:.0}: {}",
                one.count, one.address, proxy.record.name, one.at, one.reason
            );
            let help = "the log of its Envoy has the error of its xDS connection";
            let finding = Finding::error(codes::HANDSHAKES_FAIL, None, message);
            Some(finding.object(proxy.record.id).help(help))
        });
        of_address.collect()
    }
}

/// What distinguishes a finding from others.
fn identity(finding: &FindingView) -> (&str, &str, &[ObjectRef]) {
    (&finding.code, &finding.message, &finding.objects)
}

/// The finding about a source of policy whose content cannot be read, or is rejected. After a rollback it is neither.
fn not_active(policy: &PolicyView) -> Option<Finding> {
    // During a rollback, `stale_since` is the time of the rollback.
    let since = policy.stale_since.filter(|_| policy.rolled_back.is_none());
    let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
    let source = &policy.source;
    let message = match &policy.unreadable {
        Some(problem) => {
            format!("the policy in `{source}` cannot be read{since}: {}", problem.trim_end())
        }
        None if policy.is_rejected() => format!("the policy in `{source}` is rejected{since}"),
        None => return None,
    };
    let help = if policy.revision.is_some() {
        "the previous policy stays active; correct the policy in the source, or the access to it"
    } else {
        "no policy is active, and the control plane serves no proxy; correct the policy in the source, or the access to it"
    };
    Some(Finding::error(codes::POLICY_NOT_ACTIVE, None, message).help(help))
}

fn disconnected(proxy: &ProxyView) -> Finding {
    let record = &proxy.record;
    let services: Vec<_> = record.services.iter().map(|name| format!("`{name}`")).collect();
    let since = proxy.disconnected_since;
    let since = since.map(|since| format!(" since {since:.0}")).unwrap_or_default();
    let called = if proxy.called { "still receives calls" } else { "receives no calls" };
    let message = format!(
        "proxy {} of {} at {} is disconnected{since}, and {called}",
        record.name,
        services.join(", "),
        record.mesh_address
    );
    let help = format!(
        "check its machine and its Envoy; revoke a proxy that will not return: `ironmesh proxy revoke {}`",
        record.name
    );
    Finding::warning(codes::PROXY_DISCONNECTED, None, message).object(record.id).help(help)
}

fn nacked(proxy: &ProxyView) -> Finding {
    let resources = match proxy.nacks.len() {
        1 => "1 resource".to_owned(),
        several => format!("{several} resources"),
    };
    let message = format!("proxy {} NACKs {resources}", proxy.record.name);
    let help = "`ironmesh proxy list` shows each NACK with its reason";
    Finding::error(codes::RESOURCES_NACKED, None, message).object(proxy.record.id).help(help)
}

fn stale(proxy: &ProxyView, since: Timestamp) -> Finding {
    let name = &proxy.record.name;
    let message =
        format!("proxy {name} is connected and has not ACKed everything since {since:.0}");
    let help = format!(
        "`ironmesh proxy show {name}` shows what was pushed to it and when; its Envoy may hang"
    );
    Finding::warning(codes::PROXY_STALE, None, message).object(proxy.record.id).help(help)
}

fn would_deny(port: &ServicePort, message: String) -> Finding {
    let help = "`ironmesh status` shows the requests; to allow them, add a traffic target with the caller as a source";
    Finding::warning(codes::STRICT_WOULD_DENY, None, message).object(port).help(help)
}

/// Whether a silence takes a finding out of the problems. It never does so with an outage.
pub(crate) fn is_hidden(finding: &Finding, silences: &ActiveSilences) -> bool {
    let is_outage = finding.is_error() && codes::OUTAGES.contains(&finding.code);
    !is_outage && silences.covering(finding.code, &finding.objects).is_some()
}

/// Counts findings for the metrics.
pub(crate) fn counts(findings: &[FindingView]) -> FindingCounts {
    let mut counts = FindingCounts::new();
    for finding in findings {
        let key = (finding.code.clone(), finding.severity.clone(), finding.silenced.is_some());
        *counts.entry(key).or_default() += 1;
    }
    counts
}

#[cfg(test)]
mod tests {
    use ironmesh_api::{HandshakesView, RejectedAddress};
    use serde_json::json;

    use super::*;

    const NOW: &str = "2026-11-23T12:00:00Z";

    fn proxy(number: u8, changes: &serde_json::Value) -> ProxyView {
        let mut proxy = json!({
            "id": format!("11112222-0000-4000-8000-{number:012}"),
            "name": format!("till-{number}"),
            "services": ["shop/till"],
            "mesh_address": format!("10.0.0.{number}:15003"),
            "enrolled_at": "2026-01-01T00:00:00Z",
            "certificate_expires_at": "2027-01-01T00:00:00Z",
            "claimed_at": "2026-01-01T00:00:00Z",
            "participation": [],
            "state": "connected",
            "streams": 1,
            "stream_addresses": [],
            "nacks": [],
            "withheld": [],
            "findings": [],
        });
        let changes = changes.as_object().unwrap().clone();
        proxy.as_object_mut().unwrap().extend(changes);
        serde_json::from_value(proxy).unwrap()
    }

    fn readiness() -> Readiness {
        Readiness {
            ready: true,
            waiting_for: Vec::new(),
            policy: PolicyView { revision: Some("1".to_owned()), ..PolicyView::default() },
            findings: Vec::new(),
            handshakes: HandshakesView::default(),
            peers: Vec::new(),
        }
    }

    fn found(
        readiness: &Readiness,
        proxies: &[ProxyView],
        audit: &serde_json::Value,
    ) -> Vec<String> {
        let audit = serde_json::from_value(audit.clone()).unwrap();
        let (host, now) = ("cp-1".to_owned(), NOW.parse().unwrap());
        let sources = FindingSources { readiness, proxies, audit: &audit, host, now };
        let line = |finding: &FindingView| {
            let objects: Vec<_> = finding.objects.iter().map(ToString::to_string).collect();
            format!("{} {}", finding.code, objects.join(" "))
        };
        sources.findings().iter().map(line).collect()
    }

    fn no_audit() -> serde_json::Value {
        json!({ "since": NOW, "denied": [], "others": [] })
    }

    #[test]
    fn each_state_that_is_a_problem_is_a_finding_with_its_object() {
        let mut state = readiness();
        state.ready = false;
        state.policy.unreadable = Some("permission denied".to_owned());
        state.handshakes.recent = vec![
            RejectedAddress {
                address: "10.0.0.4".parse().unwrap(),
                count: 2,
                reason: "expired".to_owned(),
                at: NOW.parse().unwrap(),
            },
            RejectedAddress {
                address: "10.0.0.1".parse().unwrap(),
                count: 1,
                reason: "once".to_owned(),
                at: NOW.parse().unwrap(),
            },
        ];
        let nack = json!({
            "resource_type": "cluster", "name": "x", "version": "1", "message": "bad",
            "fallback": "closed", "policy": [],
        });
        let sync = |since: &str| json!({ "sync": { "state": "updating", "since": since } });
        let proxies = [
            proxy(1, &json!({ "state": "disconnected" })),
            proxy(2, &json!({ "nacks": [nack] })),
            proxy(3, &sync("2026-11-23T11:59:00Z")),
            proxy(4, &json!({ "state": "expired" })),
            proxy(5, &sync("2026-11-23T11:59:30Z")),
            proxy(6, &json!({})),
        ];
        let times = json!({ "first_seen": NOW, "last_seen": NOW });
        let mut denied = json!({
            "caller": "shop/buyer", "service": "shop/till", "port": 80, "count": 3, "requests": [],
        });
        denied.as_object_mut().unwrap().extend(times.as_object().unwrap().clone());
        let audit = json!({ "since": NOW, "denied": [denied], "others": [] });
        let id = |number: u8| format!("proxy:11112222-0000-4000-8000-{number:012}");
        assert_eq!(
            found(&state, &proxies, &audit),
            [
                "IM0724 control_plane:cp-1".to_owned(),
                "IM0725 ".to_owned(),
                format!("IM0727 {}", id(2)),
                format!("IM0729 {}", id(4)),
                format!("IM0726 {}", id(1)),
                format!("IM0728 {}", id(3)),
                "IM0751 port:shop/till|80".to_owned(),
            ]
        );
    }

    #[test]
    fn healthy_mesh_has_no_finding() {
        assert!(found(&readiness(), &[proxy(1, &json!({}))], &no_audit()).is_empty());
    }

    #[test]
    fn finding_of_a_proxy_that_is_one_of_the_mesh_is_listed_once() {
        let mut state = readiness();
        let finding = Finding::error(codes::DUPLICATE_IDENTITY, None, "live twice");
        state.findings = vec![FindingView::from(&finding)];
        let mut one = proxy(1, &json!({}));
        one.findings = vec![
            FindingView::from(&finding),
            FindingView::from(&Finding::error(codes::LOCAL_PORT_HELD, None, "held")),
        ];
        assert_eq!(found(&state, &[one], &no_audit()), ["IM0413 ", "IM0713 "]);
    }
}
