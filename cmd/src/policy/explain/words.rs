//! Verdicts in words: the answer first, then the way that the call goes.

use std::fmt::Write as _;

use ironmesh_catalog::verdict::{
    Answer, Destination, Enforcement, Gets, Judgement, Mismatch, Miss, Permit,
};
use ironmesh_catalog::{Transport, Verdict};

/// How many endpoints are told of each destination.
const ENDPOINTS: usize = 5;

/// A verdict as text.
pub(super) fn verdict(verdict: &Verdict) -> String {
    let mut text = headline(verdict);
    let mut line = |words: String| {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "  {words}");
    };
    if let Some(path) = &verdict.compared_path {
        line(format!("the path is compared as `{path}`"));
    }
    if !verdict.caller_runs {
        line(format!("no service runs as {}: no proxy calls as it", verdict.caller));
    }
    if let Some(split) = &verdict.split {
        line(format!("the calls are split by {split}"));
    }
    let all: u64 = verdict.destinations.iter().map(|one| u64::from(one.weight)).sum();
    for one in &verdict.destinations {
        let share = match &verdict.split {
            Some(_) => format!("{}/{all} to ", one.weight),
            None => String::new(),
        };
        text.push_str(&destination(verdict, one, &share));
    }
    text
}

fn headline(verdict: &Verdict) -> String {
    let Verdict { caller, asked, protocol, .. } = verdict;
    let what = match &verdict.request {
        Some(request) => format!("{} `{}` of", request.method, request.path),
        None if protocol == "tcp" => "connect to".to_owned(),
        None => "call".to_owned(),
    };
    let to = format!("{what} {} (port {}, {protocol})", asked.service, asked.port);
    let some = verdict.request.is_none() && protocol != "tcp";
    match &verdict.answer {
        Answer::Allowed if some => format!("allowed: {caller} may {to}, in these ways\n"),
        Answer::Allowed => format!("allowed: {caller} may {to}\n"),
        Answer::InPart => format!("allowed in part: {caller} may {to}, but not wherever it goes\n"),
        Answer::Denied => format!("denied: {caller} may not {to}\n"),
        Answer::Nowhere => {
            format!(
                "denied: nobody answers who may {to}: no backend of the split with a weight has the port: 503\n"
            )
        }
        Answer::Rejected(reason) => format!("denied: {caller} may not {to}: {reason}: 400\n"),
    }
}

fn destination(verdict: &Verdict, one: &Destination, share: &str) -> String {
    let (port, account, mode) = (&one.port, &one.account, &one.mode);
    let mut text = format!("\n{share}{}, as account {account}, {mode}:\n", port.service);
    let mut line = |words: String| {
        let _ = writeln!(text, "  {words}");
    };
    let Judgement { allowed, by, missing, further } = &one.judgement;
    for Permit { target, rule, way } in by {
        line(format!("allowed by {rule}: {way}"));
        line(format!("  which {target} names"));
    }
    if *allowed && by.is_empty() {
        line(format!("allowed: the service is {mode}, so traffic targets are not looked at"));
    }
    if !allowed {
        if missing.is_empty() {
            line(format!("no traffic target is about account {account}"));
        }
        for miss in missing {
            for words in missed(verdict, miss) {
                line(words);
            }
        }
        if *further > 0 {
            line(format!("{further} further rules do not let it through either"));
        }
    }
    line(format!("the caller gets {}", gets(verdict, one)));
    for words in endpoints(one) {
        line(words);
    }
    text
}

/// Why a rule does not let the call through.
fn missed(verdict: &Verdict, miss: &Miss) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(rule) = &miss.rule else {
        lines.push(format!("{} has no rule about port {}", miss.target, verdict.asked.port));
        if let Some(callers) = &miss.other_callers {
            lines.push(format!("  and names other callers: {}", list(callers)));
        }
        return lines;
    };
    lines.push(format!("not by {rule}, which {} names", miss.target));
    if let Some(callers) = &miss.other_callers {
        let callers = list(callers);
        lines.push(format!("  {} is not among the callers: {callers}", verdict.caller));
    }
    let (method, path) = match &verdict.request {
        Some(request) => {
            let plain = request.path.split('?').next().unwrap_or(&request.path);
            (&*request.method, verdict.compared_path.as_deref().unwrap_or(plain))
        }
        None => ("", ""),
    };
    lines.extend(miss.mismatches.iter().map(|one| match one {
        Mismatch::Method { allowed } => {
            format!("  the method {method} is none of: {}", allowed.join(", "))
        }
        Mismatch::Path { expression } => format!("  the path `{path}` does not match `{expression}`"),
        Mismatch::DisguisedPath => {
            format!("  the path `{path}` has a segment that some servers read as `..`: no rule covers it")
        }
        Mismatch::Header { name, expression, values } if values.is_empty() => {
            format!("  the header {name} is missing, which must match `{expression}`")
        }
        Mismatch::Header { name, expression, values } => {
            let values = list(values.iter().map(|value| format!("`{value}`")));
            format!("  the header {name} is {values}, which `{expression}` does not match as a whole")
        }
    }));
    lines
}

fn list<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let words: Vec<_> = all.into_iter().map(|one| one.to_string()).collect();
    if words.is_empty() { "nobody".to_owned() } else { words.join(", ") }
}

fn gets(verdict: &Verdict, one: &Destination) -> &'static str {
    let is_tcp = verdict.protocol == "tcp";
    match one.gets {
        Gets::Application if is_tcp => "the bytes of the application",
        Gets::Application => "the answer of the application",
        Gets::Forbidden => "403 from the server's sidecar",
        Gets::Unknown if is_tcp => "no connection: its own sidecar listens on no port for it",
        Gets::Unknown => {
            "404 by `Host`, or 403 at a declared upstream: its own sidecar is told of no such service"
        }
        Gets::Handshake => "no handshake: the connection ends, and the application sees nothing",
        Gets::NoEndpoint if is_tcp => "a connection that ends at once: there is no endpoint",
        Gets::NoEndpoint => "503: there is no endpoint",
    }
}

fn endpoints(one: &Destination) -> Vec<String> {
    let Some(endpoints) = &one.endpoints else {
        return vec!["endpoints are not known from policy alone".to_owned()];
    };
    let mut lines: Vec<_> = endpoints
        .iter()
        .take(ENDPOINTS)
        .map(|endpoint| {
            let transport = match endpoint.transport {
                Transport::MutualTls => "by mutual TLS, its health unknown",
                Transport::Plaintext => "in plaintext, its health unknown",
            };
            format!("endpoint {} with weight {}, {transport}", endpoint.address, endpoint.weight)
        })
        .collect();
    if endpoints.len() > ENDPOINTS {
        lines.push(format!("and {} further endpoints", endpoints.len() - ENDPOINTS));
    }
    lines.extend(one.findings.iter().cloned());
    match one.enforcement {
        Enforcement::AtTheProxies => lines.push(
            "enforced by the sidecars; whether the application's own port can be reached around them is not known"
                .to_owned(),
        ),
        Enforcement::NotInPlaintext => lines.push(
            "can be bypassed: no sidecar stands in front of the endpoints in plaintext".to_owned(),
        ),
        Enforcement::Unknown => {}
    }
    lines
}
