//! Settings of one object that cannot take effect together.

use ironmesh_catalog::{CallSettings, Fault, Percent, Redirect};

use crate::codes;
use crate::table::{FindingReported, Table, Value};

/// The percentage of all requests.
const ALL: Percent = Percent(1_000_000);

/// The keys without effect on a request that the caller's sidecar answers itself.
pub(in crate::policy) const UPSTREAM_KEYS: [&str; 6] =
    ["timeout", "retries", "request_headers", "rewrite", "mirror", "allow_override_headers"];

/// Reports contradictions: settings of requests that are all redirected, a redirect of requests that are all
/// aborted, and a redirect of all requests to itself. (A fault is temporary, so other settings beside it are
/// no contradiction.)
pub(super) fn check(table: &mut Table<'_>, settings: &CallSettings) -> Result<(), FindingReported> {
    let Some(redirect) = table.get("redirect") else { return Ok(()) };
    let is_of_all = table.get("matches").is_none();
    if is_of_all && settings.redirect.as_ref().is_some_and(redirects_to_same_service) {
        return Err(redirect_loop(redirect));
    }
    let aborted = table.get("fault").filter(|_| settings.fault.as_ref().is_some_and(aborts_all));
    let idle = UPSTREAM_KEYS.into_iter().find_map(|key| table.get(key));
    let (idle, cause, why) = match (aborted, idle) {
        (Some(fault), _) => (redirect, fault, "all of these requests are aborted before"),
        (None, Some(idle)) => (idle, redirect, "redirected requests are not forwarded"),
        (None, None) => return Ok(()),
    };
    let message = format!("`{}` has no effect beside `{}`: {why}", idle.key(), cause.key());
    let finding = idle.error(codes::CONTRADICTION, message).label("no effect");
    let finding = finding.related(cause.spot(), "the caller's sidecar answers them");
    Err(idle.report(finding.help("remove one of the two")))
}

/// Whether a client that follows the redirect calls the same service again.
fn redirects_to_same_service(redirect: &Redirect) -> bool {
    redirect.scheme.is_none() && redirect.host.is_none() && redirect.port.is_none()
}

/// The requests that follow a redirect of all requests are redirected again.
fn redirect_loop(redirect: Value<'_>) -> FindingReported {
    let message = "a redirect of all requests to another path redirects those to this path again";
    let finding = redirect.error(codes::CONTRADICTION, message).label("leads to itself");
    redirect.report(finding.help(
        "name by `matches` the requests that are to be made elsewhere, or name another `host`, `port` or `scheme`",
    ))
}

fn aborts_all(fault: &Fault) -> bool {
    fault.abort.as_ref().is_some_and(|abort| abort.percent == ALL)
}
