//! The limits of a policy's size, and the findings of a policy above them.
//!
//! No policy that a person or a program writes comes near these limits. Input that exceeds them
//! (`policy = "/"`, a file of another program) is reported at once, before it costs minutes and memory
//! (docs/decisions/0025).

use ironmesh_catalog::Finding;

use crate::codes;

/// The documents of one policy, at most.
pub const DOCUMENTS: usize = 10_000;

/// The entries below a policy folder, at most: files, folders and links, whether they are documents or not.
pub const ENTRIES: usize = 100_000;

/// The folders below a policy folder that are read, at most, by whatever links they are reached.
pub const FOLDERS: usize = 10_000;

/// The bytes of one document, at most. (A thousand services are 100 KB.)
pub const DOCUMENT_BYTES: usize = 4 << 20;

/// The bytes of all documents, at most.
pub(crate) const POLICY_BYTES: usize = 32 << 20;

/// The findings that are reported, at most; errors before warnings.
pub(crate) const FINDINGS: usize = 1_000;

/// The findings of one document that are reported, at most of each severity.
pub(crate) const FINDINGS_OF_ONE: usize = 100;

/// The bytes of a message, or of its help, at most: a quoted value may have any length.
pub(crate) const MESSAGE_BYTES: usize = 500;

/// The characters of a name in Consul, at most.
pub const CONSUL_NAME: usize = 256;

/// The characters of a filter expression of a Consul query, at most.
pub(crate) const CONSUL_FILTER: usize = 4096;

/// The finding for a policy with too many documents, or with too many bytes in all.
pub fn excess(documents: usize, bytes: usize) -> Option<Finding> {
    if documents > DOCUMENTS {
        Some(too_many(DOCUMENTS, "documents"))
    } else if bytes > POLICY_BYTES {
        let message = format!("the policy is larger than {} MiB", POLICY_BYTES >> 20);
        let finding = Finding::error(codes::TOO_LARGE, None, message);
        Some(finding.help("are there files in the policy folder that are no policy?"))
    } else {
        None
    }
}

/// The finding for a policy folder with more than `most` of `what`.
pub fn too_many(most: usize, what: &str) -> Finding {
    let message = format!("there are more than {most} {what} in the policy folder");
    Finding::error(codes::TOO_LARGE, None, message)
        .help("name the folder that holds policy alone, or put several objects into one document")
}
