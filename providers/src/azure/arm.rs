//! The client of Azure Resource Manager: pages, retries, throttling and missing rights. It never
//! interprets the entries of an answer.

mod query;
mod quota;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use ironmesh_catalog::Secret;
use ironmesh_catalog::backoff::shortened;
use jiff::Timestamp;
use parking_lot::Mutex;
use reqwest::{StatusCode, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::error::{AzureError, RequestError};
use super::error_body::{self, ErrorBody};
use super::http::{Body, Http, HttpResponse, Request};
use super::options::AzureOptions;
use super::survey::Call;
use super::token::Tokens;
use super::urls::AzureUrls;
use crate::PeerClock;
pub(super) use query::ArmQuery;

/// The largest number of pages of a list.
const MAX_PAGES: usize = 200;
/// The largest number of entries of a list.
const MAX_ENTRIES: usize = 50_000;
/// The attempts of a call that fails for a temporary reason.
const ATTEMPTS: u32 = 3;
/// Sends calls to the Resource Manager.
#[derive(Debug)]
pub(super) struct Arm {
    pub(super) http: Arc<Http>,
    tokens: Tokens,
    urls: AzureUrls,
    retry: Duration,
    clock: fn() -> Timestamp,
    /// The throttled gates, and when each opens.
    gates: Mutex<BTreeMap<String, Instant>>,
    slow_until: Mutex<Option<Instant>>,
    /// The number of calls since the start.
    made: AtomicU64,
    /// The largest known rest of each quota, by subscription and kind.
    most: Mutex<BTreeMap<String, u64>>,
}

/// The number of calls for one list.
#[derive(Debug, Default)]
pub(super) struct Calls(AtomicUsize);

/// The entries of a list so far.
#[derive(Debug, Default)]
struct Listed {
    entries: Vec<Value>,
    pages: usize,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page {
    value: Vec<Value>,
    #[serde(default)]
    next_link: Option<String>,
}

/// A page of Resource Graph.
#[derive(Debug, Deserialize)]
struct Rows {
    data: Vec<Value>,
    #[serde(rename = "$skipToken", default)]
    skip_token: Option<String>,
    #[serde(rename = "resultTruncated", default)]
    truncated: Option<String>,
}

impl Arm {
    pub(super) fn new(
        options: &AzureOptions,
        clock: fn() -> Timestamp,
        is_logged: bool,
    ) -> Result<Self, AzureError> {
        let urls = AzureUrls::new(options)?;
        let http = Arc::new(Http::new(options.ca.as_deref(), is_logged)?);
        Ok(Self {
            tokens: Tokens::new(options, &urls, &http, clock),
            http,
            urls,
            retry: options.retry,
            clock,
            gates: Mutex::default(),
            slow_until: Mutex::default(),
            made: AtomicU64::default(),
            most: Mutex::default(),
        })
    }

    /// The clock of Azure.
    pub(super) fn peer_clock(&self) -> PeerClock {
        self.http.peer_clock()
    }

    /// Returns the number of calls since the start, successful or not.
    pub(super) fn made(&self) -> u64 {
        self.made.load(Ordering::Relaxed)
    }

    /// Requests all pages of a list.
    pub(super) async fn list(
        &self,
        query: &ArmQuery,
        calls: &Calls,
    ) -> Result<Vec<Value>, RequestError> {
        let mut listed = Listed::default();
        let mut url = self.url(query);
        loop {
            let body = self.call(&url, query, calls).await?;
            let page: Page = serde_json::from_slice(&body).map_err(|error| malformed(&error))?;
            listed.pages += 1;
            listed.entries.extend(page.value);
            let Some(next) = page.next_link.filter(|next| !next.is_empty()) else {
                return Ok(listed.entries);
            };
            // An incomplete list is an error: a missing entry may be on the next page.
            let Some(next) = self.urls.next(&next) else {
                return Err(RequestError::Foreign(next.chars().take(200).collect()));
            };
            if next == url {
                return Err(RequestError::Malformed("a page names itself as the next page".into()));
            }
            listed.is_within_bounds()?;
            url = next;
        }
    }

    /// Requests all pages of a Resource Graph query.
    pub(super) async fn rows(
        &self,
        subscription: &str,
        kusto: &str,
        calls: &Calls,
    ) -> Result<Vec<Value>, RequestError> {
        let mut listed = Listed::default();
        let mut token: Option<String> = None;
        loop {
            let mut options = json!({ "$top": 1000, "resultFormat": "objectArray" });
            if let (Some(token), Some(options)) = (&token, options.as_object_mut()) {
                options.insert("$skipToken".to_owned(), json!(token));
            }
            let body =
                json!({ "subscriptions": [subscription], "query": kusto, "options": options });
            let path = ["providers", "Microsoft.ResourceGraph", "resources"].map(str::to_owned);
            let query = ArmQuery {
                path: path.to_vec(),
                parameters: vec![("api-version", "2024-04-01".to_owned())],
                body: Some(body),
                action: "Microsoft.ResourceGraph/resources/read",
            };
            let answer = self.call(&self.url(&query), &query, calls).await?;
            let rows: Rows = serde_json::from_slice(&answer).map_err(|error| malformed(&error))?;
            listed.pages += 1;
            listed.entries.extend(rows.data);
            let next = rows.skip_token.filter(|next| !next.is_empty());
            if next.is_none() {
                // Resource Graph reports that it left out rows and cannot continue.
                if rows.truncated.as_deref() == Some("true") {
                    return Err(RequestError::TooLarge("Resource Graph has left rows out".into()));
                }
                return Ok(listed.entries);
            }
            if next == token {
                return Err(RequestError::Malformed("a page names itself as the next page".into()));
            }
            listed.is_within_bounds()?;
            token = next;
        }
    }

    /// Sends a call, repeats it after temporary failures, and returns the body of a successful
    /// answer.
    async fn call(
        &self,
        url: &Url,
        query: &ArmQuery,
        calls: &Calls,
    ) -> Result<Vec<u8>, RequestError> {
        let (mut attempt, mut was_unauthorized) = (0, false);
        loop {
            self.is_open(query)?;
            let token = self.tokens.token().await?;
            calls.0.fetch_add(1, Ordering::Relaxed);
            let answer = self.attempt(url, query, token.clone()).await;
            let error = match answer {
                Ok(answer) if answer.status.is_success() => return Ok(answer.body),
                Ok(answer) => {
                    let error_body = ErrorBody::read(&answer.body);
                    if answer.status == StatusCode::UNAUTHORIZED && !was_unauthorized {
                        was_unauthorized = true;
                        self.tokens.reject(&token).await;
                        continue;
                    }
                    let is_throttled = answer.status == StatusCode::TOO_MANY_REQUESTS
                        && !error_body.is_about_another(&answer);
                    if is_throttled {
                        self.close(query, &error_body, error_body::wait(&answer));
                    }
                    let may_pass = answer.status.is_server_error()
                        || answer.status == StatusCode::TOO_MANY_REQUESTS
                        || answer.status == StatusCode::REQUEST_TIMEOUT;
                    let scope = query.scope();
                    let error = error_body.error(&answer, query.action, &scope, (self.clock)());
                    if is_throttled || !may_pass {
                        return Err(error);
                    }
                    error
                }
                Err(error @ RequestError::Transport { .. }) => error,
                Err(error) => return Err(error),
            };
            attempt += 1;
            if attempt >= ATTEMPTS {
                return Err(error);
            }
            sleep(shortened(self.retry * attempt)).await;
        }
    }

    async fn attempt(
        &self,
        url: &Url,
        query: &ArmQuery,
        token: Secret,
    ) -> Result<HttpResponse, RequestError> {
        let body = query
            .body
            .as_ref()
            .map(|body| Body { kind: "application/json", text: body.to_string() });
        let method = if body.is_some() { "POST" } else { "GET" };
        let begun = Instant::now();
        let request = Request { url: url.clone(), body, token: Some(token), is_metadata: false };
        self.made.fetch_add(1, Ordering::Relaxed);
        let answer = self.http.ask(request).await;
        if let Ok(answer) = &answer {
            self.record_quota(query, answer);
        }
        self.http.note(|| {
            let mut missing = None;
            let (status, text) = match &answer {
                Ok(answer) => {
                    let error_body = ErrorBody::read(&answer.body);
                    missing = error_body.missing(answer.status, query.action, &query.scope());
                    let text = if answer.status.is_success() {
                        summarize(&answer.body)
                    } else {
                        format!("{}: {}", error_body.code, error_body.text)
                    };
                    (Some(answer.status.as_u16()), text)
                }
                Err(error) => (None, error.to_string()),
            };
            Call {
                method,
                url: url.to_string(),
                status,
                answer: text,
                missing,
                took: begun.elapsed(),
            }
        });
        answer
    }

    fn url(&self, query: &ArmQuery) -> Url {
        let mut url = self.urls.resource_manager.clone();
        // The URL has a host (checked when it was parsed), so it has a path.
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend(&query.path);
        }
        url.query_pairs_mut().extend_pairs(&query.parameters);
        // Literal plus signs are encoded by now. Not every server reads a plus sign as a space.
        let query = url.query().unwrap_or_default().replace('+', "%20");
        url.set_query(Some(&query));
        url
    }
}

impl Calls {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Listed {
    fn is_within_bounds(&self) -> Result<(), RequestError> {
        if self.pages >= MAX_PAGES || self.entries.len() > MAX_ENTRIES {
            let Self { pages, entries } = self;
            let reason = format!("{} entries on {pages} pages, and more", entries.len());
            return Err(RequestError::TooLarge(reason));
        }
        Ok(())
    }
}

fn malformed(error: &serde_json::Error) -> RequestError {
    RequestError::Malformed(error.to_string())
}

/// Summarizes an answer for people.
fn summarize(body: &[u8]) -> String {
    let Ok(value) = serde_json::from_slice::<Value>(body) else {
        return format!("{} bytes that are no JSON", body.len());
    };
    let entries = value.get("value").or_else(|| value.get("data")).and_then(Value::as_array);
    let Some(entries) = entries else { return "no list".to_owned() };
    let names = entries.iter().filter_map(|entry| entry.get("name")?.as_str()).take(3);
    let names: Vec<_> = names.collect();
    let mut text = format!("{} found", entries.len());
    if !names.is_empty() {
        let more = if entries.len() > names.len() { ", …" } else { "" };
        text = format!("{text}: {}{more}", names.join(", "));
    }
    if value.get("nextLink").is_some_and(Value::is_string) || value.get("$skipToken").is_some() {
        text.push_str("; more on the next page");
    }
    text
}
