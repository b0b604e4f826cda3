//! Endpoint statuses: whether each endpoint is used, and the reason if it is not.

use super::*;
use crate::endpoint::Exclusion;
use crate::snapshot::{EndpointState, EndpointStatus, ExclusionReason};

const AT: Timestamp = Timestamp::UNIX_EPOCH;

pub(super) fn endpoint_statuses(snapshot: &Snapshot, past: &[JoinRecord]) -> Vec<EndpointStatus> {
    let past = past.iter().map(|record| (record.id, Arc::new(record.clone()))).collect();
    snapshot.endpoint_statuses(&"store".parse().unwrap(), &past)
}

fn states(snapshot: &Snapshot, past: &[JoinRecord]) -> Vec<EndpointState> {
    endpoint_statuses(snapshot, past).into_iter().map(|one| one.state).collect()
}

fn state(mode: Mode, endpoint: &Endpoint, records: &[JoinRecord]) -> EndpointState {
    let snapshot = assemble_in(mode, vec![endpoint.clone()], records);
    let all = states(&snapshot, &[]);
    // The reported status must agree with the endpoints that callers get.
    let dialled = of_mesh(&snapshot, "store");
    let transport = dialled.first().map(|one| one.transport);
    let expected = match all[0] {
        EndpointState::Participant => Some(Transport::MutualTls),
        EndpointState::Plaintext(_) => Some(Transport::Plaintext),
        EndpointState::External | EndpointState::Excluded(_) => None,
    };
    assert_eq!(transport, expected, "{all:?} and {dialled:?}");
    all.into_iter().next().unwrap()
}

#[test]
fn endpoint_is_a_participant_or_has_an_exclusion_reason() {
    let listed = endpoint("10.0.0.1", None, 1);
    let ready = record(1, "10.0.0.1", "store", true);
    let unclaimed = record(1, "10.0.0.1", "store", false);
    let connected = JoinRecord { claimed_at: Some(AT), ..unclaimed.clone() };
    let with_agent = JoinRecord { certificates: CertificateSource::Agent, ..connected.clone() };
    let mut beside = record(2, "10.0.0.1", "store", true);
    beside.mesh_address.set_port(16003);
    let revoked = JoinRecord { revoked: Some(Revocation::by_operator(AT, None)), ..ready.clone() };
    let proxies = vec![ready.id, beside.id];
    let both = [ready, beside];
    // The records, the exclusion reason, and whether callers of a permissive service use plaintext.
    let stories: [(&[JoinRecord], Option<ExclusionReason>, bool); 7] = [
        (&both[..1], None, false),
        (&[], Some(ExclusionReason::NoProxy), true),
        (&[unclaimed], Some(ExclusionReason::Unclaimed), true),
        (&[connected], Some(ExclusionReason::NotAcked { ports: vec![WEB] }), true),
        (&[with_agent], Some(ExclusionReason::NotReported { ports: vec![WEB] }), true),
        (&both, Some(ExclusionReason::SeveralProxies { proxies }), true),
        (&[revoked], Some(ExclusionReason::Revoked), false),
    ];
    for (records, why, is_plaintext) in stories {
        let out = why.clone().map_or(EndpointState::Participant, EndpointState::Excluded);
        assert_eq!(state(Mode::Strict, &listed, records), out);
        let expected = match why {
            Some(why) if is_plaintext => EndpointState::Plaintext(why),
            _ => out,
        };
        assert_eq!(state(Mode::Permissive, &listed, records), expected);
    }
}

#[test]
fn endpoint_not_yet_configured_on_its_proxy_is_not_called() {
    let mut record = record(1, "10.0.0.1", "store", true);
    record.claimed_at = Some(AT);
    record.ports_without_backend = record.participation.clone();
    let records = std::slice::from_ref(&record);
    for mode in [Mode::Strict, Mode::Permissive] {
        let known = endpoint("10.0.0.1", Some(9000), 1);
        let out = EndpointState::Excluded(ExclusionReason::NotConfigured { ports: vec![WEB] });
        assert_eq!(state(mode, &known, records), out, "{mode:?}");
        // The proxy leads calls to the target port of policy before it learns of any endpoint.
        for port in [None, Some(8080)] {
            let known = endpoint("10.0.0.1", port, 1);
            assert_eq!(
                state(mode, &known, records),
                EndpointState::Participant,
                "{mode:?}, {port:?}"
            );
        }
    }
}

