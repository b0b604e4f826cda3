//! Access tokens: where they come from, and how long they are kept.
//!
//! Clocks do not matter: the lifetime of a token is in seconds, so a clock that is off by an hour
//! does not delay the renewal.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fs_err::os::unix::fs::OpenOptionsExt as _;
use ironmesh_catalog::Secret;
use ironmesh_catalog::backoff::Backoff;
use jiff::Timestamp;
use reqwest::header::HeaderValue;
use reqwest::{StatusCode, Url};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::error::RequestError;
use super::error_body::ErrorBody;
use super::http::{Body, Http, HttpResponse, Request};
use super::options::{AzureCredential, AzureOptions};
use super::survey::Call;
use super::urls::AzureUrls;

/// The metadata service answers 410 while it is updated. The wait, in multiples of the first wait,
/// and the number of retries. (Azure documents up to 70 s.)
const GONE: (u32, u32) = (10, 7);
/// The retries after other failures.
const ATTEMPTS: u32 = 3;
/// The longest accepted lifetime of a token.
const LONGEST: Duration = Duration::from_secs(24 * 3600);
/// The remaining lifetime at which a token is no longer used.
const MIN_REMAINING_LIFETIME: Duration = Duration::from_secs(30);

/// Provides tokens for the Resource Manager. Concurrent callers share one request.
#[derive(Debug)]
pub(super) struct Tokens {
    credential: AzureCredential,
    http: Arc<Http>,
    urls: AzureUrls,
    retry: Duration,
    clock: fn() -> Timestamp,
    state: tokio::sync::Mutex<State>,
}

#[derive(Debug)]
struct State {
    token: Option<Token>,
    /// The last failure, and when to retry.
    failed: Option<(RequestError, Instant)>,
    backoff: Backoff,
}

#[derive(Debug)]
struct Token {
    secret: Secret,
    /// The time of renewal: after half of the lifetime.
    renew_at: Instant,
    ends_at: Instant,
}

impl Tokens {
    pub(super) fn new(
        options: &AzureOptions,
        urls: &AzureUrls,
        http: &Arc<Http>,
        clock: fn() -> Timestamp,
    ) -> Self {
        let backoff = Backoff::new(options.retry, options.retry * 60);
        Self {
            credential: options.credential.clone(),
            http: Arc::clone(http),
            urls: urls.clone(),
            retry: options.retry,
            clock,
            state: tokio::sync::Mutex::new(State { token: None, failed: None, backoff }),
        }
    }

    /// Returns the current token. If the renewal fails, the current token stays until it expires.
    pub(super) async fn token(&self) -> Result<Secret, RequestError> {
        let mut state = self.state.lock().await;
        let state = &mut *state;
        let now = Instant::now();
        if state.token.as_ref().is_some_and(|token| token.ends_at <= now) {
            state.token = None;
        }
        if let Some(token) = state.token.as_ref().filter(|token| now < token.renew_at) {
            return Ok(token.secret.clone());
        }
        let pause = state.failed.as_ref().filter(|(_, again_at)| now < *again_at);
        let error = match pause {
            Some((error, _)) => error.clone(),
            None => match self.fetch().await {
                Ok((secret, lifetime)) => {
                    let now = Instant::now();
                    state.backoff.reset();
                    state.failed = None;
                    state.token = Some(Token {
                        secret: secret.clone(),
                        renew_at: now + lifetime / 2,
                        ends_at: now + lifetime.saturating_sub(MIN_REMAINING_LIFETIME),
                    });
                    return Ok(secret);
                }
                Err(error) => {
                    if state.failed.is_none() {
                        tracing::warn!(reason = %error, "no token for azure");
                    }
                    state.failed = Some((error.clone(), Instant::now() + state.backoff.step()));
                    error
                }
            },
        };
        match &state.token {
            Some(token) => Ok(token.secret.clone()),
            None => Err(error),
        }
    }

    /// Drops a token that Azure rejects, so that the next call requests another.
    pub(super) async fn reject(&self, rejected: &Secret) {
        let mut state = self.state.lock().await;
        if state.token.as_ref().is_some_and(|token| token.secret == *rejected) {
            state.token = None;
        }
    }

