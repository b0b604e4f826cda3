//! The command line as operators see it: output, streams and exit codes.

#![expect(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and what it prints belongs to its report"
)]

mod agent;
mod alerts;
mod audit;
mod azure;
mod bad_input;
mod bench;
mod bootstrap;
mod bulk_enrollment;
mod certificates;
mod check;
mod closed_stdout;
mod codes;
mod colors;
mod command;
mod configuration;
mod cordon;
mod endpoints;
mod enrollment;
mod events;
mod explain;
mod explain_outside;
mod finding;
mod first_start;
mod folder;
mod generated_docs;
mod hostile_text;
mod hung;
mod import;
mod journal;
mod json;
mod json_log;
mod log_floods;
mod log_level;
mod login_page;
mod logins;
mod metrics;
mod open_files;
mod openapi;
mod operator_abuse;
mod operators;
mod permissions;
mod plan;
mod policy_apply;
mod policy_explain;
mod policy_wait;
mod proxies;
mod proxy_list;
mod release_script;
mod rollback;
mod schemathesis;
mod serve;
mod server;
mod services;
mod signals;
mod socket_path;
mod state;
mod status;
mod store_transfer;
mod storms;
mod suggestions;
mod terminal;
mod traces;
mod traffic_report;
mod versions;
mod watch;
mod yaml;
