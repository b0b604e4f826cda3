//! The caller of an [`super::IngressQuestion`], as people write it.

use std::net::IpAddr;

use ironmesh_catalog::Hostname;

/// A caller from outside the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutsideCaller {
    /// The names in its certificate: SPIFFE IDs or DNS names.
    pub names: Vec<String>,
    /// Its address.
    pub address: Option<IpAddr>,
}

/// The reason why texts are no caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidOutsideCaller {
    /// A text is neither an address nor a name.
    #[error(
        "`{0}` is neither an address (10.1.2.3) nor a certificate name (a SPIFFE ID or a DNS name)"
    )]
    Neither(String),
    /// There is a second address.
    #[error("a call has one source address: remove `{0}`")]
    SecondAddress(IpAddr),
}

impl OutsideCaller {
    /// The caller with these addresses and certificate names.
    pub fn parse(texts: Vec<String>) -> Result<Self, InvalidOutsideCaller> {
        let (addresses, names): (Vec<_>, Vec<_>) =
            texts.into_iter().partition(|one| one.parse::<IpAddr>().is_ok());
        let is_name = |name: &String| name.starts_with("spiffe://") || Hostname::new(name).is_ok();
        if let Some(neither) = names.iter().find(|name| !is_name(name)) {
            return Err(InvalidOutsideCaller::Neither(neither.clone()));
        }
        let mut addresses = addresses.iter().filter_map(|one| one.parse().ok());
        let address = addresses.next();
        match addresses.next() {
            Some(other) => Err(InvalidOutsideCaller::SecondAddress(other)),
            None => Ok(Self { names, address }),
        }
    }
}
