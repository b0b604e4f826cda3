//! `[[http_route]]`: the settings of HTTP calls.

mod contradictions;
mod fault;
mod headers;
mod mirror;
mod retries;
mod rewrite;

use std::time::Duration;

use ironmesh_catalog::{CallSettings, HttpRoute, Level, Name, Reach, ServiceAccount, SplitMatch};

use super::group_match::read_match;
use super::level;
use super::part::{Id, Part, Reference, ReferenceTarget};
use super::repeats::without_repeats;
use crate::codes;
use crate::duration;
use crate::table::{FindingReported, Table, Value};

pub(super) use contradictions::UPSTREAM_KEYS;
pub(super) use retries::{Keys, read_retries};

/// The range of timeouts of a request.
const MOST_TIME: Duration = Duration::from_secs(24 * 60 * 60);

/// The settings of which at least one is required, for a message that puts the text between two backquotes.
const SETTINGS: &str = "timeout` or `retries` or `fault` or `request_headers` or `response_headers` or `rewrite` or `redirect` or `mirror` or `allow_override_headers";

/// Reads one HTTP route into `part`.
pub(super) fn read(mut table: Table<'_>, part: &mut Part) {
    let id = Id::read(&mut table, part);
    let home = id.as_ref().ok().map(|id| &id.namespace);
    let mut references = Vec::new();
    let level = level::read(&mut table);
    let matches = table.optional("matches", |value| {
        let meaning = "leave `matches` out for all requests";
        let what = "a match of an HTTP route";
        value.at_least_one(meaning, |item| read_match(item, what, home, &mut references))
    });
    let matches = matches.and_then(|matches| check_matches_have_service(&mut table, matches));
    let sources = table.optional("sources", |value| {
        let meaning = "leave `sources` out for the calls of all accounts";
        value.at_least_one(meaning, |item| read_account(item, home, &mut references))
    });
    let settings = read_settings(&mut table, home, &mut references);
    if let Ok(id) = id {
        part.references.extend(references);
        let level = level.level(&id, part);
        let reach = level.and_then(|level| Ok(reach(level, matches?)));
        let route = route(&id, reach, sources, settings);
        part.http_routes.push(&id, route);
    }
    table.finish();
}

fn route(
    id: &Id,
    reach: Result<Reach, FindingReported>,
    sources: Result<Option<Vec<ServiceAccount>>, FindingReported>,
    settings: Result<CallSettings, FindingReported>,
) -> Result<HttpRoute, FindingReported> {
    Ok(HttpRoute {
        namespace: id.namespace.clone(),
        name: id.name.clone(),
        reach: reach?,
        sources: sources?.map(without_repeats),
        settings: settings?,
        spot: id.spot.clone(),
    })
}

fn reach(level: Level, matches: Option<Vec<SplitMatch>>) -> Reach {
    match (level, matches) {
        (Level::Service(service), Some(matches)) => Reach::Requests(service, matches),
        (level, _) => Reach::All(level),
    }
}

/// Matches select requests to one service.
fn check_matches_have_service(
    table: &mut Table<'_>,
    matches: Option<Vec<SplitMatch>>,
) -> Result<Option<Vec<SplitMatch>>, FindingReported> {
    match (table.get("matches"), table.get("service")) {
        (Some(value), None) => {
            let message = "an HTTP route with `matches` needs `service`";
            let finding = value.error(codes::MISSING_KEY, message).label("no service");
            Err(value.report(finding.help("name the service that these requests are to")))
        }
        _ => Ok(matches),
    }
}

/// Reads an account. Its default namespace is `home`, which is `None` if it could not be read.
pub(super) fn read_account(
    item: Value<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<ServiceAccount, FindingReported> {
    let mut table = item.table("a source")?;
    let kind =
        table.optional("kind", |value| value.word("kind of source", &[("ServiceAccount", ())]));
    let name = table.required("name", |value| Ok((value.name()?, value.spot())));
    let namespace = table.optional("namespace", Value::name);
    table.finish();
    let (name, spot) = name?;
    let namespace = namespace?.or_else(|| home.cloned()).ok_or(FindingReported)?;
    let account = ServiceAccount::new(namespace, name);
    references.push(Reference { referenced: ReferenceTarget::Account(account.clone()), spot });
    kind.map(|_| account)
}

fn read_settings(
    table: &mut Table<'_>,
    home: Option<&Name>,
    references: &mut Vec<Reference>,
) -> Result<CallSettings, FindingReported> {
    let timeout = table.optional("timeout", read_timeout);
    let retries = table.optional("retries", |value| {
        let mut table = value.table("retries")?;
        let retries = read_retries(&mut table, &Keys::POLICY);
        table.finish();
        retries
    });
    let fault = table.optional("fault", fault::read_fault);
    let request_headers = table.optional("request_headers", headers::read_changes);
    let response_headers = table.optional("response_headers", headers::read_changes);
    let rewrite = table.optional("rewrite", rewrite::read_rewrite);
    let redirect = table.optional("redirect", rewrite::read_redirect);
    let mirror = table.optional("mirror", |value| mirror::read_mirror(value, home, references));
    let allow_override_headers = table.optional("allow_override_headers", Value::boolean);
    if SETTINGS.split("` or `").all(|key| table.get(key).is_none()) {
        return Err(table.missing(SETTINGS));
    }
    let settings = CallSettings {
        timeout: timeout?,
        retries: retries?,
        fault: fault?,
        request_headers: request_headers?,
        response_headers: response_headers?,
        rewrite: rewrite?,
        redirect: redirect?,
        mirror: mirror?,
        allow_override_headers: allow_override_headers?,
    };
    contradiction(table, &settings)?;
    contradictions::check(table, &settings)?;
    Ok(settings)
}

fn read_timeout(value: Value<'_>) -> Result<Duration, FindingReported> {
    let timeout = duration::read(value, &(Duration::ZERO..=MOST_TIME))?;
    in_milliseconds(value, timeout)
}

/// Envoy counts in whole milliseconds.
fn in_milliseconds(value: Value<'_>, duration: Duration) -> Result<Duration, FindingReported> {
    if duration.subsec_nanos().is_multiple_of(1_000_000) {
        return Ok(duration);
    }
    let message = format!("`{}` must be whole milliseconds", value.key());
    Err(value.report(value.error(codes::INVALID_VALUE, message).label("finer than a millisecond")))
}

/// The finding for a try whose timeout exceeds that of all tries together.
fn contradiction(table: &mut Table<'_>, settings: &CallSettings) -> Result<(), FindingReported> {
    let timeout = settings.timeout.filter(|timeout| !timeout.is_zero());
    let per_try = settings.retries.as_ref().and_then(|retries| retries.per_try_timeout);
    match (timeout, per_try, table.get("timeout"), table.get("retries")) {
        (Some(timeout), Some(per_try), Some(value), Some(retries)) if per_try >= timeout => {
            let message = format!(
                "one try may take {per_try:?}, and the request with all of its tries {timeout:?}"
            );
            let finding = value.error(codes::INVALID_VALUE, message).label("the whole request");
            let finding = finding.related(retries.spot(), "each of its tries");
            Err(value.report(finding.help("make `per_try_timeout` shorter than `timeout`")))
        }
        _ => Ok(()),
    }
}
