//! The policy language: documents in TOML, or in the YAML of SMI and Open Service Mesh, become a validated
//! [`MeshSpecification`](ironmesh_catalog::MeshSpecification), and everything that is wrong with them becomes
//! findings, all reported at once.
//!
//! This crate owns the kinds of policy, how a table of TOML is read, the codes of its findings, and how findings
//! are rendered. It is pure: it reads no file, knows no clock, never sees a proxy, and never decides when a
//! specification becomes active. It never stops at the first problem.
//!
//! Start reading at [`policy::load_documents`]. The settings file is read with the same [`table`]s.

pub mod azure;
pub mod codes;
pub mod duration;
pub mod import;
pub mod limits;
pub mod mode;
pub mod policy;
pub mod schema;
pub mod syntax;
pub mod table;

mod document;
mod findings;
mod kinds;
mod render;
mod suggest;
mod yaml;

pub use document::{Document, YAML_EXTENSIONS};
pub use import::{ImportDialect, ImportError, Imported, Remark, import};
pub use kinds::PolicyKind;
pub use policy::{Loaded, Loader, load_documents, revision_of};
pub use render::render;
pub use suggest::closest;
pub use yaml::yaml_value;
