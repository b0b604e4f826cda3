//! What a cordon, a drain or their end has changed, for people.

use std::fmt::Write as _;

use ironmesh_api::{CordonChange, CordonResult, CordonView, MachineKind, ProxyView};
use ironmesh_catalog::text::escape_line;
use ironmesh_catalog::{CordonMode, MachineDrainState, ServicePort};

/// The most ports, or proxies, that one line names.
const NAMED: usize = 10;

/// The commands by which a person drains an Envoy that was started by hand.
const BY_HAND: &str = "\
  left to do on its machine, with DIR as the folder of its bootstrap:
    curl -X POST --unix-socket DIR/admin.sock 'http://envoy/drain_listeners?inboundonly&graceful&skip_exit'
    curl --unix-socket DIR/admin.sock 'http://envoy/stats?filter=^listener.*downstream_cx_active$'
  and stop Envoy (SIGTERM) when its inbound connections are 0, or when the rest may be cut
";

/// The result of a change, or its prediction.
pub fn cordon_text(result: &CordonResult, change: CordonChange) -> String {
    let CordonResult { id, name, dry_run, is_old, cordon, ended, .. } = result;
    let mut text = String::new();
    let mut line = |words: &str| {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "{}", escape_line(words));
    };
    let state = match (cordon, change) {
        (_, CordonChange::Uncordon) if *dry_run && *is_old => "is in service".to_owned(),
        (_, CordonChange::Uncordon) if *dry_run => "would return to service".to_owned(),
        (_, CordonChange::Cordon) if *dry_run && !is_old => "would be cordoned".to_owned(),
        (_, CordonChange::Drain) if *dry_run && !is_old => "would be drained".to_owned(),
        (Some(cordon), _) if *is_old => format!("was already {cordon}"),
        (Some(cordon), _) => format!("is {cordon}"),
        (None, _) if *is_old => "was in service already".to_owned(),
        (None, _) => match ended {
            Some(ended) => format!("is in service; it was {ended}"),
            None => "is in service".to_owned(),
        },
    };
    line(&format!("proxy {name} ({id}) {state}"));
    if !result.endpoints.is_empty() && !is_old {
        let verb = if *dry_run { "would send" } else { "send" };
        let (ports, address) = (ports(&result.endpoints), result.mesh_address);
        line(&format!("  callers {verb} no new requests to {address}: {ports}"));
    }
    if !dry_run && cordon.is_some() {
        text.push_str(&acks(result));
    }
    if !dry_run {
        text.push_str(&left_to_do(result, change));
    }
    if !result.without_endpoint.is_empty() && !is_old {
        let have = if *dry_run { "would have" } else { "have" };
        let ports = ports(&result.without_endpoint);
        let _ = writeln!(text, "warning: these ports {have} no other available endpoint: {ports}");
    }
    if *dry_run {
        text.push_str("nothing was changed\n");
    }
    text
}

/// How far the callers have ACKed the cordon.
fn acks(result: &CordonResult) -> String {
    if result.acked {
        return "  all connected callers have ACKed that\n".to_owned();
    }
    let mut text = String::new();
    if !result.laggards.is_empty() {
        let some: Vec<_> = result.laggards.iter().take(NAMED).map(ToString::to_string).collect();
        let hidden = result.laggards.len() - some.len() + result.more_laggards;
        let more = if hidden == 0 { String::new() } else { format!(" and {hidden} more") };
        let _ = writeln!(text, "  not ACKed yet by: {}{more}", some.join(", "));
    }
    if !result.pending_control_planes.is_empty() {
        let hosts = result.pending_control_planes.join(", ");
        let _ = writeln!(
            text,
            "  not ACKed yet by callers at other control planes: {}",
            escape_line(&hosts)
        );
    }
    if text.is_empty() {
        text.push_str("  not published to callers yet\n");
    }
    text.push_str(
        "  repeat the command to wait again; `ironmesh proxy list --state stale` shows what these proxies lack\n",
    );
    text
}

