//! `ironmesh proxy`.

mod bootstrap;
mod cordon;
mod list;
mod new_proxy;
mod renew;
mod revoke;
mod set_services;
mod show;
mod token;
mod versions;

pub(crate) use self::bootstrap::bootstrap;
pub(crate) use self::cordon::cordon;
pub(crate) use self::list::list;
pub(crate) use self::new_proxy::{NewProxyReport, admin, node_metadata, note_to_root};
pub(crate) use self::revoke::revoke;
pub(crate) use self::set_services::set_services;
pub(crate) use self::show::show;
pub(crate) use self::token::token;
pub(crate) use self::versions::versions;
