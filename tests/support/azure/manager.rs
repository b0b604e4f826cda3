//! The fake Resource Manager: it parses, authorizes and answers requests.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{AzureFault, GROUP, RequestKind, ResourceGroup, SUBSCRIPTION, Shared};

/// A valid request.
struct ParsedRequest {
    kind: RequestKind,
    /// Whether Resource Graph answers instead of the compute provider.
    by_resource_graph: bool,
    /// The scale set of the request.
    set: Option<String>,
    action: &'static str,
    subscription: String,
    group: Option<String>,
    scope: String,
}

pub(super) async fn answer(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let is_post = request.method() == "POST";
    if !is_post && request.method() != "GET" {
        return error_response(405, "MethodNotAllowed", "only reads are answered here");
    }
    let path = request.uri().path().to_lowercase();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let header = request.headers().get("authorization").and_then(|value| value.to_str().ok());
    let header = header.map(str::to_owned);
    let body = to_bytes(request.into_body(), 1 << 20).await.unwrap();
    let parameters = parameters(&query);
    // Counted by kind, whatever the result.
    let parsed = parse(&path, &parameters, is_post, &shared);
    let fault = match &parsed {
        Ok(parsed) if parsed.by_resource_graph => shared.record(RequestKind::GraphMachines),
        Ok(parsed) => shared.record(parsed.kind),
        Err(_) => None,
    };
    let audience = format!("http://{}", shared.manager);
    let rejection = shared.with(|state| state.tokens.rejection(header.as_deref(), &audience));
    if let Some(code) = rejection {
        return error_response(
            401,
            code,
            "the token is missing, has expired, or has another audience",
        );
    }
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return *error,
    };
    if shared.with(|state| state.tokens.denied.contains(parsed.action)) {
        let ParsedRequest { action, scope, .. } = &parsed;
        let text = format!(
            "The client '{SUBSCRIPTION}' with object id '{SUBSCRIPTION}' does not have authorization to perform action '{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, please refresh your credentials."
        );
        return error_response(403, "AuthorizationFailed", &text);
    }
    let extra = match fault {
        Some(
            fault @ (AzureFault::Empty
            | AzureFault::NextPageAtForeignHost
            | AzureFault::NextPageAtOtherPort
            | AzureFault::LowQuota),
        ) => Some(fault),
        fault => {
            if let Some(answer) = fault_response(fault).await {
                return answer;
            }
            None
        }
    };
    if parsed.kind == RequestKind::Graph {
        return graph(&shared, &body, extra.as_ref());
    }
    let ParsedRequest { set, subscription, group, .. } = &parsed;
    let (set, group) = (set.as_deref(), group.as_deref());
    let of = |vms: &ResourceGroup| match parsed.kind {
        // Resource Graph does not know the health of applications.
        RequestKind::UniformMachines | RequestKind::FlexibleMachines
            if parsed.by_resource_graph =>
        {
            let mut vms = vms.clone();
            for machine in &mut vms.machines {
                machine.health = None;
            }
            match parsed.kind {
                RequestKind::UniformMachines => vms.uniform(set.unwrap_or_default()),
                _ => vms.machines(set, true),
            }
        }
        RequestKind::ScaleSets => vms.scale_sets(),
        RequestKind::UniformMachines => vms.uniform(set.unwrap_or_default()),
        RequestKind::UniformInterfaces => vms.interfaces_of_set(set.unwrap_or_default()),
        RequestKind::Interfaces => vms.interfaces(group),
        RequestKind::FlexibleMachines => vms.machines(set, true),
        RequestKind::Machines => vms.machines(None, false),
        _ => vms.states(),
    };
    // Interfaces may be in a different resource group than their machines.
    let group_of_machines = group.filter(|_| parsed.kind != RequestKind::Interfaces);
    let is_empty = matches!(extra, Some(AzureFault::Empty));
    let all = shared.with(|state| {
        let groups = state.resource_groups(subscription, group_of_machines).into_iter();
        groups.filter(|_| !is_empty).flat_map(of).collect()
    });
    page(&shared, parsed.kind, all, &path, &parameters, extra.as_ref())
}