/// What the machine does by itself, and what is left to do there.
fn left_to_do(result: &CordonResult, change: CordonChange) -> String {
    let CordonResult { name, cordon, connected, machine, ended, .. } = result;
    let was_drained = ended.as_ref().is_some_and(|ended| ended.mode == CordonMode::Drain);
    let soon = result.agent_learns_in_seconds.map(|seconds| format!(" within {seconds} s"));
    let soon = soon.unwrap_or_default();
    let mut text = String::new();
    if !connected && (cordon.is_some() || was_drained) {
        text.push_str(
            "  it is not connected: the change is recorded, and holds when it connects\n",
        );
    }
    let rest = match change {
        CordonChange::Cordon => String::new(),
        CordonChange::Uncordon if !was_drained => String::new(),
        CordonChange::Uncordon => match machine {
            MachineKind::Agent => {
                format!("  its agent starts Envoy again{soon}, if it has drained it\n")
            }
            MachineKind::OlderAgent => {
                "  on its machine: start `ironmesh-envoy`, if it is stopped\n".to_owned()
            }
            MachineKind::Unknown => String::new(),
            MachineKind::ByHand => {
                "  on its machine: start Envoy again, also if its listeners were only drained\n"
                    .to_owned()
            }
        },
        CordonChange::Drain => {
            let state = cordon.as_ref().and_then(machine_state);
            match (state, machine) {
                (Some(state), MachineKind::Agent) => format!("  its machine {state}\n"),
                (_, MachineKind::Agent) => format!(
                    "  its agent drains and ends Envoy, and begins{soon}: `ironmesh proxy show {name}` shows how far it is\n"
                ),
                (_, MachineKind::OlderAgent) => {
                    "  the agent of its machine is too old to drain it by itself: stop `ironmesh-envoy` there, which drains\n"
                        .to_owned()
                }
                (_, MachineKind::ByHand) => BY_HAND.to_owned(),
                (_, MachineKind::Unknown) => {
                    "  it has never connected: nothing is left to do\n".to_owned()
                }
            }
        }
    };
    text + &rest
}

/// How far the machine of a drained proxy is, after its agent has reported it.
pub(crate) fn machine_state(cordon: &CordonView) -> Option<String> {
    let words = match cordon.machine? {
        MachineDrainState::Draining => "drains: Envoy finishes its connections",
        MachineDrainState::Drained => "is drained: Envoy has ended",
        MachineDrainState::Unsupervised => {
            "runs Envoy without a supervisor, so the agent cannot drain it"
        }
        MachineDrainState::Unknown => "is in a state that only a newer version knows",
    };
    let since = cordon.machine_since.map(|since| format!(", since {since:.0}"));
    Some(format!("{words}{}", since.unwrap_or_default()))
}

/// Appends the cordon of a proxy, if it has one.
pub(crate) fn write_cordon(text: &mut String, proxy: &ProxyView) {
    let Some(cordon) = &proxy.record.cordon else { return };
    // (Writing to a string does not fail.)
    let _ =
        writeln!(text, "  {}: callers send it no new requests", escape_line(&cordon.to_string()));
    if let Some(state) = machine_state(cordon) {
        let _ = writeln!(text, "  its machine {state}");
    }
}

/// The note about proxies that operators have taken out of service.
pub(crate) fn note(proxies: &[ProxyView]) -> Option<String> {
    let is_out = |proxy: &&ProxyView| proxy.record.cordon.is_some() && proxy.state != "revoked";
    let out: Vec<_> = proxies.iter().filter(is_out).collect();
    if out.is_empty() {
        return None;
    }
    let words = if out.len() == 1 { "proxy is" } else { "proxies are" };
    let mut text = format!("{} {words} out of service, by an operator", out.len());
    for proxy in out.iter().take(NAMED) {
        let cordon = proxy.record.cordon.as_ref().map(ToString::to_string).unwrap_or_default();
        let _ = write!(text, "\n{}: {}", proxy.record.name, escape_line(&cordon));
    }
    if out.len() > NAMED {
        let _ = write!(
            text,
            "\nand {} more: `ironmesh proxy list --state cordoned`",
            out.len() - NAMED
        );
    }
    text.push_str("\n`ironmesh proxy uncordon NAME` returns one to service");
    Some(text)
}

