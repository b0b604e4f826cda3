//! The shape of the workspace, held by tests: who may import whom, and what files look like.
//!
//! Nothing here runs our code. What fails is fixed by moving code, or by an edit of a table here,
//! in a commit of its own that gives the reason.

#![expect(clippy::unwrap_used, reason = "test code: a panic is a failed test")]

mod adversarial;
mod conformance;
mod edges;
mod files;
mod glossary;
mod smi;
mod source;
mod words;
mod workspace;
