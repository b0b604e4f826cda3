//! Plans as text for people. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ironmesh_analysis::difference::{
    AccessChange, AccessDelta, EgressChange, SplitChange, TelemetryChange, TreatmentChange,
};
use ironmesh_analysis::routing::SplitBranch;
use ironmesh_catalog::ServicePort;
use ironmesh_catalog::text::escape_output;

use ironmesh_api::{FieldChange, FindingView, Plan, ProxyGroup, ResourceChange};

/// The most proxies that are named of one group.
const NAMED: usize = 3;

/// A plan as text for people, with the assumptions of a plan without a control plane. `color` marks changes by
/// terminal colors.
pub fn plan_text(plan: &Plan, assumptions: Option<&str>, color: bool) -> String {
    let mut text = String::new();
    let what = if plan.is_empty() { "no changes: " } else { "" };
    let _ = writeln!(text, "{what}{} → {}", plan.from, plan.to);
    if let Some(assumptions) = assumptions {
        let _ = writeln!(text, "{assumptions}");
    }
    if plan.is_empty() {
        return text;
    }
    removals(&mut text, plan);
    services(&mut text, plan);
    access(&mut text, &plan.difference.access);
    splits(&mut text, plan);
    treatments(&mut text, plan);
    telemetries(&mut text, plan);
    egress(&mut text, &plan.difference.egress);
    findings(&mut text, "new findings", '+', &plan.findings_new);
    findings(&mut text, "resolved findings", '-', &plan.findings_gone);
    findings(&mut text, "changed findings", '~', &plan.findings_changed);
    proxies(&mut text, plan);
    if color { colored(&escape_output(&text)) } else { escape_output(&text).into_owned() }
}

