//! The ACL token of Consul, read from its file.

use std::io;
use std::path::PathBuf;

use ironmesh_catalog::Secret;
use reqwest::header::HeaderValue;

/// Reads the token file repeatedly.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: Option<PathBuf>,
    /// The last valid token.
    token: Option<Secret>,
    /// Whether the current failure was logged.
    is_reported: bool,
}

impl TokenFile {
    pub(super) fn new(path: Option<PathBuf>) -> Self {
        Self { path, token: None, is_reported: false }
    }

    /// Returns the current token; `None` without a file. While the file is unreadable (it may be in
    /// the middle of a replacement), the last valid token stays.
    pub(super) fn read(&mut self) -> Result<Option<Secret>, String> {
        let Some(path) = &self.path else { return Ok(None) };
        let read = fs_err::read_to_string(path).and_then(|text| match text.trim() {
            "" => Err(io::Error::other(format!("`{}` is empty", path.display()))),
            token if HeaderValue::from_str(token).is_err() => Err(io::Error::other(format!(
                "`{}` holds characters that no HTTP header takes; a token is one line of ASCII",
                path.display()
            ))),
            token => Ok(Secret::new(token.to_owned())),
        });
        match read {
            Ok(token) => {
                self.is_reported = false;
                self.token = Some(token.clone());
                Ok(Some(token))
            }
            Err(error) => {
                let reason = format!("the Consul token file cannot be used: {error}");
                if !self.is_reported {
                    self.is_reported = true;
                    tracing::warn!(reason = %error, "cannot use the consul token file");
                }
                self.token.clone().map(Some).ok_or(reason)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removed_token_file_keeps_the_last_token() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("token");
        let mut file = TokenFile::new(Some(path.clone()));
        let reason = file.read().unwrap_err();
        assert!(reason.contains(path.to_str().unwrap()), "{reason}");

        let exposed = |read: Option<Secret>| read.unwrap().expose().to_owned();
        fs_err::write(&path, "one\ntwo\n").unwrap();
        let reason = file.read().unwrap_err();
        assert!(reason.contains("no HTTP header takes"), "{reason}");
        fs_err::write(&path, "one\n").unwrap();
        assert_eq!(exposed(file.read().unwrap()), "one");
        fs_err::write(&path, "").unwrap();
        assert_eq!(exposed(file.read().unwrap()), "one");
        fs_err::remove_file(&path).unwrap();
        assert_eq!(exposed(file.read().unwrap()), "one");
        fs_err::write(&path, "two").unwrap();
        assert_eq!(exposed(file.read().unwrap()), "two");
        assert_eq!(TokenFile::new(None).read(), Ok(None));
    }
}
