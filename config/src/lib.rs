//! What operators write, read: policy documents become a validated
//! [`MeshSpecification`](ironmesh_catalog::MeshSpecification), `ironmesh.toml` becomes [`Settings`],
//! and everything that is wrong with either becomes findings, all told at once.
//!
//! This crate owns the TOML language of the mesh, the codes of its findings, and the policy folder
//! as a source. It never decides when a specification comes into force, never sees a proxy, and
//! never stops at the first problem. Only [`folder`] does IO.
//!
//! Start reading at [`policy::load_documents`].

pub mod codes;
pub mod folder;
pub mod policy;
pub mod schema;
pub mod settings;

mod document;
mod mode;
mod render;
mod suggest;
mod table;

pub use document::Document;
pub use folder::{
    Folder, FolderError, FolderWatch, WatchError, load_folder, read_folder, watch_folder,
};
pub use policy::{Loaded, Loader, load_documents};
pub use render::render;
pub use settings::{Certificates, Listen, Settings, Xds, load_settings};
pub use suggest::closest;
