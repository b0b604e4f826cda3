//! All received resource contents, each once. Clients hold references to them instead of bytes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use ironmesh_xds_wire::ResourceType;
use parking_lot::Mutex;
use prost::DecodeError;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use crate::messages::Entry;
use crate::references::References;

/// One content of a resource.
#[derive(Debug)]
pub struct ResourceContent {
    /// Its name.
    pub name: Arc<str>,
    /// The version from the control plane; in SotW, which has no version per resource, the hash.
    pub(crate) version: Arc<str>,
    /// The hash of its bytes.
    pub content: u128,
    pub(crate) references: References,
    /// Its bytes, if the library keeps them.
    pub(crate) body: Option<Bytes>,
}

/// The contents that the clients of one process have received.
#[derive(Debug, Default)]
pub(crate) struct Library {
    keeps_bodies: bool,
    bytes: AtomicU64,
    by_hash: Mutex<HashMap<u128, Arc<ResourceContent>>>,
}

impl Library {
    /// A library that also keeps the bytes.
    pub(crate) fn with_bodies() -> Self {
        Self { keeps_bodies: true, ..Self::default() }
    }

    /// The total size of all contents, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// The contents of all resources with this name, in no order.
    pub(crate) fn contents(&self, name: &str) -> Vec<Arc<ResourceContent>> {
        let by_hash = self.by_hash.lock();
        by_hash.values().filter(|known| &*known.name == name).cloned().collect()
    }

    /// Returns the content of an entry, and decodes it if it is new.
    pub(crate) fn content(
        &self,
        resource_type: ResourceType,
        entry: &Entry<'_>,
    ) -> Result<Arc<ResourceContent>, DecodeError> {
        let mut hasher = Xxh3::new();
        for part in
            [resource_type.url().as_bytes(), entry.name.as_bytes(), entry.version.as_bytes()]
        {
            hasher.update(&part.len().to_le_bytes());
            hasher.update(part);
        }
        hasher.update(entry.body);
        let hash = hasher.digest128();
        if let Some(known) = self.by_hash.lock().get(&hash) {
            return Ok(Arc::clone(known));
        }
        let content = xxh3_128(entry.body);
        let version = match entry.version {
            "" => format!("{content:032x}").into(),
            version => version.into(),
        };
        let references = References::read(resource_type, entry.body)?;
        let body = self.keeps_bodies.then(|| Bytes::copy_from_slice(entry.body));
        let name = entry.name.into();
        self.bytes.fetch_add(entry.body.len() as u64, Relaxed);
        let known = Arc::new(ResourceContent { name, version, content, references, body });
        self.by_hash.lock().insert(hash, Arc::clone(&known));
        Ok(known)
    }
}
