//! Documents from outside the policy folder: the input of an import.

use std::io::{self, Read};
use std::path::Path;

use ironmesh_config_language::Document;

/// The largest document in bytes, which is also the limit for a file of the policy folder.
const MAX_BYTES: u64 = 4 * 1024 * 1024;

/// The reason why an input was not read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The file cannot be opened.
    #[error(transparent)]
    Open(io::Error),
    /// The input cannot be read.
    #[error("`{0}` cannot be read")]
    Read(String, #[source] io::Error),
    /// The input is too large.
    #[error("`{0}` is larger than 4 MiB: pass only policy resources")]
    TooLarge(String),
    /// The input is not UTF-8 from this byte on.
    #[error("`{0}` is not UTF-8 from byte {1} on: save it as UTF-8")]
    NotUtf8(String, usize),
}

/// Reads a file as a document, or stdin for `-`.
pub fn read_input(path: &Path) -> Result<Document, InputError> {
    if path.as_os_str() == "-" {
        return document("stdin".to_owned(), io::stdin().lock());
    }
    let file = fs_err::File::open(path).map_err(InputError::Open)?;
    document(path.display().to_string(), file)
}

/// Reads UTF-8 text within the size limit.
fn document(name: String, input: impl Read) -> Result<Document, InputError> {
    let mut bytes = Vec::new();
    if let Err(error) = input.take(MAX_BYTES + 1).read_to_end(&mut bytes) {
        return Err(InputError::Read(name, error));
    }
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_BYTES) {
        return Err(InputError::TooLarge(name));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(Document::new(name, text)),
        Err(error) => Err(InputError::NotUtf8(name, error.utf8_error().valid_up_to())),
    }
}