/// The text with added lines in green, removed lines in red and changed lines in yellow.
fn colored(text: &str) -> String {
    let line = |line: &str| match line.trim_start().chars().next() {
        Some('+') => format!("\x1b[32m{line}\x1b[0m\n"),
        Some('-') => format!("\x1b[31m{line}\x1b[0m\n"),
        Some('~') => format!("\x1b[33m{line}\x1b[0m\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// The number of removed objects by kind, and the note that a large removal from a policy folder is held back.
fn removals(text: &mut String, plan: &Plan) {
    let removals = &plan.removals;
    if removals.removed.is_empty() {
        return;
    }
    let _ = writeln!(text, "removes {removals}");
    if removals.are_large() {
        text.push_str(
            "  a policy folder with this change is held back for `removal_hold`; `ironmesh policy accept` activates it \
             at once\n",
        );
    }
}

/// Added, removed and changed services.
fn services(text: &mut String, plan: &Plan) {
    if plan.difference.services.is_empty() {
        return;
    }
    text.push_str("\nservices\n");
    for one in &plan.difference.services {
        let _ = writeln!(text, "  {} {} ({})", one.change.sign(), one.service, one.spot);
        for detail in &one.details {
            let _ = writeln!(text, "      {detail}");
        }
    }
}

/// Gained and lost access, by service port.
fn access(text: &mut String, changes: &[AccessChange]) {
    let mut by_port: BTreeMap<&ServicePort, Vec<&AccessChange>> = BTreeMap::new();
    for change in changes {
        by_port.entry(&change.port).or_default().push(change);
    }
    if !by_port.is_empty() {
        text.push_str("\naccess\n");
    }
    for (port, changes) in by_port {
        let _ = writeln!(text, "  {}, port {}", port.service, port.port);
        for AccessChange { callers, delta, traffic, by, mode, .. } in changes {
            let verb = match delta {
                AccessDelta::Gained => "+ {} gains",
                AccessDelta::Kept => "  {} keeps",
                AccessDelta::Lost => "- {} loses",
            };
            let verb = verb.replace("{}", &callers.to_string());
            let targets = by.iter().map(ToString::to_string);
            let by: Vec<_> =
                mode.iter().map(|mode| format!("{mode} mode")).chain(targets).collect();
            let by = by.join(", ");
            let _ = writeln!(text, "    {verb} {traffic}: {by}");
        }
    }
}

/// Gained and lost egress.
fn egress(text: &mut String, changes: &[EgressChange]) {
    if !changes.is_empty() {
        text.push_str("\negress\n");
    }
    for EgressChange { callers, to, delta, traffic, by } in changes {
        let verb = match delta {
            AccessDelta::Gained => "+ {} gains",
            AccessDelta::Kept => "  {} keeps",
            AccessDelta::Lost => "- {} loses",
        };
        let verb = verb.replace("{}", &callers.to_string());
        let by: Vec<_> = by.iter().map(ToString::to_string).collect();
        let by = if by.is_empty() { "passthrough".to_owned() } else { by.join(", ") };
        let _ = writeln!(text, "  {verb} {traffic} at {to}: {by}");
    }
}

/// Changed destinations of service ports.
fn splits(text: &mut String, plan: &Plan) {
    if plan.difference.splits.is_empty() {
        return;
    }
    text.push_str("\nsplits\n");
    for SplitChange { port, change, before, after, by } in &plan.difference.splits {
        let by: Vec<_> = by.iter().map(ToString::to_string).collect();
        let (sign, service, port) = (change.sign(), &port.service, port.port);
        let _ = writeln!(text, "  {sign} {service}, port {port}: {}", by.join(", "));
        branches(text, "", before);
        branches(text, "→ ", after);
    }
}

/// Changed telemetry objects.
fn telemetries(text: &mut String, plan: &Plan) {
    if plan.difference.telemetries.is_empty() {
        return;
    }
    text.push_str("\ntelemetry\n");
    for TelemetryChange { telemetry, change, details } in &plan.difference.telemetries {
        let _ = writeln!(text, "  {} {telemetry}", change.sign());
        for detail in details {
            let _ = writeln!(text, "      {detail}");
        }
    }
}

/// Changed traffic settings: HTTP routes, retries, upstream settings and ingress backends.
fn treatments(text: &mut String, plan: &Plan) {
    if plan.difference.treatments.is_empty() {
        return;
    }
    text.push_str("\ntraffic settings\n");
    for TreatmentChange { by, change, details } in &plan.difference.treatments {
        let _ = writeln!(text, "  {} {by}", change.sign());
        for detail in details {
            let _ = writeln!(text, "      {detail}");
        }
    }
}

/// The branches of a split, with their conditions. The first line begins with `sign`.
fn branches(text: &mut String, sign: &str, branches: &[SplitBranch]) {
    let mut sign = sign.to_owned();
    if branches.is_empty() {
        let _ = writeln!(text, "      {sign}no such port");
    }
    for branch in branches {
        let conditions: Vec<_> =
            branch.conditions.iter().map(|one| one.traffic.to_string()).collect();
        let condition = match &conditions[..] {
            [] if branches.len() == 1 => String::new(),
            [] => "otherwise: ".to_owned(),
            some => format!("{}: ", some.join(" and ")),
        };
        let _ = writeln!(text, "      {sign}{condition}{branch}");
        sign = " ".repeat(sign.chars().count());
    }
}

/// A list of findings under a title, each with `sign`.
fn findings(text: &mut String, title: &str, sign: char, findings: &[FindingView]) {
    if findings.is_empty() {
        return;
    }
    let _ = writeln!(text, "\n{title}");
    for one in findings {
        let FindingView { severity, code, message, place, .. } = one;
        let place = match (&place.file, place.line, place.column) {
            (Some(file), Some(line), Some(column)) => format!(" ({file}:{line}:{column})"),
            _ => String::new(),
        };
        let _ = writeln!(text, "  {sign} {severity}[{code}]: {message}{place}");
    }
}

/// The affected proxies, with their changed resources.
fn proxies(text: &mut String, plan: &Plan) {
    let affected: usize = plan.proxies.iter().map(|group| group.proxies.len()).sum();
    let all = affected + plan.unaffected;
    let _ = writeln!(text, "\nproxies: {affected} of {all} will be updated");
    for group in &plan.proxies {
        self::group(text, group);
    }
    if affected > 0 && plan.proxies.iter().all(|group| group.drains.is_empty()) {
        text.push_str("  no connections end: no filter chain of a listener changes\n");
    }
}

/// The changes of proxies that get the same resources.
fn group(text: &mut String, group: &ProxyGroup) {
    let names: Vec<_> = group
        .proxies
        .iter()
        .take(NAMED)
        .map(|proxy| {
            let services: Vec<_> = proxy.services.iter().map(ToString::to_string).collect();
            let services = services.join(", ");
            let away = if proxy.connected { "" } else { ", not connected" };
            match &proxy.name {
                Some(name) => format!("{name} ({services}{away})"),
                None => format!("each of {services}"),
            }
        })
        .collect();
    let further = match group.proxies.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let _ = writeln!(text, "  {}{further}", names.join(", "));
    for ResourceChange { resource_type, name, change, fields } in &group.resources {
        let sign = match &**change {
            "added" => '+',
            "removed" => '-',
            _ => '~',
        };
        let _ = writeln!(text, "    {sign} {resource_type} `{name}`");
        for field in fields {
            self::field(text, field);
        }
    }
    for chain in &group.drains {
        let _ = writeln!(text, "    connections of `{chain}` end within the drain time");
    }
}

/// A changed field of a resource.
fn field(text: &mut String, field: &FieldChange) {
    let FieldChange { at, before, after } = field;
    let at = if at.is_empty() { "the whole resource" } else { at };
    let _ = writeln!(text, "        {at}");
    for (sign, value) in [('-', before), ('+', after)] {
        let Some(value) = value else { continue };
        for line in format!("{value:#}").lines() {
            let _ = writeln!(text, "        {sign} {line}");
        }
    }
}
