//! Verdicts on egress and ingress calls as text for people. Pure.

use std::fmt::Write as _;
use std::net::IpAddr;

use super::{list, mismatch};
use crate::Request;
use crate::verdict::{
    Answer, CallerMismatch, EgressRuleVerdict, EgressVerdict, IngressRequestRule,
    IngressRuleVerdict, IngressVerdict, Mismatch,
};

/// A verdict on a call that leaves the mesh as text, with the assumptions of an evaluation without a control plane.
pub fn egress_verdict_text(verdict: &EgressVerdict, assumptions: Option<&str>) -> String {
    let EgressVerdict { caller, to, request, answer, .. } = verdict;
    let what = match request {
        Some(request) => format!("{} `{}` of", request.method, request.path),
        None => "call".to_owned(),
    };
    let mut text = headline(&caller.to_string(), &format!("{what} {to}, outside the mesh"), answer);
    let mut line = |line: String| {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "  {line}");
    };
    common(&mut line, assumptions, verdict.compared_path.as_deref());
    if !verdict.caller_runs {
        line(format!("no service runs as {caller}, so no proxy calls as this account"));
    }
    if let Some(reason) = &verdict.blocked_reason {
        line(format!("denied to all callers, regardless of policy: {reason}"));
    }
    if let Some(host) = &verdict.matched_host {
        line(format!("policy names it {host}"));
    }
    if verdict.passes_through {
        line(
            "egress is `passthrough` for the caller, so egress objects are not evaluated"
                .to_owned(),
        );
    } else if verdict.rules.is_empty() {
        line(format!("no egress with the source {caller} has {to} as a destination"));
    }
    for rule in &verdict.rules {
        for text in egress_lines(verdict, rule) {
            line(text);
        }
    }
    if *answer == Answer::Allowed {
        line(
            "enforced by the caller's proxy alone: an application that bypasses it is not stopped"
                .to_owned(),
        );
    } else if !matches!(answer, Answer::Rejected(_)) {
        line("the caller gets 403 or 404 from its own sidecar; a declared upstream without any egress has no listener".to_owned());
    }
    text
}

/// The lines about one egress: whether it allows the call, and if not, why.
fn egress_lines(verdict: &EgressVerdict, rule_verdict: &EgressRuleVerdict) -> Vec<String> {
    let EgressRuleVerdict { egress, protocol, rule, traffic, addresses, mismatches } = rule_verdict;
    let by = match rule {
        Some(rule) => format!("{rule} of {egress}"),
        None => egress.to_string(),
    };
    let is_tcp = protocol != "http";
    let mut lines = if is_tcp && verdict.request.is_some() {
        vec![
            format!(
                "not by {by}: it allows connections of {protocol}, by CONNECT or a declared upstream"
            ),
            "  in which requests are not visible: leave out the method, the path and headers"
                .to_owned(),
        ]
    } else if mismatches.is_empty() && is_tcp {
        vec![format!("allowed by {by}: {traffic} of {protocol}, by CONNECT or a declared upstream")]
    } else if mismatches.is_empty() {
        vec![format!("allowed by {by}: {traffic} in plain HTTP")]
    } else {
        let mut lines = vec![format!("not by {by}")];
        lines.extend(mismatch_lines(
            mismatches,
            verdict.request.as_ref(),
            verdict.compared_path.as_deref(),
        ));
        lines
    };
    if !addresses.is_empty() {
        lines.push(format!("  while the host has one of these addresses: {}", list(addresses)));
    }
    lines
}

/// A verdict on a call from outside the mesh as text, with the assumptions of an evaluation without a control plane.
pub fn ingress_verdict_text(verdict: &IngressVerdict, assumptions: Option<&str>) -> String {
    let IngressVerdict { service_port, protocol, request, answer, .. } = verdict;
    let what = match request {
        Some(request) => format!("{} `{}` of", request.method, request.path),
        None => "call".to_owned(),
    };
    let to = format!("{what} {} (port {}, {protocol})", service_port.service, service_port.port);
    let mut text = headline(&caller(verdict), &to, answer);
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    common(&mut line, assumptions, verdict.compared_path.as_deref());
    if verdict.rules.is_empty() {
        line(format!(
            "no ingress backend has port {} of {}",
            service_port.port, service_port.service
        ));
    }
    for rule in &verdict.rules {
        for text in ingress_lines(verdict, rule) {
            line(text);
        }
    }
    text
}

/// The caller from outside, by its certificate names and its address.
fn caller(verdict: &IngressVerdict) -> String {
    let names = verdict.names.iter().map(|name| format!("`{name}`"));
    let who = if verdict.names.is_empty() {
        "a caller without a certificate".to_owned()
    } else {
        format!("a caller with a certificate of {}", list(names))
    };
    match verdict.address.map(|address: IpAddr| address.to_canonical()) {
        Some(address) => format!("{who} from {address}"),
        None => who,
    }
}

/// The lines about one ingress backend: whether it allows the call, and if not, what the caller lacks.
fn ingress_lines(verdict: &IngressVerdict, rule: &IngressRuleVerdict) -> Vec<String> {
    let IngressRuleVerdict { policy, entry, allows, caller_mismatches, rules } = rule;
    let mut lines = vec![match allows {
        true => format!("allowed by {policy}: {entry}"),
        false => format!("not by {policy}: {entry}"),
    }];
    lines.extend(caller_mismatches.iter().map(|one| match one {
        CallerMismatch::Name(names) => {
            format!("  its certificate has none of the names: {}", list(names))
        }
        CallerMismatch::Address(ranges) if verdict.address.is_none() => {
            format!(
                "  its address is not given (`--from-outside`); it must be in: {}",
                list(ranges)
            )
        }
        CallerMismatch::Address(ranges) => format!("  its address is in none of: {}", list(ranges)),
    }));
    for IngressRequestRule { rule, traffic, mismatches } in rules {
        if mismatches.is_empty() {
            lines.push(format!("  {rule}: {traffic}"));
        } else if !allows {
            lines.push(format!("  not {rule}:"));
            let request = verdict.request.as_ref();
            let reasons = mismatch_lines(mismatches, request, verdict.compared_path.as_deref());
            lines.extend(reasons.into_iter().map(|reason| format!("  {reason}")));
        }
    }
    lines
}

/// The first line: the answer.
fn headline(who: &str, what: &str, answer: &Answer) -> String {
    match answer {
        Answer::Allowed | Answer::InPart => format!("allowed: {who} may {what}\n"),
        // (HTTP routes, which can redirect, apply only to calls within the mesh.)
        Answer::Denied | Answer::NoBackend | Answer::Redirected(_) => {
            format!("denied: {who} may not {what}\n")
        }
        Answer::Rejected(reason) => format!("denied: {who} may not {what}: {reason}: 400\n"),
    }
}

/// The lines that verdicts in both directions begin with.
fn common(line: &mut impl FnMut(String), assumptions: Option<&str>, compared_path: Option<&str>) {
    if let Some(assumptions) = assumptions {
        line(assumptions.to_owned());
    }
    if let Some(path) = compared_path {
        line(format!("the path is compared as `{path}`"));
    }
}

/// A line for each mismatch.
fn mismatch_lines(
    mismatches: &[Mismatch],
    request: Option<&Request>,
    path: Option<&str>,
) -> Vec<String> {
    mismatches.iter().map(|one| mismatch(one, request, path)).collect()
}