/// One page of a list.
fn page(
    shared: &Shared,
    kind: RequestKind,
    all: Vec<Value>,
    path: &str,
    parameters: &BTreeMap<String, String>,
    fault: Option<&AzureFault>,
) -> Response {
    let from: usize = match parameters.get("$skiptoken").map(|token| token.parse()) {
        None => 0,
        Some(Ok(from)) => from,
        Some(Err(_)) => {
            return error_response(400, "InvalidParameter", "The request URL is not valid.");
        }
    };
    let size = shared.with(|state| state.page_size);
    let is_last = all.len() <= from + size;
    let entries: Vec<_> = all.into_iter().skip(from).take(size).collect();
    let mut body = json!({ "value": entries });
    let host = match fault {
        Some(AzureFault::NextPageAtForeignHost) => Some(shared.foreign),
        Some(AzureFault::NextPageAtOtherPort) => Some(shared.other_port),
        _ => None,
    };
    if !is_last || matches!(fault, Some(AzureFault::NextPageAtForeignHost)) {
        let host = host.unwrap_or(shared.manager);
        let mut next = reqwest::Url::parse(&format!("http://{host}{path}")).unwrap();
        let kept = parameters.iter().filter(|(name, _)| *name != "$skiptoken");
        next.query_pairs_mut()
            .extend_pairs(kept)
            .append_pair("$skiptoken", &(from + size).to_string());
        let query = next.query().unwrap_or_default().replace('+', "%20");
        next.set_query(Some(&query));
        body.as_object_mut().unwrap().insert("nextLink".to_owned(), json!(next.as_str()));
    }
    let mixes_case = shared.with(|state| {
        if let Some(change) = state.after_page.remove(&kind) {
            change(state.resource_group(SUBSCRIPTION, GROUP));
        }
        state.mixes_case
    });
    if mixes_case {
        mix_id_case(&mut body, &mut 0);
    }
    let is_little = matches!(fault, Some(AzureFault::LowQuota));
    let (left, of_all) = if is_little { ("7", "107") } else { ("249", "3749") };
    let (short, long) = if is_little { (3, 27) } else { (29, 339) };
    let resource = format!(
        "Microsoft.Compute/HighCostGet3Min;{short},Microsoft.Compute/HighCostGet30Min;{long}"
    );
    let headers = [
        ("content-type", "application/json; charset=utf-8"),
        ("x-ms-ratelimit-remaining-subscription-reads", left),
        ("x-ms-ratelimit-remaining-subscription-global-reads", of_all),
        ("x-ms-ratelimit-remaining-resource", &resource),
    ];
    (headers, body.to_string()).into_response()
}

/// The rows of a Resource Graph query.
fn graph(shared: &Shared, body: &[u8], fault: Option<&AzureFault>) -> Response {
    let Ok(body) = serde_json::from_slice::<Value>(body) else {
        return error_response(400, "BadRequest", "the body is no JSON");
    };
    let query = body.get("query").and_then(Value::as_str).unwrap_or_default();
    let subscription = body.pointer("/subscriptions/0").and_then(Value::as_str).unwrap_or_default();
    let group = query.split_once("resourceGroup =~ '").and_then(|(_, rest)| rest.split_once('\''));
    let top = body.pointer("/options/$top").and_then(Value::as_u64).unwrap_or(100);
    if !query.starts_with("Resources | where type =~ ")
        || !query.contains("project id")
        || top > 1000
    {
        return error_response(
            400,
            "InvalidQuery",
            "Query is invalid. Please refer to the documentation",
        );
    }
    let is_empty = matches!(fault, Some(AzureFault::Empty));
    // Resource Graph omits subscriptions that the caller may not read, without an error.
    let all: Vec<_> = shared.with(|state| {
        let groups = state.resource_groups(subscription, group.map(|(group, _)| group)).into_iter();
        groups.filter(|_| !is_empty).flat_map(ResourceGroup::rows).collect()
    });
    let token = body.pointer("/options/$skipToken").and_then(Value::as_str);
    let from: usize = token.map_or(0, |token| token.parse().unwrap());
    let top = shared.with(|state| state.page_size).min(usize::try_from(top).unwrap());
    let total = all.len();
    let rows: Vec<_> = all.into_iter().skip(from).take(top).collect();
    let mut body = json!({
        "totalRecords": total, "count": rows.len(), "facets": [], "data": rows,
        "resultTruncated": "false"
    });
    if from + top < total {
        let next = (from + top).to_string();
        body.as_object_mut().unwrap().insert("$skipToken".to_owned(), json!(next));
    }
    ([("content-type", "application/json")], body.to_string()).into_response()
}