    async fn fetch(&self) -> Result<(Secret, Duration), RequestError> {
        let fetched = match &self.credential {
            AzureCredential::ManagedIdentity { client_id } => {
                self.request_machine_token(client_id.as_deref()).await
            }
            AzureCredential::WorkloadIdentity { tenant, client_id, token_file } => {
                let assertion = read("token_file", token_file).await?;
                let kind = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
                let proof =
                    [("client_assertion_type", kind), ("client_assertion", assertion.expose())];
                self.request_application_token(tenant, client_id, &proof).await
            }
            AzureCredential::ClientSecret { tenant, client_id, secret_file } => {
                let secret = read("secret_file", secret_file).await?;
                self.request_application_token(
                    tenant,
                    client_id,
                    &[("client_secret", secret.expose())],
                )
                .await
            }
        };
        fetched.map_err(|error| match error {
            error @ RequestError::Token(_) => error,
            other => RequestError::Token(other.to_string()),
        })
    }

    /// Requests a token from the machine's metadata service.
    async fn request_machine_token(
        &self,
        client_id: Option<&str>,
    ) -> Result<(Secret, Duration), RequestError> {
        let mut url = self.urls.metadata.clone();
        url.set_path("/metadata/identity/oauth2/token");
        let audience = format!("{}/", self.urls.audience());
        url.query_pairs_mut()
            .append_pair("api-version", "2018-02-01")
            .append_pair("resource", &audience)
            .extend_pairs(client_id.map(|id| ("client_id", id)));
        let (mut attempts, mut gone) = (0, 0);
        loop {
            let request = Request { url: url.clone(), body: None, token: None, is_metadata: true };
            let answer = self.ask(request).await?;
            let status = answer.status;
            if status.is_success() {
                return self.read(&answer);
            }
            let may_pass = matches!(status.as_u16(), 404 | 429) || status.is_server_error();
            if status == StatusCode::GONE && gone < GONE.1 {
                gone += 1;
                sleep(self.retry * GONE.0).await;
            } else if may_pass && attempts < ATTEMPTS {
                sleep(self.retry * 2_u32.pow(attempts)).await;
                attempts += 1;
            } else {
                let error = ErrorBody::read(&answer.body).error(&answer, "", "", (self.clock)());
                return Err(RequestError::Token(format!(
                    "the metadata service of this machine answered {error}; see that it has a managed identity{}",
                    if client_id.is_some() { " with this `client_id`" } else { "" }
                )));
            }
        }
    }

    /// Requests a token for an application from the token service.
    async fn request_application_token(
        &self,
        tenant: &str,
        client_id: &str,
        proof: &[(&str, &str)],
    ) -> Result<(Secret, Duration), RequestError> {
        let mut url = self.urls.login.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().extend([tenant, "oauth2", "v2.0", "token"]);
        }
        let scope = format!("{}/.default", self.urls.audience());
        let mut form =
            Url::parse("form:").map_err(|error| RequestError::Token(error.to_string()))?;
        form.query_pairs_mut()
            .append_pair("grant_type", "client_credentials")
            .append_pair("client_id", client_id)
            .append_pair("scope", &scope)
            .extend_pairs(proof);
        let text = form.query().unwrap_or_default().to_owned();
        let body = Some(Body { kind: "application/x-www-form-urlencoded", text });
        let request = Request { url, body, token: None, is_metadata: false };
        let answer = self.ask(request).await?;
        if answer.status.is_success() {
            return self.read(&answer);
        }
        let ErrorBody { code, text } = ErrorBody::read(&answer.body);
        // AADSTS700024: the assertion is not valid now, 7000222: the secret has expired.
        let advice = if text.contains("AADSTS700024") {
            "; see that the clock of the issuer of the token is right, and that the file is renewed"
        } else if code == "invalid_client" {
            "; see that the secret or token is that of this application, and has not expired"
        } else {
            ""
        };
        let status = answer.status;
        let advice = advice.to_owned();
        Err(RequestError::Status { status, code, text, advice })
    }

    async fn ask(&self, request: Request) -> Result<HttpResponse, RequestError> {
        let method = if request.body.is_some() { "POST" } else { "GET" };
        let url = request.url.to_string();
        let begun = Instant::now();
        let answer = self.http.ask(request).await;
        self.http.note(|| {
            let (status, text) = match &answer {
                Ok(answer) if answer.status.is_success() => {
                    (Some(answer.status.as_u16()), "a token".to_owned())
                }
                Ok(answer) => {
                    let ErrorBody { code, text } = ErrorBody::read(&answer.body);
                    (Some(answer.status.as_u16()), format!("{code}: {text}"))
                }
                Err(error) => (None, error.to_string()),
            };
            Call { method, url, status, answer: text, missing: None, took: begun.elapsed() }
        });
        answer
    }

    /// Reads a token. Some services write numbers as strings.
    fn read(&self, answer: &HttpResponse) -> Result<(Secret, Duration), RequestError> {
        let unreadable =
            |what: &str| RequestError::Token(format!("the answer cannot be read: {what}"));
        let Ok(value) = serde_json::from_slice::<Value>(&answer.body) else {
            return Err(unreadable("it is no JSON"));
        };
        let token = value.get("access_token").and_then(Value::as_str).unwrap_or_default();
        if token.is_empty() || HeaderValue::from_str(token).is_err() {
            return Err(unreadable("there is no token in it"));
        }
        let number = |key: &str| {
            let value = value.get(key)?;
            value.as_i64().or_else(|| value.as_str()?.trim().parse().ok())
        };
        let seconds = number("expires_in")
            .or_else(|| Some(number("expires_on")? - (self.clock)().as_second()))
            .ok_or_else(|| unreadable("it does not say for how long the token lives"))?;
        let lifetime = Duration::from_secs(seconds.try_into().unwrap_or(0)).min(LONGEST);
        if lifetime <= MIN_REMAINING_LIFETIME {
            return Err(unreadable("the token has ended already"));
        }
        Ok((Secret::new(token.to_owned()), lifetime))
    }
}

