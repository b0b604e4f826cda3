//! Verdicts in words: the answer first, then the way that the call goes.

use std::fmt::Write as _;

use ironmesh_analysis::routing::Branch;
use ironmesh_analysis::verdict::{
    Answer, AtUpstream, ComparedHost, Destination, Enforcement, Gets, Judgement, Mismatch, Miss,
    Outside, Permit, Treated,
};
use ironmesh_analysis::{Request, Verdict};
use ironmesh_catalog::reserved_headers::CLIENT_CERTIFICATE;
use ironmesh_catalog::telemetries::Told;
use ironmesh_catalog::{Health, MeshEndpoint, Name, Resolution, Said, Transport};

/// How many endpoints are told of each destination.
const ENDPOINTS: usize = 5;

/// A verdict as text; with what was assumed, where it is of policy alone.
pub(super) fn verdict(verdict: &Verdict, assumed: Option<&str>) -> String {
    let mut text = headline(verdict);
    let mut line = |words: String| {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "  {words}");
    };
    if let Some(assumed) = assumed {
        line(assumed.to_owned());
    }
    if let Some(path) = &verdict.compared_path {
        line(format!("the path is compared as `{path}`"));
    }
    if verdict.only_at_upstream {
        line("its host is none of the service's: by `Host` that is 404, and this is about a declared upstream".to_owned());
    }
    if let Some(host) = &verdict.compared_host {
        line(compared_host(verdict, host));
    }
    if !verdict.caller_runs {
        line(format!("no service runs as {}: no proxy calls as it", verdict.caller));
    }
    // Of the service itself it is told below.
    let is_split = verdict.destinations.iter().all(|one| one.port != verdict.asked);
    if let Some(namespace) = verdict.private_to.as_ref().filter(|_| is_split) {
        line(private(namespace));
    }
    if !verdict.splits.is_empty() {
        line(format!("the calls are split by {}", list(&verdict.splits)));
    }
    for words in branches(verdict) {
        line(words);
    }
    if !verdict.left_out.is_empty() {
        let left_out = list(&verdict.left_out);
        line(format!("private to their namespace, so nothing of these calls goes to: {left_out}"));
    }
    for words in treatments(verdict) {
        line(words);
    }
    for one in &verdict.destinations {
        text.push_str(&destination(verdict, one, &share(verdict, one)));
    }
    if !verdict.telemetry.is_empty() {
        text.push_str("\ntold by the sidecars of\n");
    }
    for Told { service, what, by } in &verdict.telemetry {
        let _ = writeln!(text, "  {service}: {what}, as {by} says");
    }
    text
}

/// What a rule about the host compares, and what else it may be.
fn compared_host(verdict: &Verdict, compared: &ComparedHost) -> String {
    let ComparedHost { host, at_upstream } = compared;
    let headers = verdict.request.iter().flat_map(|request| &request.headers);
    let is_written = headers.into_iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    match at_upstream {
        Some(AtUpstream { host: other, answer }) => {
            let answer = match answer {
                Answer::Allowed => "allowed",
                Answer::InPart => "allowed in part",
                Answer::Denied | Answer::Nowhere | Answer::Rejected(_) | Answer::Redirected(_) => {
                    "denied"
                }
            };
            format!(
                "the host is compared as `{host}`, by `Host`; at a declared upstream it is `{other}`: {answer}"
            )
        }
        None if is_written => format!("the host is compared as `{host}`"),
        None => format!(
            "the host is compared as `{host}`, which is taken where none is given; by `Host` it is as the caller writes it"
        ),
    }
}

/// Where calls go: of a request the condition that it meets, else all branches.
fn branches(verdict: &Verdict) -> Vec<String> {
    let is_one = verdict.request.is_some();
    let words = |branch: &Branch| {
        let conditions = branch.conditions.iter();
        let conditions: Vec<_> =
            conditions.map(|condition| format!("{} ({})", condition.way, condition.by)).collect();
        match (conditions.join(" and "), is_one) {
            (conditions, true) if conditions.is_empty() => None,
            (conditions, true) => Some(format!("and this one is {conditions}")),
            (conditions, false) if conditions.is_empty() => Some(format!("  otherwise: {branch}")),
            (conditions, false) => Some(format!("  {conditions}: {branch}")),
        }
    };
    let is_told = is_one || verdict.branches.len() > 1;
    verdict.branches.iter().filter(|_| is_told).filter_map(words).collect()
}