/// The answer of a fault that does not depend on the request.
pub(super) async fn fault_response(fault: Option<AzureFault>) -> Option<Response> {
    Some(match fault? {
        AzureFault::Status(status, code) => error_response(status, code, "so it is"),
        AzureFault::Throttled(wait) => {
            let mut answer = error_response(
                429,
                "TooManyRequests",
                "The server rejected the request because too many requests have been received for this subscription.",
            );
            answer.headers_mut().insert("retry-after", wait.to_string().parse().unwrap());
            answer
        }
        AzureFault::ClockAhead(minutes) => {
            let mut answer =
                error_response(401, "ExpiredAuthenticationToken", "The token has expired.");
            let time = jiff::Timestamp::now() + jiff::SignedDuration::from_mins(minutes);
            let date = time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
            answer.headers_mut().insert("date", date.parse().unwrap());
            answer
        }
        AzureFault::Body(body) => body.into_response(),
        AzureFault::Slow(time) => {
            // This sleep is the fault itself, not a wait for a condition.
            sleep(time).await;
            return None;
        }
        AzureFault::Disconnect => {
            let broken = tokio_stream::once(Err::<&str, _>(std::io::Error::other("cut off")));
            Body::from_stream(broken).into_response()
        }
        _ => return None,
    })
}

/// Parses a request, or returns the error of Azure.
fn parse(
    path: &str,
    parameters: &BTreeMap<String, String>,
    is_post: bool,
    shared: &Shared,
) -> Result<ParsedRequest, Box<Response>> {
    let no = |status, code, text: &str| Err(Box::new(error_response(status, code, text)));
    let is_there = |subscription: &str, group: Option<&str>| {
        shared.with(|state| !state.resource_groups(subscription, group).is_empty())
    };
    let parts: Vec<_> = path.trim_matches('/').split('/').collect();
    let (subscription, group) = match parts.as_slice() {
        ["subscriptions", subscription, "resourcegroups", group, ..] => {
            ((*subscription).to_owned(), Some((*group).to_owned()))
        }
        ["subscriptions", subscription, ..] => ((*subscription).to_owned(), None),
        _ => (String::new(), None),
    };
    let (scope, rest) = match parts.as_slice() {
        ["providers", "microsoft.resourcegraph", "resources"] if is_post => {
            (String::new(), &["graph"][..])
        }
        ["subscriptions", subscription, ..] if !is_there(subscription, None) => {
            return no(404, "SubscriptionNotFound", "The subscription could not be found.");
        }
        ["subscriptions", subscription, "resourcegroups", group, ..]
            if !is_there(subscription, Some(group)) =>
        {
            return no(404, "ResourceGroupNotFound", "Resource group could not be found.");
        }
        ["subscriptions", s, "resourcegroups", g, "providers", rest @ ..] => {
            (format!("/subscriptions/{s}/resourceGroups/{g}"), rest)
        }
        ["subscriptions", s, "providers", rest @ ..] => (format!("/subscriptions/{s}"), rest),
        _ => return no(404, "InvalidResourceType", "nothing of the kind is here"),
    };
    if is_post && rest != ["graph"] {
        return no(405, "MethodNotAllowed", "only reads are answered here");
    }
    let has_group = scope.contains("resourceGroups");
    let status_only = parameters.get("statusonly").is_some_and(|value| value == "true");
    let filter = parameters.get("$filter");
    let (kind, set, action, versions): (_, _, _, &[&str]) = match rest {
        ["graph"] => {
            (RequestKind::Graph, None, "Microsoft.ResourceGraph/resources/read", &["2024-04-01"])
        }
        ["microsoft.compute", "virtualmachinescalesets"] => (
            RequestKind::ScaleSets,
            None,
            "Microsoft.Compute/virtualMachineScaleSets/read",
            &["2024-07-01", "2024-11-01"],
        ),
        ["microsoft.compute", "virtualmachinescalesets", set, "virtualmachines"] if has_group => (
            RequestKind::UniformMachines,
            Some((*set, false)),
            "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/read",
            &["2024-07-01", "2024-11-01"],
        ),
        ["microsoft.compute", "virtualmachinescalesets", set, "networkinterfaces"] if has_group => {
            (
                RequestKind::UniformInterfaces,
                Some((*set, false)),
                "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces/read",
                &["2017-03-30", "2018-10-01"],
            )
        }
        ["microsoft.compute", "virtualmachines"] => {
            let kind = match filter {
                Some(_) => RequestKind::FlexibleMachines,
                None if status_only => RequestKind::States,
                None => RequestKind::Machines,
            };
            (kind, None, "Microsoft.Compute/virtualMachines/read", &["2024-07-01", "2024-11-01"])
        }
        ["microsoft.network", "networkinterfaces"] => (
            RequestKind::Interfaces,
            None,
            "Microsoft.Network/networkInterfaces/read",
            &["2023-09-01", "2024-05-01"],
        ),
        _ => return no(404, "InvalidResourceType", "The resource type could not be found."),
    };
    match parameters.get("api-version") {
        None => {
            return no(
                400,
                "MissingApiVersionParameter",
                "The api-version query parameter (?api-version=) is required for all requests.",
            );
        }
        Some(version) if !versions.contains(&version.as_str()) => {
            return no(400, "InvalidApiVersionParameter", "The api-version is invalid.");
        }
        Some(_) => {}
    }
    let expands = parameters.get("$expand").map(String::as_str);
    let may_expand = matches!(kind, RequestKind::UniformMachines | RequestKind::FlexibleMachines);
    if expands.is_some_and(|what| what != "instanceView" || !may_expand)
        || (status_only && has_group)
    {
        return no(400, "InvalidParameter", "The parameter is not valid here.");
    }
    let by_resource_graph = parameters.get("useresourcegraph").is_some_and(|value| value == "true");
    if by_resource_graph && !may_expand {
        return no(422, "NotSupported", "The request cannot be served by Resource Graph.");
    }
    let set = match (set, filter) {
        (Some((set, is_flexible)), None) => Some((set.to_owned(), is_flexible)),
        (None, Some(filter)) if kind == RequestKind::FlexibleMachines && has_group => {
            let start = format!(
                "'virtualmachinescaleset/id' eq '{}/providers/microsoft.compute/virtualmachinescalesets/",
                scope.to_lowercase()
            );
            let filter = filter.to_lowercase();
            let set = filter.strip_prefix(&start).and_then(|rest| rest.strip_suffix('\''));
            match set {
                Some(set) => Some((set.to_owned(), true)),
                None => return no(400, "BadRequest", "The filter is not valid."),
            }
        }
        (None, None) => None,
        _ => return no(400, "BadRequest", "The filter is not valid here."),
    };
    let set = match set {
        None => None,
        Some((set, wants_flexible)) => {
            let known = shared.with(|state| {
                let groups = state.resource_groups(&subscription, group.as_deref()).into_iter();
                let sets = groups.flat_map(|vms| &vms.scale_sets);
                let mut known = sets.map(|(name, set)| (name.clone(), set.is_flexible));
                known.find(|(name, _)| name.to_lowercase() == set)
            });
            match known {
                None => {
                    let code =
                        if wants_flexible { "ResourceNotFound" } else { "ParentResourceNotFound" };
                    return no(404, code, "The scale set could not be found.");
                }
                Some((_, is_flexible)) if is_flexible != wants_flexible => {
                    return no(400, "OperationNotAllowed", "Not in this orchestration mode.");
                }
                Some((name, _)) => Some(name),
            }
        }
    };
    Ok(ParsedRequest { kind, by_resource_graph, set, action, subscription, group, scope })
}

