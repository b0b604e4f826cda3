//! The table of routes: each operation of the API with what it needs, and its handler.

use std::time::Duration;

use ironmesh_api::{CordonChange, EVENTS_PATH, MAX_APPLY, MAX_PLAN};

use super::ControlPlane;
use super::access::{issue_credential, operators, revoke_operator};
use super::cordons::change_cordon;
use super::events::events;
use super::export::export;
use super::handlers::{
    accept_endpoints, accept_removal, all_endpoints, all_traffic, apply, audit, bootstrap,
    certificates, convergence, create_tokens, debug, endpoints, explain, explain_by_query, healthz,
    journal, metrics, plan, policy_revisions, policy_wait, proxies, proxy, proxy_config, readyz,
    revoke, revoke_one, revoke_token, roll_back, set_services, tokens, traffic,
};
use super::log_level::{log_level, set_log_level};
use super::logins::{
    create_link, log_in, log_out, login_page, login_script, revoke_session, sessions,
};
use super::mesh_reads::{access, policy_documents, providers, service, services, settings};
use super::openapi::openapi;
use super::operations::{Operation, Routes};
use super::principal::Permission::{
    Administer, ChangeMesh, ChangePolicy, LogIn, Probe, ReadAccess, ReadJournal, ReadPolicy,
    ReadState,
};
use super::silences::{findings, remove_silence, silence, silences};
use super::versions::versions;

/// How long a release may take, whose files are all synced to the disk.
const APPLY_LIMIT: Duration = Duration::from_secs(120);

/// How long a plan may take, for which all proxies are compiled two or three times.
const PLAN_LIMIT: Duration = Duration::from_secs(600);

/// All operations of the API, in the order of the table.
pub fn operations() -> Vec<Operation> {
    routes().operations()
}

/// The OpenAPI document of the API.
pub fn document() -> serde_json::Value {
    super::openapi::document(&routes())
}