#[test]
fn endpoint_status_names_its_proxy_and_mesh_address() {
    let records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.1", "store", false)];
    let snapshot = assemble(vec![endpoint("10.0.0.1", None, 1)], &records);
    let all = endpoint_statuses(&snapshot, &[]);
    let [one] = all.as_slice() else { panic!("{all:?}") };
    // Of proxies with the same mesh address, the status names the one closest to participating.
    assert_eq!((one.proxy, one.mesh_address), (Some(records[0].id), Some(records[0].mesh_address)));
    assert_eq!(one.endpoint.as_ref().map(|one| one.address), Some("10.0.0.1".parse().unwrap()));
}

#[test]
fn endpoint_with_one_unacked_port_is_excluded_on_that_port_only() {
    let mut store = service("store");
    store.ports.push(Port {
        name: Name::new("other").unwrap(),
        number: 9,
        ..store.ports[0].clone()
    });
    let record = JoinRecord { claimed_at: Some(AT), ..record(1, "10.0.0.1", "store", true) };
    let known = vec![endpoint("10.0.0.1", None, 1)];
    let snapshot = assemble_all(Mode::Strict, vec![(store, known)], &[record]);
    assert_eq!(
        states(&snapshot, &[]),
        [EndpointState::Excluded(ExclusionReason::NotAcked { ports: vec![9] })]
    );
    assert_eq!(dialled(&snapshot).len(), 1, "callers use the endpoint on the other port");
}

#[test]
fn expired_certificate_is_not_reported_as_a_missing_proxy() {
    let past = record(1, "10.0.0.1", "store", true);
    let elsewhere = record(2, "10.0.0.2", "other", true);
    let known = ["10.0.0.1", "10.0.0.2"].map(|address| endpoint(address, None, 1));
    let snapshot = assemble(known.to_vec(), &[]);
    let [ended, never] = &endpoint_statuses(&snapshot, &[past.clone(), elsewhere])[..] else {
        panic!()
    };
    assert_eq!(
        (&ended.state, ended.proxy),
        (&EndpointState::Excluded(ExclusionReason::Expired), Some(past.id))
    );
    assert_eq!(
        (&never.state, never.proxy),
        (&EndpointState::Excluded(ExclusionReason::NoProxy), None)
    );
}

#[test]
fn unreachable_proxy_is_excluded_unless_a_provider_checks_it() {
    let unreachable =
        JoinRecord { unreachable_since: Some(AT), ..record(1, "10.0.0.1", "store", true) };
    let why = || EndpointState::Excluded(ExclusionReason::Unreachable { since: AT });
    let listed = endpoint("10.0.0.1", None, 1);
    let found = Endpoint { provider: Provider::Consul, ..listed.clone() };
    for mode in [Mode::Strict, Mode::Permissive] {
        for unchecked in [&listed, &registered(&unreachable)] {
            assert_eq!(state(mode, unchecked, std::slice::from_ref(&unreachable)), why(), "{mode}");
        }
        assert_eq!(
            state(mode, &found, std::slice::from_ref(&unreachable)),
            EndpointState::Participant
        );
    }
    let reported_for = |known: &Endpoint| {
        let snapshot = assemble(vec![known.clone()], std::slice::from_ref(&unreachable));
        let reported = reported(&snapshot);
        let [one] = reported.as_slice() else { panic!("{reported:?}") };
        assert!(one.contains("no xDS stream since 1970-01-01T00:00:00Z"), "{one}");
        one.clone()
    };
    assert!(reported_for(&listed).ends_with("callers do not use it"));
    assert!(reported_for(&found).ends_with("reports that endpoint"));
    // The proxy keeps its local endpoints, since only its connection to the control plane may fail.
    let snapshot = assemble(vec![listed.clone()], std::slice::from_ref(&unreachable));
    assert_eq!(behind(&snapshot, &unreachable, "store"), [(8080, 1, Health::Healthy)]);

    // A proxy that is enrolled later at the same address replaces the unreachable one.
    let anew = |participates| [unreachable.clone(), record(2, "10.0.0.1", "store", participates)];
    assert_eq!(state(Mode::Strict, &listed, &anew(true)), EndpointState::Participant);
    assert_eq!(
        state(Mode::Strict, &listed, &anew(false)),
        EndpointState::Excluded(ExclusionReason::Unclaimed)
    );
    assert_eq!(reported(&assemble(vec![listed], &anew(true))), [""; 0]);
}

