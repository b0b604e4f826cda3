//! The text of one-time tokens: `imt1_ID_SECRET`, with 256 random bits of secret.
//!
//! It creates and reads tokens, and compares secrets with their stored hashes. It never decides what a token allows.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{constant_time, digest, rand};
use data_encoding::HEXLOWER;
use ironmesh_catalog::{Secret, TokenId};

/// The beginning of each token: secret scanners find it in files and logs.
pub const TOKEN_PREFIX: &str = "imt1_";

/// The number of random bytes of the secret.
const SECRET_BYTES: usize = 32;

/// A one-time token, as the machine presents it.
#[derive(Debug, Clone)]
pub struct OneTimeToken {
    id: TokenId,
    secret: Secret,
}

impl OneTimeToken {
    /// A new token.
    ///
    /// # Errors
    ///
    /// Fails if the system has no random bytes.
    pub fn generate() -> Result<Self, Unspecified> {
        let mut bytes = [0; TokenId::DIGITS / 2 + SECRET_BYTES];
        rand::fill(&mut bytes)?;
        let (id, secret) = bytes.split_at(TokenId::DIGITS / 2);
        let id = HEXLOWER.encode(id).parse().map_err(|_| Unspecified)?;
        Ok(Self { id, secret: Secret::new(HEXLOWER.encode(secret)) })
    }

    /// Reads a token; none if the text is not one, for example because it is truncated.
    pub fn parse(text: &Secret) -> Option<Self> {
        let (id, secret) = text.expose().trim().strip_prefix(TOKEN_PREFIX)?.split_once('_')?;
        let is_whole =
            HEXLOWER.decode(secret.as_bytes()).is_ok_and(|bytes| bytes.len() == SECRET_BYTES);
        is_whole.then_some(())?;
        Some(Self { id: id.parse().ok()?, secret: Secret::new(secret.to_owned()) })
    }

    /// Its public name.
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// The whole token, for the machine.
    pub fn text(&self) -> Secret {
        Secret::new(format!("{TOKEN_PREFIX}{}_{}", self.id, self.secret.expose()))
    }

    /// The hash of the secret, which the store keeps: SHA-256 in hexadecimal. A secret of 256 random bits needs no
    /// slower one.
    pub fn secret_hash(&self) -> String {
        HEXLOWER.encode(digest::digest(&digest::SHA256, self.secret.expose().as_bytes()).as_ref())
    }

    /// Whether the secret has this hash. Takes the same time for each hash of the same length.
    pub fn has_hash(&self, hash: &str) -> bool {
        let own = self.secret_hash();
        constant_time::verify_slices_are_equal(own.as_bytes(), hash.as_bytes()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_token_is_read_back() {
        let token = OneTimeToken::generate().unwrap();
        let text = token.text();
        assert!(text.expose().starts_with("imt1_") && text.expose().len() == 5 + 16 + 1 + 64);
        let read = OneTimeToken::parse(&Secret::new(format!(" {}\n", text.expose()))).unwrap();
        assert_eq!(read.id(), token.id());
        assert!(read.has_hash(&token.secret_hash()));
        assert!(!format!("{token:?}").contains(text.expose().rsplit('_').next().unwrap()));
    }

    #[test]
    fn secrets_of_two_tokens_differ() {
        let [one, two] = [(); 2].map(|()| OneTimeToken::generate().unwrap());
        assert_ne!(one.id(), two.id());
        assert!(!one.has_hash(&two.secret_hash()) && !one.has_hash(""));
    }

    #[test]
    fn truncated_or_changed_tokens_are_no_tokens() {
        let text = OneTimeToken::generate().unwrap().text();
        let text = text.expose();
        let upper = text.to_uppercase();
        let bad = [
            "",
            "imt1_",
            text.get(..text.len() - 1).unwrap(),
            text.get(5..).unwrap(),
            &upper,
            &format!("{text}0"),
            &format!("{text}_00"),
        ];
        for bad in bad {
            assert!(OneTimeToken::parse(&Secret::new(bad.to_owned())).is_none(), "{bad}");
        }
    }
}
