//! The structure of the workspace: imports between crates, and the form of files.
//!
//! Nothing here runs the product. To fix a failure, move code, or edit a table here in a separate
//! commit that gives the reason.

#![expect(clippy::unwrap_used, reason = "test code: a panic is a failed test")]

mod adversarial;
mod conformance;
mod edges;
mod files;
mod glossary;
mod identifiers;
mod links;
mod logs;
mod metrics;
mod modules;
mod packages;
mod smi;
mod source;
mod tables;
mod threats;
mod words;
mod workspace;