#[test]
fn proxy_without_endpoint_is_reported_once_its_provider_answers() {
    let records = [record(1, "10.0.0.1", "store", true), record(2, "10.0.0.2", "store", true)];
    let snapshot = assemble(vec![endpoint("10.0.0.1", None, 1)], &records);
    let [_, alone] = &endpoint_statuses(&snapshot, &[])[..] else { panic!() };
    assert_eq!((alone.proxy, alone.endpoint.is_none()), (Some(records[1].id), true));
    assert_eq!(alone.state, EndpointState::Excluded(ExclusionReason::NoEndpoint));
    let findings: Vec<_> = snapshot.findings().collect();
    let [finding] = findings[..] else { panic!("{findings:?}") };
    assert_eq!(finding.code.to_string(), "IM0507");
    assert!(
        finding.message.contains("no provider reports an endpoint at 10.0.0.2"),
        "{}",
        finding.message
    );

    let silent = snapshot.revise(Inputs { discovered: Discovered::default(), ..snapshot.inputs() });
    assert_eq!(reported(&silent), [""; 0]);
    assert_eq!(reported(&assemble(Vec::new(), &records)).len(), 2);
}

#[test]
fn endpoint_status_shows_drained_and_external_services() {
    let known = || vec![endpoint("10.0.0.1", None, 1)];
    let drained = Service { drained: true, ..service("store") };
    let snapshot = assemble_all(Mode::Permissive, vec![(drained, known())], &[]);
    assert_eq!(states(&snapshot, &[]), [EndpointState::Excluded(ExclusionReason::Drained)]);
    let external = External { hostname: None, resolution: Resolution::Static };
    let outside = Service { external: Some(external), ..service("store") };
    // A proxy that was enrolled for the service before it became external does not count.
    let snapshot = assemble_all(
        Mode::Strict,
        vec![(outside, known())],
        &[record(1, "10.0.0.1", "store", true)],
    );
    assert_eq!(states(&snapshot, &[]), [EndpointState::External]);
    assert_eq!(dialled(&snapshot), [("10.0.0.1:8080".to_owned(), 1)]);
}

#[test]
fn many_findings_of_one_kind_are_aggregated_per_service() {
    let listed = |n: u8| endpoint(&format!("10.0.1.{n}"), None, 1);
    let reported_for = |endpoints: u8, proxies: u8| {
        let record = |n: u8| record(n.into(), &format!("10.0.2.{n}"), "store", true);
        let records: Vec<_> = (1..=proxies).map(record).collect();
        reported(&assemble((1..=endpoints).map(listed).collect(), &records))
    };
    assert_eq!(reported_for(3, 3).len(), 6);
    let reported = reported_for(100, 50);
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(
        reported[0].contains("100 endpoints of service `default/store` get no traffic"),
        "{reported:?}"
    );
    assert!(reported[0].contains("10.0.1.1, 10.0.1.2, 10.0.1.3 and 97 more"), "{reported:?}");
    assert!(
        reported[1].contains("50 proxies of service `default/store` are not called"),
        "{reported:?}"
    );
}

#[test]
fn excluded_endpoint_is_visible_and_has_no_effect() {
    let endpoint_with = |exclusion, port| Endpoint {
        provider: Provider::Consul,
        port: Some(port),
        exclusion,
        ..endpoint("10.0.0.1", None, 1)
    };
    let ready = JoinRecord { claimed_at: Some(AT), ..record(1, "10.0.0.1", "store", true) };
    for (why, expected) in [
        (Exclusion::Port, "reports port 8500, and policy allows target port 8080"),
        (Exclusion::MeshPort, "reports port 8500, which belongs to Ironmesh"),
        (Exclusion::LocalAddress, "reports an address that every machine has"),
    ] {
        let excluded = endpoint_with(Some(why), 8500);
        let out = EndpointState::Excluded(ExclusionReason::Excluded { why });
        for mode in [Mode::Strict, Mode::Permissive] {
            assert_eq!(state(mode, &excluded, std::slice::from_ref(&ready)), out);
            assert_eq!(state(mode, &excluded, &[]), out);
        }
        let snapshot = assemble(vec![excluded], std::slice::from_ref(&ready));
        assert!(snapshot.local_endpoints.values().all(|behind| behind.is_empty()));
        let messages = reported(&snapshot);
        assert!(messages.len() == 1 && messages[0].contains(expected), "{messages:?}");
        assert!(snapshot.addresses_of(&"store".parse().unwrap()).len() == 1, "the proxy's own");
    }
    let many = vec![endpoint_with(Some(Exclusion::Port), 8500); 5];
    let messages = reported(&assemble(many, &[ready]));
    assert_eq!(messages.len(), 4, "{messages:?}");
    assert!(messages[3].starts_with("2 more endpoints of service"), "{messages:?}");
}