/// How calls are treated on their way: of a request what is said of it, else all that is said.
fn treatments(verdict: &Verdict) -> Vec<String> {
    let mut lines = Vec::new();
    for Treated { condition, settings } in &verdict.treatments {
        match condition {
            Some(condition) => lines.push(format!("{} ({}):", condition.way, condition.by)),
            None if verdict.treatments.len() > 1 => lines.push("other requests:".to_owned()),
            None => {}
        }
        let indent = if lines.is_empty() { "" } else { "  " };
        if settings.is_empty() {
            lines.push(format!("{indent}nothing is said of them"));
        }
        lines.extend(
            settings
                .iter()
                .map(|Said { key, value, by }| format!("{indent}{key}: {value}, by {by}")),
        );
    }
    let said = verdict.treatments.iter().flat_map(|treated| &treated.settings);
    let mut changes = said.filter(|said| ["request_headers", "rewrite"].contains(&&*said.key));
    let is_judged_behind = verdict.destinations.iter().any(|one| one.outside.is_none());
    if verdict.request.is_none() && is_judged_behind && changes.next().is_some() {
        lines.push("the rules below are about requests as they arrive, behind these changes; ask about one to follow it".to_owned());
    }
    lines
}

/// What a destination has of the calls, where they go along one branch.
fn share(verdict: &Verdict, one: &Destination) -> String {
    let [branch] = &verdict.branches[..] else { return String::new() };
    let share = branch.shares.iter().find(|share| share.service == one.port.service);
    match share {
        Some(share) if !verdict.splits.is_empty() => match branch.shares.len() {
            1 => "all to ".to_owned(),
            _ => format!("{}/{} to ", share.weight, branch.sum()),
        },
        _ => String::new(),
    }
}

fn private(namespace: &Name) -> String {
    format!(
        "the service is private: accounts of namespace {namespace} alone may know of it, whatever targets say"
    )
}

fn headline(verdict: &Verdict) -> String {
    let Verdict { caller, asked, protocol, is_http, .. } = verdict;
    let what = match &verdict.request {
        Some(request) => format!("{} `{}` of", request.method, request.path),
        None if !is_http => "connect to".to_owned(),
        None => "call".to_owned(),
    };
    let to = format!("{what} {} (port {}, {protocol})", asked.service, asked.port);
    let some = verdict.request.is_none() && *is_http;
    match &verdict.answer {
        Answer::Allowed if some => format!("allowed: {caller} may {to}, in these ways\n"),
        Answer::Allowed => format!("allowed: {caller} may {to}\n"),
        Answer::InPart => format!("allowed in part: {caller} may {to}, but not wherever it goes\n"),
        Answer::Denied => format!("denied: {caller} may not {to}\n"),
        Answer::Nowhere => {
            let gets = if *is_http { "503" } else { "nobody listens" };
            format!(
                "denied: nobody answers who may {to}: no backend of the split has a weight and the port and is for the caller: {gets}\n"
            )
        }
        Answer::Rejected(reason) => format!("denied: {caller} may not {to}: {reason}: 400\n"),
        Answer::Redirected(redirect) => {
            format!(
                "redirected: who as {caller} would {to} is answered by its own sidecar: {redirect}\n"
            )
        }
    }
}

