//! Verdicts as text for people: the answer first, then each destination. Pure.

mod outside;

use std::fmt::Write as _;

use ironmesh_catalog::reserved_headers::CLIENT_CERTIFICATE;
use ironmesh_catalog::telemetries::ServiceTelemetry;
use ironmesh_catalog::{EffectiveSetting, Health, MeshEndpoint, Name, Resolution, Transport};

pub use self::outside::{egress_verdict_text, ingress_verdict_text};
use crate::routing::SplitBranch;
use crate::verdict::{
    Answer, CallResult, ComparedHost, Destination, Enforcement, ExternalDestination, GrantingRule,
    Mismatch, PortVerdict, RequestTreatment, UnmetRule, UpstreamAnswer,
};
use crate::{Request, Verdict};

/// The most endpoints that are listed for one destination.
const ENDPOINTS: usize = 5;

/// A verdict on a call within the mesh as text, with the assumptions of an evaluation without a control plane.
pub fn verdict_text(verdict: &Verdict, assumptions: Option<&str>) -> String {
    let mut text = headline(verdict);
    let mut line = |line: String| {
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "  {line}");
    };
    if let Some(assumptions) = assumptions {
        line(assumptions.to_owned());
    }
    if let Some(path) = &verdict.compared_path {
        line(format!("the path is compared as `{path}`"));
    }
    if verdict.only_at_upstream {
        line("the service does not have this host: a call by `Host` gets 404, so this verdict assumes a declared upstream".to_owned());
    }
    if let Some(host) = &verdict.compared_host {
        line(compared_host(verdict, host));
    }
    if !verdict.caller_runs {
        line(format!("no service runs as {}, so no proxy calls as this account", verdict.caller));
    }
    // If the service itself is a destination, its own lines say so.
    let is_split = verdict.destinations.iter().all(|one| one.port != verdict.service_port);
    if let Some(namespace) = verdict.private_to.as_ref().filter(|_| is_split) {
        line(private(namespace));
    }
    if !verdict.splits.is_empty() {
        line(format!("the calls are split by {}", list(&verdict.splits)));
    }
    for text in branches(verdict) {
        line(text);
    }
    if !verdict.left_out.is_empty() {
        let left_out = list(&verdict.left_out);
        line(format!(
            "backends without these calls, since they are private to their namespace: {left_out}"
        ));
    }
    for text in treatments(verdict) {
        line(text);
    }
    for one in &verdict.destinations {
        text.push_str(&destination(verdict, one, &share(verdict, one)));
    }
    if !verdict.telemetry.is_empty() {
        text.push_str("\ntelemetry of the sidecars of\n");
    }
    for ServiceTelemetry { service, description, by } in &verdict.telemetry {
        let _ = writeln!(text, "  {service}: {description}, by {by}");
    }
    text
}

/// The host that rules compare, by `Host` and at a declared upstream.
fn compared_host(verdict: &Verdict, compared: &ComparedHost) -> String {
    let ComparedHost { host, at_upstream } = compared;
    let headers = verdict.request.iter().flat_map(|request| &request.headers);
    let is_written = headers.into_iter().any(|(name, _)| name.eq_ignore_ascii_case("host"));
    match at_upstream {
        Some(UpstreamAnswer { host: other, answer }) => {
            let answer = match answer {
                Answer::Allowed => "allowed",
                Answer::InPart => "allowed in part",
                Answer::Denied
                | Answer::NoBackend
                | Answer::Rejected(_)
                | Answer::Redirected(_) => "denied",
            };
            format!(
                "the host is compared as `{host}`, by `Host`; at a declared upstream it is `{other}`: {answer}"
            )
        }
        None if is_written => format!("the host is compared as `{host}`"),
        None => format!(
            "the host is compared as `{host}`, the default without a host header; by `Host` it is what the caller sends"
        ),
    }
}

/// The split branches: for one request the condition that it meets, otherwise all branches.
fn branches(verdict: &Verdict) -> Vec<String> {
    let is_one = verdict.request.is_some();
    let line = |branch: &SplitBranch| {
        let conditions = branch.conditions.iter();
        let conditions: Vec<_> = conditions
            .map(|condition| format!("{} ({})", condition.traffic, condition.by))
            .collect();
        match (conditions.join(" and "), is_one) {
            (conditions, true) if conditions.is_empty() => None,
            (conditions, true) => Some(format!("this request matches {conditions}")),
            (conditions, false) if conditions.is_empty() => Some(format!("  otherwise: {branch}")),
            (conditions, false) => Some(format!("  {conditions}: {branch}")),
        }
    };
    let is_shown = is_one || verdict.branches.len() > 1;
    verdict.branches.iter().filter(|_| is_shown).filter_map(line).collect()
}