fn ports(ports: &[ServicePort]) -> String {
    let named: Vec<_> = ports.iter().take(NAMED).map(ToString::to_string).collect();
    let hidden = ports.len() - named.len();
    let more = if hidden == 0 { String::new() } else { format!(" and {hidden} more") };
    format!("{}{more}", named.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> CordonResult {
        let port = ServicePort::new("shop/till".parse().unwrap(), 80);
        CordonResult {
            id: "6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f".parse().unwrap(),
            name: "till-1".parse().unwrap(),
            dry_run: false,
            is_old: false,
            cordon: Some(CordonView {
                mode: CordonMode::Drain,
                since: "2026-01-02T00:00:00Z".parse().unwrap(),
                by: Some("ann".to_owned()),
                reason: Some("new\u{1b}[2J disk".to_owned()),
                drain_since: Some("2026-01-02T00:00:05Z".parse().unwrap()),
                machine: None,
                machine_since: None,
            }),
            ended: None,
            acked: true,
            laggards: Vec::new(),
            more_laggards: 0,
            pending_control_planes: Vec::new(),
            connected: true,
            machine: MachineKind::Agent,
            agent_learns_in_seconds: Some(30),
            mesh_address: "10.0.0.1:15003".parse().unwrap(),
            endpoints: vec![port.clone()],
            without_endpoint: vec![port],
        }
    }

    #[test]
    fn drain_names_acks_the_agent_and_ports_without_endpoint() {
        let expected = "\
proxy till-1 (6f1c3f2e-0b5e-4a64-9d0e-0a5f7c1d2e3f) is drained since 2026-01-02T00:00:00Z by ann: new\\u001b[2J disk
  callers send no new requests to 10.0.0.1:15003: shop/till|80
  all connected callers have ACKed that
  its agent drains and ends Envoy, and begins within 30 s: `ironmesh proxy show till-1` shows how far it is
warning: these ports have no other available endpoint: shop/till|80
";
        assert_eq!(cordon_text(&result(), CordonChange::Drain), expected);
    }

    #[test]
    fn laggards_and_work_by_hand_are_named() {
        let laggards = (1..=12).map(|n| format!("buyer-{n}").parse().unwrap()).collect();
        let late = CordonResult {
            acked: false,
            laggards,
            more_laggards: 3,
            pending_control_planes: vec!["cp-2".to_owned()],
            machine: MachineKind::ByHand,
            is_old: true,
            ..result()
        };
        let text = cordon_text(&late, CordonChange::Drain);
        for part in [
            "was already drained since 2026-01-02T00:00:00Z",
            "not ACKed yet by: buyer-1, ",
            "buyer-10 and 5 more\n",
            "at other control planes: cp-2\n",
            "DIR/admin.sock 'http://envoy/drain_listeners?inboundonly&graceful&skip_exit'",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("warning"), "{text}");
    }

    #[test]
    fn prediction_and_return_say_what_happens() {
        let dry = CordonResult { dry_run: true, cordon: None, acked: false, ..result() };
        let text = cordon_text(&dry, CordonChange::Cordon);
        assert!(
            text.contains(") would be cordoned\n  callers would send no new requests"),
            "{text}"
        );
        assert!(text.ends_with("|80\nnothing was changed\n"), "{text}");
        let back = CordonResult {
            cordon: None,
            ended: result().cordon,
            endpoints: Vec::new(),
            without_endpoint: Vec::new(),
            ..result()
        };
        let text = cordon_text(&back, CordonChange::Uncordon);
        let was = ") is in service; it was drained since 2026-01-02T00:00:00Z by ann: new";
        let then = "\n  its agent starts Envoy again within 30 s, if it has drained it\n";
        assert!(text.contains(was) && text.ends_with(then), "{text}");
        let by_hand = CordonResult { machine: MachineKind::ByHand, connected: false, ..back };
        let text = cordon_text(&by_hand, CordonChange::Uncordon);
        assert!(text.contains("not connected") && text.contains("start Envoy again"), "{text}");
        let new = CordonResult { machine: MachineKind::Unknown, ..by_hand };
        let text = cordon_text(&new, CordonChange::Uncordon);
        assert!(text.ends_with("holds when it connects\n"), "{text}");
    }
}