fn destination(verdict: &Verdict, one: &Destination, share: &str) -> String {
    let (port, account, mode) = (&one.port, &one.account, &one.mode);
    let mut what = one.part_of.as_ref().map_or_else(String::new, |of| format!(", a part of {of}"));
    if one.outside.is_some() {
        what.push_str(", outside of the mesh");
    }
    let mut text = format!("\n{share}{}{what}, as account {account}, {mode}:\n", port.service);
    let mut line = |words: String| {
        let _ = writeln!(text, "  {words}");
    };
    let Judgement { allowed, rejected, by, strict_denies, private_to, missing, further } =
        &one.judgement;
    for Permit { target, rule, way } in by {
        line(format!("allowed by {rule}: {way}"));
        line(format!("  which {target} names"));
    }
    if *strict_denies {
        line(format!("allowed: the service is in {mode}; strict would deny it:"));
    } else if *allowed && by.is_empty() {
        line(format!("allowed: the service is {mode}, so traffic targets are not looked at"));
    }
    if *rejected {
        line("not allowed: its path has an escaped slash, and the service does not say `escaped_slashes = \"keep\"`".to_owned());
    } else if !allowed || *strict_denies {
        if let Some(namespace) = private_to {
            line(private(namespace));
        } else if missing.is_empty() {
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
    for Said { key, value, by } in &one.settings {
        line(format!("{key} is {value}, by {by}"));
    }
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
    if miss.other_callers.is_none() && miss.mismatches.is_empty() {
        lines.push(format!("otherwise {rule} would allow it, which {} names", miss.target));
        return lines;
    }
    lines.push(format!("not by {rule}, which {} names", miss.target));
    if let Some(callers) = &miss.other_callers {
        let callers = list(callers);
        lines.push(format!("  {} is not among the callers: {callers}", verdict.caller));
    }
    let (request, path) = (verdict.request.as_ref(), verdict.compared_path.as_deref());
    lines.extend(miss.mismatches.iter().map(|one| mismatch(one, request, path)));
    lines
}

/// What of a match does not hold of the request, whose path is compared as `path` where that is another.
pub(super) fn mismatch(one: &Mismatch, request: Option<&Request>, path: Option<&str>) -> String {
    let (method, path) = match request {
        Some(request) => {
            let plain = request.path.split('?').next().unwrap_or(&request.path);
            (&*request.method, path.unwrap_or(plain))
        }
        None => ("", ""),
    };
    match one {
        Mismatch::Method { allowed } => {
            let upper = method.to_ascii_uppercase();
            let is_lower = upper != method && allowed.iter().any(|allowed| **allowed == *upper);
            let hint = if is_lower {
                format!("; {upper} is another one, since methods are compared as they are written")
            } else {
                String::new()
            };
            format!("  the method {method} is none of: {}{hint}", allowed.join(", "))
        }
        Mismatch::Path { expression } => {
            format!("  the path `{path}` does not match `{expression}`")
        }
        Mismatch::DisguisedPath => {
            format!(
                "  the path `{path}` has a segment that some servers read as `..`: no rule covers it"
            )
        }
        Mismatch::Header { name, expression, .. } if **name == *CLIENT_CERTIFICATE => {
            format!(
                "  the header {name} is not known here, since the server's sidecar sets it, whatever the caller sends; whether it matches `{expression}` shows there alone"
            )
        }
        Mismatch::Header { name, expression, values } if values.is_empty() => {
            format!("  the header {name} is missing, which must match `{expression}`")
        }
        Mismatch::Header { name, expression, values } => {
            let values = list(values.iter().map(|value| format!("`{value}`")));
            format!(
                "  the header {name} is {values}, which `{expression}` does not match as a whole"
            )
        }
    }
}

pub(super) fn list<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let words: Vec<_> = all.into_iter().map(|one| one.to_string()).collect();
    if words.is_empty() { "nobody".to_owned() } else { words.join(", ") }
}

fn gets(verdict: &Verdict, one: &Destination) -> &'static str {
    let is_tcp = !verdict.is_http;
    match one.gets {
        Gets::Application if is_tcp => "the bytes of the application",
        Gets::Application => "the answer of the application",
        Gets::Forbidden => "403 from the server's sidecar",
        Gets::Rejected => "400 from the server's sidecar",
        Gets::ForbiddenByItsOwn => "403 from its own sidecar",
        Gets::Unknown if is_tcp => "no connection: its own sidecar listens on no port for it",
        Gets::Unknown => {
            "404 by `Host`, or 403 at a declared upstream: its own sidecar is told of no such service"
        }
        Gets::Handshake => "no handshake: the connection ends, and the application sees nothing",
        Gets::NoEndpoint if is_tcp => {
            "a connection that ends at once: there is no endpoint that takes any"
        }
        Gets::NoEndpoint => "503: there is no endpoint that takes requests",
    }
}

fn endpoints(one: &Destination) -> Vec<String> {
    let mut lines = match (&one.endpoints, &one.outside) {
        (Some(endpoints), _) => addresses(endpoints),
        (None, None) => vec!["endpoints are not known from policy alone".to_owned()],
        (None, Some(outside)) => vec![looked_up(outside)],
    };
    lines.extend(one.findings.iter().cloned());
    lines.extend(match one.enforcement {
        Enforcement::AtTheProxies => Some("enforced by the sidecars; whether the application's own port can be reached around them is not known"),
        Enforcement::NotInPlaintext => Some("can be bypassed: no sidecar stands in front of the endpoints in plaintext"),
        Enforcement::ByTheCaller => Some("enforced by the caller's proxy alone: an application that goes past it is not held up"),
        Enforcement::Unknown => None,
    }.map(str::to_owned));
    lines
}

/// Where the caller's proxy finds an external service.
fn looked_up(outside: &Outside) -> String {
    let hostname = outside.hostname.as_deref().unwrap_or("its name");
    if outside.resolution == Resolution::Passthrough.to_string() {
        format!("endpoints are where the request's host says, below {hostname}")
    } else {
        format!("endpoints are looked up by DNS, as {hostname}")
    }
}

fn addresses(endpoints: &[MeshEndpoint]) -> Vec<String> {
    let mut lines: Vec<_> = endpoints
        .iter()
        .take(ENDPOINTS)
        .map(|endpoint| {
            let MeshEndpoint { address, weight, transport, health, locality } = endpoint;
            let transport = match transport {
                Transport::MutualTls => "by mutual TLS",
                Transport::Plaintext => "in plaintext",
            };
            let health = match health {
                Health::Healthy => "taken for healthy",
                Health::Draining => "draining: it gets nothing new",
                Health::Unhealthy => "unhealthy: it gets nothing",
            };
            let place = if locality.is_empty() { String::new() } else { format!(" in {locality}") };
            format!("endpoint {address}{place} with weight {weight}, {transport}, {health}")
        })
        .collect();
    if endpoints.len() > ENDPOINTS {
        lines.push(format!("and {} further endpoints", endpoints.len() - ENDPOINTS));
    }
    lines
}
