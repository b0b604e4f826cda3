//! The fake rejects what Azure rejects: otherwise no test would find a wrong request of the
//! provider.

use ironmesh_tests::azure::{FakeAzure, GROUP, SUBSCRIPTION};
use ironmesh_tests::tls::plain_http_client;
use reqwest::RequestBuilder;
use serde_json::Value;

use crate::watch::shop;

/// The status and the error code of an answer.
async fn error_of(request: RequestBuilder) -> (u16, String) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
    let code = body.pointer("/error/code").or_else(|| body.get("error"));
    (status, code.and_then(Value::as_str).unwrap_or_default().to_owned())
}

fn list(azure: &FakeAzure, what: &str, query: &str) -> String {
    let group = format!("subscriptions/{SUBSCRIPTION}/resourceGroups/{GROUP}/providers");
    format!("{}/{group}/{what}?{query}", azure.manager())
}

#[tokio::test]
async fn fake_azure_rejects_requests_that_azure_rejects() {
    let azure = shop().await;
    let client = plain_http_client();
    let metadata = |query: &str| {
        let path = "metadata/identity/oauth2/token";
        client.get(format!("{}/{path}?{query}", azure.metadata()))
    };
    let for_whom = |audience: &str| format!("api-version=2018-02-01&resource={audience}");
    let token = async |audience: &str| {
        let answer = metadata(&for_whom(audience)).header("metadata", "true").send().await.unwrap();
        let body: Value = serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap();
        body["access_token"].as_str().unwrap().to_owned()
    };
    let right = token(&format!("{}/", azure.manager())).await;
    let wrong = token("https://management.azure.com/").await;
    let sets = "Microsoft.Compute/virtualMachineScaleSets";
    let version = "api-version=2024-11-01";
    let good = list(&azure, sets, version);
    let with = |url: &str| client.get(url).bearer_auth(&right);
    assert_eq!(with(&good).send().await.unwrap().status(), 200);

    for (request, status, code) in [
        (client.get(&good), 401, "AuthenticationFailed"),
        (client.get(&good).bearer_auth("ey.none"), 401, "InvalidAuthenticationToken"),
        (client.get(&good).bearer_auth(&wrong), 401, "InvalidAuthenticationTokenAudience"),
        (with(&list(&azure, sets, "")), 400, "MissingApiVersionParameter"),
        (with(&list(&azure, sets, "api-version=2030-01-01")), 400, "InvalidApiVersionParameter"),
        (
            with(&list(&azure, "Microsoft.Network/networkInterfaces", version)),
            400,
            "InvalidApiVersionParameter",
        ),
        (with(&list(&azure, "Microsoft.Compute/disks", version)), 404, "InvalidResourceType"),
        (
            with(&list(&azure, &format!("{sets}/none/virtualMachines"), version)),
            404,
            "ParentResourceNotFound",
        ),
        (
            with(&list(&azure, sets, &format!("{version}&$expand=instanceView"))),
            400,
            "InvalidParameter",
        ),
        (with(&good.replace(GROUP, "none")), 404, "ResourceGroupNotFound"),
        (client.delete(&good).bearer_auth(&right), 405, "MethodNotAllowed"),
        (metadata(&for_whom("https://management.azure.com/")), 400, "bad_request_102"),
        (metadata(&for_whom("x")).header("metadata", "true"), 400, "invalid_request"),
        (metadata("api-version=1").header("metadata", "true"), 400, "invalid_request"),
    ] {
        let what = format!("{request:?}");
        let (is, why) = error_of(request).await;
        assert_eq!((is, &*why), (status, code), "{what}");
    }
}