/// The traffic settings on the path: for one request the settings that apply to it, otherwise all.
fn treatments(verdict: &Verdict) -> Vec<String> {
    let mut lines = Vec::new();
    for RequestTreatment { condition, settings } in &verdict.treatments {
        match condition {
            Some(condition) => lines.push(format!("{} ({}):", condition.traffic, condition.by)),
            None if verdict.treatments.len() > 1 => lines.push("other requests:".to_owned()),
            None => {}
        }
        let indent = if lines.is_empty() { "" } else { "  " };
        if settings.is_empty() {
            lines.push(format!("{indent}no settings"));
        }
        lines.extend(
            settings.iter().map(|EffectiveSetting { key, value, by }| {
                format!("{indent}{key}: {value}, by {by}")
            }),
        );
    }
    let settings = verdict.treatments.iter().flat_map(|treated| &treated.settings);
    let mut changes =
        settings.filter(|setting| ["request_headers", "rewrite"].contains(&&*setting.key));
    let is_authorized_after = verdict.destinations.iter().any(|one| one.external.is_none());
    if verdict.request.is_none() && is_authorized_after && changes.next().is_some() {
        lines.push("the rules below apply to requests after these changes; add `--path` to follow one request".to_owned());
    }
    lines
}

/// The share of a destination, if there is one branch.
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

/// The line about a private service.
fn private(namespace: &Name) -> String {
    format!(
        "the service is private: only accounts of namespace {namespace} may call it, whatever traffic targets allow"
    )
}

/// The first line: the answer.
fn headline(verdict: &Verdict) -> String {
    let Verdict { caller, service_port, protocol, is_http, .. } = verdict;
    let what = match &verdict.request {
        Some(request) => format!("{} `{}` of", request.method, request.path),
        None if !is_http => "connect to".to_owned(),
        None => "call".to_owned(),
    };
    let to = format!("{what} {} (port {}, {protocol})", service_port.service, service_port.port);
    let some = verdict.request.is_none() && *is_http;
    match &verdict.answer {
        Answer::Allowed if some => format!("allowed: {caller} may {to}, as listed\n"),
        Answer::Allowed => format!("allowed: {caller} may {to}\n"),
        Answer::InPart => {
            format!("allowed in part: {caller} may {to}, but not at every destination\n")
        }
        Answer::Denied => format!("denied: {caller} may not {to}\n"),
        Answer::NoBackend => {
            let gets = if *is_http { "503" } else { "no listener" };
            format!(
                "denied: {caller} may not {to}: no backend of the split has a weight, has the port and is visible to the caller: {gets}\n"
            )
        }
        Answer::Rejected(reason) => format!("denied: {caller} may not {to}: {reason}: 400\n"),
        Answer::Redirected(redirect) => {
            format!("redirected: {caller} would {to}, but its own sidecar answers: {redirect}\n")
        }
    }
}

/// The block of lines about one destination.
fn destination(verdict: &Verdict, one: &Destination, share: &str) -> String {
    let (port, account, mode) = (&one.port, &one.account, &one.mode);
    let mut what =
        one.part_of.as_ref().map_or_else(String::new, |of| format!(", a subset of {of}"));
    if one.external.is_some() {
        what.push_str(", outside the mesh");
    }
    let mut text = format!("\n{share}{}{what}, as account {account}, {mode}:\n", port.service);
    let mut line = |line: String| {
        let _ = writeln!(text, "  {line}");
    };
    let PortVerdict { allowed, rejected, by, strict_denies, private_to, missing, further } =
        &one.port_verdict;
    for GrantingRule { target, rule, traffic } in by {
        line(format!("allowed by {rule}: {traffic}"));
        line(format!("  of {target}"));
    }
    if *strict_denies {
        line(format!("allowed: the service is in {mode}; strict would deny it:"));
    } else if *allowed && by.is_empty() {
        line(format!("allowed: the service is {mode}, so traffic targets are not evaluated"));
    }
    if *rejected {
        line("not allowed: its path has an escaped slash, and the service does not set `escaped_slashes = \"keep\"`".to_owned());
    } else if !allowed || *strict_denies {
        if let Some(namespace) = private_to {
            line(private(namespace));
        } else if missing.is_empty() {
            line(format!("no traffic target has account {account} as its destination"));
        }
        for unmet_rule in missing {
            for text in unmet_rule_lines(verdict, unmet_rule) {
                line(text);
            }
        }
        if *further > 0 {
            line(format!("{further} further rules do not allow it either"));
        }
    }
    line(format!("the caller gets {}", result(verdict, one)));
    for EffectiveSetting { key, value, by } in &one.settings {
        line(format!("{key} is {value}, by {by}"));
    }
    for text in endpoints(one) {
        line(text);
    }
    text
}

