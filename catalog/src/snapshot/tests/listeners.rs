//! Target ports at which no known endpoint listens.

use super::*;

/// A service with the target ports 80 and 81.
fn with_two_ports() -> Service {
    let mut service = service("store");
    let second = Port { number: 8081, target: 81, ..service.ports[0].clone() };
    service.ports[0].target = 80;
    service.ports.push(second);
    service
}

fn reported(port: u16) -> Endpoint {
    Endpoint { provider: Provider::Consul, ..endpoint("10.0.0.1", Some(port), 1) }
}

#[test]
fn target_port_that_no_endpoint_has_is_reported() {
    let finding = with_two_ports().ports_without_listener([Some(80), Some(80)]).unwrap();
    let text = finding.to_string();
    assert!(text.starts_with("warning[IM0512]"), "{text}");
    assert!(text.contains("port 8081 (target port 81): the endpoints have port 80"), "{text}");

    let all = vec![(with_two_ports(), vec![reported(80)])];
    assert_eq!(assemble_all(Mode::Strict, all, &[]).ports_without_listener(), [finding]);
    let all = vec![(with_two_ports(), vec![reported(80), reported(81)])];
    assert_eq!(assemble_all(Mode::Strict, all, &[]).ports_without_listener(), []);
}

#[test]
fn target_port_is_not_checked_if_endpoint_ports_are_unknown() {
    let service = with_two_ports();
    for listening in [&[][..], &[Some(80), None], &[Some(80), Some(81)]] {
        assert_eq!(service.ports_without_listener(listening.iter().copied()), None);
    }
    let one_port = Service { ports: vec![service.ports[0].clone()], ..service };
    assert_eq!(one_port.ports_without_listener([Some(9)]), None);
}
