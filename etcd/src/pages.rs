//! Pages: parts of a listing, all at one revision of etcd.

use crate::session::KeyValue;

/// A part of a listing.
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// The keys with their values, in the order of the keys.
    pub entries: Vec<KeyValue>,
    /// The revision of etcd at which they were so.
    pub revision: i64,
    /// Whether there are more keys after these.
    pub has_more: bool,
}