#[rustfmt::skip]
pub(super) fn routes() -> Routes {
    let (get, post) = (Operation::get, Operation::post);
    Routes::new()
        .add(get("health", "/healthz", Probe), healthz)
        .add(get("readiness", "/readyz", ReadState), readyz)
        .add(get("metrics", "/metrics", ReadState), metrics)
        .add(get("debug", "/debug/{name}", ReadState), debug)
        .add(get("openapi", "/v1/openapi.json", ReadState), openapi)
        .add(get("explain_call_by_query", "/v1/explain", ReadState), explain_by_query(ControlPlane::explain))
        .add(post("explain_call", "/v1/explain", ReadState), explain(ControlPlane::explain))
        .add(get("explain_egress_by_query", "/v1/explain/egress", ReadState), explain_by_query(ControlPlane::explain_outward))
        .add(post("explain_egress", "/v1/explain/egress", ReadState), explain(ControlPlane::explain_outward))
        .add(get("explain_ingress_by_query", "/v1/explain/ingress", ReadState), explain_by_query(ControlPlane::explain_inward))
        .add(post("explain_ingress", "/v1/explain/ingress", ReadState), explain(ControlPlane::explain_inward))
        .add(get("services", "/v1/services", ReadState), services)
        .add(get("service", "/v1/services/{namespace}/{name}", ReadState), service)
        .add(get("access", "/v1/access", ReadState), access)
        .add(get("providers", "/v1/providers", ReadState), providers)
        .add(get("settings", "/v1/settings", ReadPolicy), settings)
        .add(get("all_endpoints", "/v1/endpoints", ReadState), all_endpoints)
        .add(get("endpoints", "/v1/endpoints/{namespace}/{name}", ReadState), endpoints)
        .add(post("accept_endpoints", "/v1/endpoints/{namespace}/{name}/accept", ChangeMesh), accept_endpoints)
        .add(get("all_traffic", "/v1/traffic", ReadState), all_traffic)
        .add(get("traffic", "/v1/traffic/{namespace}/{name}", ReadState), traffic)
        .add(get("audit", "/v1/audit", ReadState), audit)
        .add(get("convergence", "/v1/convergence", ReadState), convergence)
        .add(get("certificates", "/v1/certificates", ReadState), certificates)
        .add(get("policy_revisions", "/v1/policy/revisions", ReadState), policy_revisions)
        .add(get("policy_documents", "/v1/policy/documents", ReadPolicy), policy_documents)
        .add(post("policy_wait", "/v1/policy/wait", ReadState), policy_wait)
        .add(post("policy_rollback", "/v1/policy/rollback", ChangePolicy), roll_back)
        .add(post("policy_accept", "/v1/policy/accept", ChangePolicy), accept_removal)
        .add(post("policy_apply", "/v1/policy/apply", ChangePolicy).with_body(MAX_APPLY, APPLY_LIMIT), apply)
        .add(post("plan", "/v1/plan", ReadPolicy).with_body(MAX_PLAN, PLAN_LIMIT), plan)
        .add(get("proxies", "/v1/proxies", ReadState), proxies)
        .add(post("enroll_proxies", "/v1/proxies", ChangeMesh), bootstrap)
        .add(get("proxy", "/v1/proxies/{id}", ReadState), proxy)
        .add(get("proxy_config", "/v1/proxies/{id}/config", ReadState), proxy_config)
        .add(post("revoke_proxy", "/v1/proxies/{id}/revoke", ChangeMesh), revoke_one)
        .add(post("set_services", "/v1/proxies/{id}/services", ChangeMesh), set_services)
        .add(post("cordon_proxy", "/v1/proxies/{id}/cordon", ChangeMesh), change_cordon(CordonChange::Cordon))
        .add(post("drain_proxy", "/v1/proxies/{id}/drain", ChangeMesh), change_cordon(CordonChange::Drain))
        .add(post("uncordon_proxy", "/v1/proxies/{id}/uncordon", ChangeMesh), change_cordon(CordonChange::Uncordon))
        .add(get("versions", "/v1/versions", ReadState), versions)
        .add(post("revoke_proxies", "/v1/revocations", ChangeMesh), revoke)
        .add(get("tokens", "/v1/tokens", ReadAccess), tokens)
        .add(post("create_tokens", "/v1/tokens", ChangeMesh), create_tokens)
        .add(post("revoke_token", "/v1/tokens/{id}/revoke", ChangeMesh), revoke_token)
        .add(get("operators", "/v1/operators", ReadAccess), operators)
        .add(post("issue_credential", "/v1/operators", Administer), issue_credential)
        .add(post("revoke_operator", "/v1/operators/{name}/revoke", Administer), revoke_operator)
        .add(get("sessions", "/v1/sessions", ReadState), sessions)
        .add(post("revoke_session", "/v1/sessions/{id}/revoke", LogIn), revoke_session)
        .add(post("create_login_link", "/v1/login-links", LogIn), create_link)
        .add(post("log_in", "/v1/login", Probe), log_in)
        .add(post("log_out", "/v1/logout", LogIn), log_out)
        .add(get("login_page", "/login", Probe), login_page)
        .add(get("login_script", "/login.js", Probe), login_script)
        .add(get("findings", "/v1/findings", ReadState), findings)
        .add(get("silences", "/v1/silences", ReadState), silences)
        .add(post("silence_findings", "/v1/silences", ChangeMesh), silence)
        .add(post("remove_silence", "/v1/silences/{id}/remove", ChangeMesh), remove_silence)
        .add(get("events", EVENTS_PATH, ReadState), events)
        .add(get("journal", "/v1/journal", ReadJournal), journal)
        .add(get("log_level", "/v1/log-level", ReadState), log_level)
        .add(post("set_log_level", "/v1/log-level", ChangeMesh), set_log_level)
        .add(post("export", "/v1/store/export", Administer), export)
}