/// Parameter names are case-insensitive; values are taken literally.
fn parameters(query: &str) -> BTreeMap<String, String> {
    // Azure's own clients never send a plus sign for a space, so the fake rejects it.
    assert!(!query.contains('+'), "{query}");
    let url = reqwest::Url::parse(&format!("query:?{query}")).unwrap();
    let pairs = url.query_pairs();
    pairs.map(|(name, value)| (name.to_lowercase(), value.into_owned())).collect()
}

pub(super) fn error_response(status: u16, code: &str, text: &str) -> Response {
    let body = json!({ "error": { "code": code, "message": text } });
    let headers = [("content-type", "application/json; charset=utf-8")];
    (StatusCode::from_u16(status).unwrap(), headers, body.to_string()).into_response()
}

/// Varies the case of ids in turn: unchanged, upper case, lower case.
fn mix_id_case(value: &mut Value, n: &mut usize) {
    match value {
        Value::Array(all) => all.iter_mut().for_each(|one| mix_id_case(one, n)),
        Value::Object(all) => {
            for (key, one) in all {
                match one {
                    Value::String(text) if key == "id" => {
                        *n += 1;
                        *text = match *n % 3 {
                            0 => text.clone(),
                            1 => text.to_uppercase(),
                            _ => text.to_lowercase(),
                        };
                    }
                    _ => mix_id_case(one, n),
                }
            }
        }
        _ => {}
    }
}
