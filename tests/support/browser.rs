//! A real Chromium, driven by its WebDriver.

use std::path::Path;

use anyhow::{Context as _, ensure};
use fs_err as fs;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::eventually;
use crate::process::Child;
use crate::programs::require_chromium;
use crate::tls::plain_http_client;

/// A browser with a profile of its own. Dropping this value ends it: Chromium ends with the pipe of its driver.
#[derive(Debug)]
pub struct Browser {
    /// Before the folder, so that it ends before that is removed.
    _driver: Child,
    http: reqwest::Client,
    /// The URL of the session of the driver.
    session: String,
    _folder: TempDir,
}

impl Browser {
    /// Starts a browser that accepts the certificates of the mesh's own authority. `None` skips the test because
    /// Chromium is missing.
    pub async fn start() -> Option<Self> {
        let chromium = require_chromium()?;
        let folder = tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap();
        let log = folder.path().join("chromedriver.log");
        let mut command = Command::new("chromedriver");
        // A port of the system's choice, on loopback.
        command.arg("--port=0").env("HOME", folder.path()).current_dir(folder.path());
        let mut driver = Child::start("chromedriver", &mut command, &log);
        let port = eventually("the driver of Chromium", async || {
            driver.assert_running();
            let text = fs::read_to_string(&log).map_err(|error| error.to_string())?;
            let port =
                text.split("successfully on port ").nth(1).and_then(|rest| rest.split('.').next());
            port.map(str::to_owned).ok_or_else(|| text.clone())
        })
        .await;
        let http = plain_http_client();
        let url = format!("http://127.0.0.1:{port}/session");
        let answer = send(&http, &url, &capabilities(&chromium, folder.path())).await.unwrap();
        let id = answer.get("sessionId").and_then(Value::as_str).unwrap();
        let session = format!("{url}/{id}");
        Some(Self { _driver: driver, http, session, _folder: folder })
    }

    /// Loads a page, and waits until its scripts have been loaded.
    pub async fn open(&self, url: &str) {
        send(&self.http, &format!("{}/url", self.session), &json!({ "url": url })).await.unwrap();
    }

    /// The value of an expression of JavaScript in the page; `await` is allowed in it.
    pub async fn evaluate(&self, expression: &str) -> Value {
        let script = format!("return (async () => {expression})()");
        let body = json!({ "script": script, "args": [] });
        send(&self.http, &format!("{}/execute/sync", self.session), &body).await.unwrap()
    }

    /// Waits until an expression is true.
    pub async fn wait_until(&self, expression: &str) {
        eventually(expression, async || {
            if self.evaluate(expression).await == true {
                return Ok(());
            }
            let page = self.evaluate("document.documentElement.innerText").await;
            Err(format!("the page is {page}"))
        })
        .await;
    }
}

fn capabilities(chromium: &Path, folder: &Path) -> Value {
    let profile = format!("--user-data-dir={}", folder.join("profile").display());
    // Root may run Chromium without its sandbox alone, and /dev/shm of a container is small.
    let arguments = [
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        "--remote-debugging-pipe",
        &profile,
    ];
    json!({ "capabilities": { "alwaysMatch": {
        "acceptInsecureCerts": true,
        "goog:chromeOptions": { "binary": chromium, "args": arguments },
    } } })
}

/// Sends a command to the driver, and returns its value.
async fn send(http: &reqwest::Client, url: &str, body: &Value) -> anyhow::Result<Value> {
    let request = http.post(url).header("content-type", "application/json").body(body.to_string());
    let response = request.send().await?;
    let status = response.status();
    let text = response.text().await?;
    ensure!(status.is_success(), "{url}: {status}: {text}");
    let answer: Value = serde_json::from_str(&text).with_context(|| text.clone())?;
    answer.get("value").cloned().with_context(|| text.clone())
}
