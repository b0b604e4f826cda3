//! What operators write, read: policy documents become a validated
//! [`MeshSpecification`](ironmesh_catalog::MeshSpecification), `ironmesh.toml` becomes [`Settings`],
//! and everything that is wrong with either becomes findings, all told at once.
//!
//! This crate owns the TOML language of the mesh, the codes of its findings, and the policy folder
//! and etcd as sources. It never decides when a specification comes into force, never sees a proxy, and
//! never stops at the first problem. Only [`folder`] and [`etcd`] do IO.
//!
//! Start reading at [`policy::load_documents`].

pub mod codes;
pub mod etcd;
pub mod folder;
pub mod import;
pub mod policy;
pub mod schema;
pub mod settings;

mod azure;
mod document;
mod duration;
mod findings;
mod limits;
mod mode;
mod render;
mod suggest;
mod syntax;
mod table;
mod yaml;

pub use document::Document;
pub use etcd::{
    EtcdError, EtcdFollower, EtcdPolicy, Kept, LeaderElection, PushError, Pushed, Role,
};
pub use folder::{
    CommitError, Folder, FolderError, FolderWatch, WatchError, commit_of, load_folder, read_folder,
    watch_folder,
};
pub use import::{Imported, NotImported, Origin, Remark, import};
pub use policy::{Loaded, Loader, load_documents};
pub use render::render;
pub use settings::{
    AzureCloud, AzureCredential, AzureSettings, Certificates, ConsulSettings, EndpointsSettings,
    EtcdSettings, Listen, LocalityKeys, PolicyPlace, Settings, Xds, load_settings,
};
pub use suggest::closest;
