//! The page that logs in, in a real browser.

use ironmesh_tests::Browser;
use serde_json::json;

use crate::operators::{issue, ok, start, token_text};
use crate::server::Server;

/// The status of a path of the API, for the browser.
async fn status(browser: &Browser, path: &str) -> u64 {
    let answer = browser.evaluate(&format!("(await fetch('{path}')).status")).await;
    answer.as_u64().unwrap()
}

/// The link of `ironmesh ui` at the address of the listener.
fn link(server: &Server) -> String {
    let link = server.json(&["ui", "--role", "viewer"]);
    let links: Vec<_> =
        link["links"].as_array().unwrap().iter().filter_map(|one| one.as_str()).collect();
    let (_, secret) = links[0].split_once('#').unwrap();
    format!("https://{}/login#{secret}", server.loopback.socket(1, 15130))
}

#[tokio::test]
async fn page_logs_in_by_link_and_by_token() {
    let Some(browser) = Browser::start().await else { return };
    let Some((server, _child)) = start().await else { return };
    issue(&server, "root", "admin", "1h");
    let link = link(&server);
    browser.open(&link).await;
    browser
        .wait_until("document.getElementById('result').textContent.includes('has the role viewer')")
        .await;
    // The secret has left the address, and scripts cannot read the cookie.
    assert_eq!(browser.evaluate("location.hash").await, "");
    assert_eq!(browser.evaluate("document.cookie").await, "");
    assert_eq!(browser.evaluate("document.getElementById('form').hidden").await, true);
    assert_eq!(status(&browser, "/v1/proxies").await, 200);
    assert_eq!(status(&browser, "/v1/journal").await, 403);

    browser.evaluate("document.getElementById('logout').click()").await;
    browser.wait_until("document.getElementById('result').textContent === 'logged out'").await;
    assert_eq!(status(&browser, "/v1/proxies").await, 401);

    // A used link: the page says so, and has the form.
    browser.open("about:blank").await;
    browser.open(&link).await;
    browser
        .wait_until("document.getElementById('result').textContent.includes('was used at')")
        .await;
    let token = token_text(&server, "ann", "operator", "1h");
    for (text, result) in
        [("imo1_nonsense", "token"), (&*token, "operator ann has the role operator")]
    {
        let enter = format!(
            "{{ document.getElementById('token').value = {}; document.getElementById('form').requestSubmit(); }}",
            json!(text)
        );
        browser.evaluate(&enter).await;
        let expected =
            format!("document.getElementById('result').textContent.includes({})", json!(result));
        browser.wait_until(&expected).await;
    }
    assert_eq!(browser.evaluate("document.getElementById('token').value").await, "");
    assert_eq!(status(&browser, "/v1/journal").await, 200);
    // The cookie is there after the page, until the credential is revoked.
    browser.open(&format!("https://{}/v1/journal", server.loopback.socket(1, 15130))).await;
    browser.wait_until("document.body.innerText.includes('logged in')").await;
    ok(server.run(&["operator", "revoke", "ann"]));
    assert_eq!(status(&browser, "/v1/journal").await, 401);
}