/// The lines about a rule that does not allow the call, with the reasons.
fn unmet_rule_lines(verdict: &Verdict, unmet_rule: &UnmetRule) -> Vec<String> {
    let mut lines = Vec::new();
    let Some(rule) = &unmet_rule.rule else {
        lines.push(format!(
            "{} has no rule for port {}",
            unmet_rule.target, verdict.service_port.port
        ));
        if let Some(callers) = &unmet_rule.other_callers {
            lines.push(format!("  and names other callers: {}", list(callers)));
        }
        return lines;
    };
    if unmet_rule.other_callers.is_none() && unmet_rule.mismatches.is_empty() {
        lines.push(format!("otherwise {rule} of {} would allow it", unmet_rule.target));
        return lines;
    }
    lines.push(format!("not by {rule} of {}", unmet_rule.target));
    if let Some(callers) = &unmet_rule.other_callers {
        let callers = list(callers);
        lines.push(format!("  {} is not among the callers: {callers}", verdict.caller));
    }
    let (request, path) = (verdict.request.as_ref(), verdict.compared_path.as_deref());
    lines.extend(unmet_rule.mismatches.iter().map(|one| mismatch(one, request, path)));
    lines
}

/// The line about a mismatch. `path` is the path that rules compare, if it differs from the request's path.
fn mismatch(one: &Mismatch, request: Option<&Request>, path: Option<&str>) -> String {
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
                format!("; methods are case-sensitive: use {upper}")
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
                "  the server's sidecar sets the header {name}, whatever the caller sends; so it is not known here whether it matches `{expression}`"
            )
        }
        Mismatch::Header { name, expression, values } if values.is_empty() => {
            format!("  the header {name} is missing; it must match `{expression}`")
        }
        Mismatch::Header { name, expression, values } => {
            let values = list(values.iter().map(|value| format!("`{value}`")));
            format!(
                "  the header {name} is {values}, which `{expression}` does not match as a whole"
            )
        }
    }
}

/// The items separated by commas, or `none`.
fn list<T: ToString>(all: impl IntoIterator<Item = T>) -> String {
    let items: Vec<_> = all.into_iter().map(|one| one.to_string()).collect();
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

/// The response that the caller gets from a destination.
fn result(verdict: &Verdict, one: &Destination) -> &'static str {
    let is_tcp = !verdict.is_http;
    match one.result {
        CallResult::Application if is_tcp => "the bytes of the application",
        CallResult::Application => "the answer of the application",
        CallResult::Forbidden => "403 from the server's sidecar",
        CallResult::Rejected => "400 from the server's sidecar",
        CallResult::ForbiddenByCaller => "403 from its own sidecar",
        CallResult::Unknown if is_tcp => "no connection: its own sidecar listens on no port for it",
        CallResult::Unknown => {
            "404 by `Host`, or 403 at a declared upstream: its own sidecar does not have this service"
        }
        CallResult::HandshakeFailed => {
            "no handshake: the connection ends, and the application sees nothing"
        }
        CallResult::NoEndpoint if is_tcp => {
            "a connection that ends at once: no endpoint accepts connections"
        }
        CallResult::NoEndpoint => "503: no endpoint accepts requests",
    }
}

/// The endpoints of a destination, and how access to them is enforced.
fn endpoints(one: &Destination) -> Vec<String> {
    let mut lines = match (&one.endpoints, &one.external) {
        (Some(endpoints), _) => addresses(endpoints),
        (None, None) => vec!["endpoints are unknown without a control plane".to_owned()],
        (None, Some(external)) => vec![resolution(external)],
    };
    lines.extend(one.findings.iter().cloned());
    lines.extend(match one.enforcement {
        Enforcement::AtTheProxies => Some("enforced by the sidecars; Ironmesh cannot know whether the application's own port is reachable without them"),
        Enforcement::NotInPlaintext => Some("can be bypassed: the plaintext endpoints have no sidecar"),
        Enforcement::ByTheCaller => Some("enforced by the caller's proxy alone: an application that bypasses it is not stopped"),
        Enforcement::Unknown => None,
    }.map(str::to_owned));
    lines
}

/// How the caller's proxy resolves an external service.
fn resolution(external: &ExternalDestination) -> String {
    let hostname = external.hostname.as_deref().unwrap_or("its name");
    if external.resolution == Resolution::Passthrough.to_string() {
        format!("endpoints follow the host of each request, below {hostname}")
    } else {
        format!("endpoints are looked up by DNS, as {hostname}")
    }
}

/// A line for each endpoint, up to a limit.
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
                Health::Healthy => "assumed healthy",
                Health::Draining => "draining: no new requests",
                Health::Unhealthy => "unhealthy: no requests",
            };
            let locality =
                if locality.is_empty() { String::new() } else { format!(" in {locality}") };
            format!("endpoint {address}{locality} with weight {weight}, {transport}, {health}")
        })
        .collect();
    if endpoints.len() > ENDPOINTS {
        lines.push(format!("and {} further endpoints", endpoints.len() - ENDPOINTS));
    }
    lines
}