/// Reads a secret from its file, which must not be readable or writable by others.
async fn read(key: &'static str, path: &Path) -> Result<Secret, RequestError> {
    let path = path.to_owned();
    let read = tokio::task::spawn_blocking(move || read_now(key, &path)).await;
    read.unwrap_or_else(|error| Err(error.to_string())).map_err(RequestError::Token)
}

fn read_now(key: &'static str, path: &Path) -> Result<Secret, String> {
    use std::io::Read as _;
    use std::os::unix::fs::PermissionsExt as _;

    let failed =
        |error: std::io::Error| format!("the file that `{key}` names cannot be read: {error}");
    let mut options = fs_err::OpenOptions::new();
    // A named pipe would block.
    let mut file = options.read(true).custom_flags(NONBLOCKING).open(path).map_err(failed)?;
    let metadata = file.metadata().map_err(failed)?;
    let mode = metadata.permissions().mode() & 0o7777;
    if !metadata.is_file() {
        return Err(format!("`{}`, which `{key}` names, is no file", path.display()));
    }
    if mode & 0o027 != 0 {
        return Err(format!(
            "`{}`, which `{key}` names, may be read or written by others (mode {mode:04o}): `chmod 600` it, and think of the secret as known",
            path.display()
        ));
    }
    let mut text = String::new();
    (&mut file).take(MAX_SECRET).read_to_string(&mut text).map_err(failed)?;
    match text.trim() {
        "" => Err(format!("`{}`, which `{key}` names, is empty", path.display())),
        secret => Ok(Secret::new(secret.to_owned())),
    }
}

/// `O_NONBLOCK` of Linux.
const NONBLOCKING: i32 = 0o4000;
const MAX_SECRET: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn secret_file_readable_by_others_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let read = || read_now("secret_file", &path);
        assert!(read().unwrap_err().contains("cannot be read"), "{:?}", read());
        fs_err::write(&path, " s3cret\n").unwrap();
        let mode = |mode| {
            fs_err::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        for bad in [0o644, 0o604, 0o660, 0o602] {
            mode(bad);
            let error = read().unwrap_err();
            assert!(error.contains(&format!("mode {bad:04o}")), "{error}");
            assert!(!error.contains("s3cret"), "{error}");
        }
        for good in [0o600, 0o400, 0o640] {
            mode(good);
            assert_eq!(read().unwrap().expose(), "s3cret");
        }
        fs_err::write(&path, "\n").unwrap();
        assert!(read().unwrap_err().contains("is empty"));
        fs_err::remove_file(&path).unwrap();
        fs_err::create_dir(&path).unwrap();
        assert!(read().unwrap_err().contains("is no file"));
    }
}
