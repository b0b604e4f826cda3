//! How much policy there may be, and what is told of too much: nobody who writes policy by hand or by
//! program comes near these, and what does (`policy = "/"`, a file of another program) is told at once
//! instead of taking minutes and memory (docs/decisions/0025).

use ironmesh_catalog::Finding;

use crate::codes;

/// The documents of one policy, at most.
pub const DOCUMENTS: usize = 10_000;

/// What is looked at below a policy folder, at most: files, folders and links, whether they are documents
/// or not.
pub const ENTRIES: usize = 100_000;

/// The folders below a policy folder that are looked into, at most, on whatever ways they are found.
pub const FOLDERS: usize = 10_000;

/// The bytes of one document, at most. (A thousand services are 100 KB.)
pub const DOCUMENT_BYTES: usize = 4 << 20;

/// The bytes of all documents, at most.
pub(crate) const POLICY_BYTES: usize = 32 << 20;

/// The findings that are told, at most; errors before warnings.
pub(crate) const FINDINGS: usize = 1_000;

/// The findings of one document by itself that are told, at most of each severity.
pub(crate) const FINDINGS_OF_ONE: usize = 100;

/// The bytes of a message, or of its advice, at most: what is quoted in it may be of any length.
pub(crate) const MESSAGE_BYTES: usize = 500;

/// The characters of a name in Consul, at most.
pub const CONSUL_NAME: usize = 256;

/// The characters of a filter that Consul is asked with, at most.
pub(crate) const CONSUL_FILTER: usize = 4096;

/// What is told of a policy of so many documents, of so many bytes together, if that is too much.
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

/// There are more than `most` of `what` in the policy folder.
pub fn too_many(most: usize, what: &str) -> Finding {
    let message = format!("there are more than {most} {what} in the policy folder");
    Finding::error(codes::TOO_LARGE, None, message)
        .help("name the folder that holds policy alone, or put several objects into one document")
}
