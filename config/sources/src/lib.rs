//! The sources of policy: a folder, and etcd. Each is read as a whole, and reports when it may have changed.
//!
//! This crate owns the layout of policy in a folder and in etcd. It never interprets policy, which
//! `ironmesh-config-language` does, and never decides when a specification becomes active.

mod etcd;
mod folder;
mod input;

pub use etcd::{
    DamagedPush, EtcdFollower, EtcdPolicy, POLICY_SECTION, PolicyError, PublishOutcome, PushError,
    Pushed, RetainedPolicies, STORE_SECTION, etcd_options,
};
pub use folder::{
    CommitError, Folder, FolderError, FolderWatch, WatchError, author_of, commit_of, load_folder,
    read_folder, watch_folder,
};
pub use input::{InputError, read_input};
