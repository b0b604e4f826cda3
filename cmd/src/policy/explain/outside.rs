//! Verdicts on calls that leave the mesh, or come from outside of it, in words.

use std::fmt::Write as _;
use std::net::IpAddr;

use ironmesh_analysis::Request;
use ironmesh_analysis::verdict::{
    Answer, InwardVerdict, Lacking, Mismatch, OutwardVerdict, RuleInward, WayInward, WayOut,
};

use super::words::{list, mismatch};

/// A verdict on a call that leaves the mesh; with what was assumed, where it is of policy alone.
pub(super) fn outward(verdict: &OutwardVerdict, assumed: Option<&str>) -> String {
    let OutwardVerdict { caller, to, request, answer, .. } = verdict;
    let what = match request {
        Some(request) => format!("{} `{}` of", request.method, request.path),
        None => "call".to_owned(),
    };
    let mut text =
        headline(&caller.to_string(), &format!("{what} {to}, outside of the mesh"), answer);
    let mut line = |words: String| {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "  {words}");
    };
    common(&mut line, assumed, verdict.compared_path.as_deref());
    if !verdict.caller_runs {
        line(format!("no service runs as {caller}: no proxy calls as it"));
    }
    if let Some(why) = &verdict.never {
        line(format!("nobody is let there, whatever policy says: {why}"));
    }
    if let Some(host) = &verdict.known_as {
        line(format!("policy speaks of it as {host}"));
    }
    if verdict.passes_through {
        line("egress is `passthrough` for the caller, so egresses are not looked at".to_owned());
    } else if verdict.ways.is_empty() {
        line(format!("no egress with {caller} among its sources is about {to}"));
    }
    for way in &verdict.ways {
        for words in way_out(verdict, way) {
            line(words);
        }
    }
    if *answer == Answer::Allowed {
        line(
            "enforced by the caller's proxy alone: an application that goes past it is not held up"
                .to_owned(),
        );
    } else if !matches!(answer, Answer::Rejected(_)) {
        line("the caller gets 403 or 404 from its own sidecar; at a declared upstream without any egress nobody listens".to_owned());
    }
    text
}

fn way_out(verdict: &OutwardVerdict, way: &WayOut) -> Vec<String> {
    let WayOut { egress, protocol, rule, way: allowed, addresses, mismatches } = way;
    let by = match rule {
        Some(rule) => format!("{rule}, which {egress} names"),
        None => egress.to_string(),
    };
    let is_of_bytes = protocol != "http";
    let mut lines = if is_of_bytes && verdict.request.is_some() {
        vec![
            format!("not by {by}: it allows connections of {protocol}, by CONNECT or a declared upstream"),
            "  on which no request is told from another: leave the method, the path and headers out".to_owned(),
        ]
    } else if mismatches.is_empty() && is_of_bytes {
        vec![format!("allowed by {by}: {allowed} of {protocol}, by CONNECT or a declared upstream")]
    } else if mismatches.is_empty() {
        vec![format!("allowed by {by}: {allowed} in plain HTTP")]
    } else {
        let mut lines = vec![format!("not by {by}")];
        lines.extend(told(mismatches, verdict.request.as_ref(), verdict.compared_path.as_deref()));
        lines
    };
    if !addresses.is_empty() {
        lines.push(format!("  while the host is at one of: {}", list(addresses)));
    }
    lines
}

/// A verdict on a call from outside of the mesh; with what was assumed, where it is of policy alone.
pub(super) fn inward(verdict: &InwardVerdict, assumed: Option<&str>) -> String {
    let InwardVerdict { asked, protocol, request, answer, .. } = verdict;
    let what = match request {
        Some(request) => format!("{} `{}` of", request.method, request.path),
        None => "call".to_owned(),
    };
    let to = format!("{what} {} (port {}, {protocol})", asked.service, asked.port);
    let mut text = headline(&caller(verdict), &to, answer);
    let mut line = |words: String| {
        let _ = writeln!(text, "  {words}");
    };
    common(&mut line, assumed, verdict.compared_path.as_deref());
    if verdict.ways.is_empty() {
        line(format!("no ingress backend is about port {} of {}", asked.port, asked.service));
    }
    for way in &verdict.ways {
        for words in way_in(verdict, way) {
            line(words);
        }
    }
    text
}

fn caller(verdict: &InwardVerdict) -> String {
    let names = verdict.names.iter().map(|name| format!("`{name}`"));
    let who = if verdict.names.is_empty() {
        "who shows no certificate".to_owned()
    } else {
        format!("who shows a certificate of {}", list(names))
    };
    match verdict.address.map(|address: IpAddr| address.to_canonical()) {
        Some(address) => format!("{who} and connects from {address}"),
        None => who,
    }
}

fn way_in(verdict: &InwardVerdict, way: &WayInward) -> Vec<String> {
    let WayInward { policy, entry, lets_in, lacking, rules } = way;
    let mut lines = vec![match lets_in {
        true => format!("allowed by {policy}: {entry}"),
        false => format!("not by {policy}: {entry}"),
    }];
    lines.extend(lacking.iter().map(|one| match one {
        Lacking::Name(names) => format!("  its certificate is of none of: {}", list(names)),
        Lacking::Address(ranges) if verdict.address.is_none() => {
            format!("  from where it connects is not said; it must be from: {}", list(ranges))
        }
        Lacking::Address(ranges) => format!("  it connects from none of: {}", list(ranges)),
    }));
    for RuleInward { rule, way, mismatches } in rules {
        if mismatches.is_empty() {
            lines.push(format!("  {rule}: {way}"));
        } else if !lets_in {
            lines.push(format!("  not {rule}:"));
            let request = verdict.request.as_ref();
            let told = told(mismatches, request, verdict.compared_path.as_deref());
            lines.extend(told.into_iter().map(|words| format!("  {words}")));
        }
    }
    lines
}

fn headline(who: &str, what: &str, answer: &Answer) -> String {
    match answer {
        Answer::Allowed | Answer::InPart => format!("allowed: {who} may {what}\n"),
        // (HTTP routes, which redirect, are about calls of the mesh alone.)
        Answer::Denied | Answer::Nowhere | Answer::Redirected(_) => {
            format!("denied: {who} may not {what}\n")
        }
        Answer::Rejected(reason) => format!("denied: {who} may not {what}: {reason}: 400\n"),
    }
}

fn common(line: &mut impl FnMut(String), assumed: Option<&str>, compared_path: Option<&str>) {
    if let Some(assumed) = assumed {
        line(assumed.to_owned());
    }
    if let Some(path) = compared_path {
        line(format!("the path is compared as `{path}`"));
    }
}

fn told(mismatches: &[Mismatch], request: Option<&Request>, path: Option<&str>) -> Vec<String> {
    mismatches.iter().map(|one| mismatch(one, request, path)).collect()
}
