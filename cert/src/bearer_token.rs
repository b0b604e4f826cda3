//! The text of tokens: `PREFIX_ID_SECRET`, with 256 random bits of secret.
//!
//! It creates and reads tokens, and compares secrets with their stored hashes. It never decides what a token allows.

use aws_lc_rs::error::Unspecified;
use aws_lc_rs::{constant_time, digest, rand};
use data_encoding::HEXLOWER;
use ironmesh_catalog::{Secret, TokenId};

/// What a token is for. Tokens of one use are no tokens of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenUsage {
    /// The enrollment of one machine, once.
    Join,
    /// Requests of an operator to the admin API.
    Operator,
    /// The login of a browser, once.
    LoginLink,
    /// The session of a browser.
    LoginSession,
}

impl TokenUsage {
    /// The beginning of each token: secret scanners find it in files and logs.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Join => "imt1_",
            Self::Operator => "imo1_",
            Self::LoginLink => "iml1_",
            Self::LoginSession => "ims1_",
        }
    }
}

/// The number of random bytes of the secret.
const SECRET_BYTES: usize = 32;

/// A token, as its holder presents it.
#[derive(Debug, Clone)]
pub struct BearerToken {
    usage: TokenUsage,
    id: TokenId,
    secret: Secret,
}

impl BearerToken {
    /// A new token.
    ///
    /// # Errors
    ///
    /// Fails if the system has no random bytes.
    pub fn generate(usage: TokenUsage) -> Result<Self, Unspecified> {
        let mut bytes = [0; TokenId::DIGITS / 2 + SECRET_BYTES];
        rand::fill(&mut bytes)?;
        let (id, secret) = bytes.split_at(TokenId::DIGITS / 2);
        let id = HEXLOWER.encode(id).parse().map_err(|_| Unspecified)?;
        Ok(Self { usage, id, secret: Secret::new(HEXLOWER.encode(secret)) })
    }

    /// The same token with a different public name.
    #[must_use]
    pub fn with_id(self, id: TokenId) -> Self {
        Self { id, ..self }
    }

    /// Reads a token for `usage`; none if the text is not one, for example because it is truncated.
    pub fn parse(usage: TokenUsage, text: &Secret) -> Option<Self> {
        let (id, secret) = text.expose().trim().strip_prefix(usage.prefix())?.split_once('_')?;
        let is_whole =
            HEXLOWER.decode(secret.as_bytes()).is_ok_and(|bytes| bytes.len() == SECRET_BYTES);
        is_whole.then_some(())?;
        Some(Self { usage, id: id.parse().ok()?, secret: Secret::new(secret.to_owned()) })
    }

    /// Its public name.
    pub fn id(&self) -> &TokenId {
        &self.id
    }

    /// The whole token, for its holder.
    pub fn text(&self) -> Secret {
        Secret::new(format!("{}{}_{}", self.usage.prefix(), self.id, self.secret.expose()))
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

/// The least digits that name a token. A typing error must not name a different one.
const LEAST_DIGITS: usize = 8;

/// The text names no token. The error never has the text, which may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "token id is malformed: give its {} hexadecimal digits, or the first {LEAST_DIGITS} or more; in a token, they are the part between `{}` and the next `_`",
    TokenId::DIGITS, TokenUsage::Join.prefix()
)]
pub struct UnreadableTokenId;

/// The digits of the id of a join token, or its first ones, as people write them: alone, or in a whole token.
pub fn token_id_digits(text: &str) -> Result<String, UnreadableTokenId> {
    let text = text.trim().to_ascii_lowercase();
    let id = text.strip_prefix(TokenUsage::Join.prefix()).unwrap_or(&text);
    let id = id.split_once('_').map_or(id, |(id, _)| id);
    let is_id = (LEAST_DIGITS..=TokenId::DIGITS).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned()).ok_or(UnreadableTokenId)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_a_token_is_read_back() {
        let token = BearerToken::generate(TokenUsage::Join).unwrap();
        let text = token.text();
        assert!(text.expose().starts_with("imt1_") && text.expose().len() == 5 + 16 + 1 + 64);
        let read =
            BearerToken::parse(TokenUsage::Join, &Secret::new(format!(" {}\n", text.expose())))
                .unwrap();
        assert_eq!(read.id(), token.id());
        assert!(read.has_hash(&token.secret_hash()));
        assert!(BearerToken::parse(TokenUsage::Operator, &text).is_none());
        assert!(!format!("{token:?}").contains(text.expose().rsplit('_').next().unwrap()));
    }

    #[test]
    fn secrets_of_two_tokens_differ() {
        let [one, two] = [(); 2].map(|()| BearerToken::generate(TokenUsage::Join).unwrap());
        assert_ne!(one.id(), two.id());
        assert!(!one.has_hash(&two.secret_hash()) && !one.has_hash(""));
    }

    #[test]
    fn truncated_or_changed_tokens_are_no_tokens() {
        let text = BearerToken::generate(TokenUsage::Join).unwrap().text();
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
            assert!(
                BearerToken::parse(TokenUsage::Join, &Secret::new(bad.to_owned())).is_none(),
                "{bad}"
            );
        }
    }

    #[test]
    fn token_id_is_read_from_a_prefix_or_a_whole_token() {
        let token = format!("imt1_5f0c9a1be2d34e67_{}", "ab".repeat(32));
        for text in ["5f0c9a1be2d34e67", "imt1_5f0c9a1be2d34e67", " 5F0C9A1BE2D34E67\n", &token] {
            assert_eq!(token_id_digits(text).unwrap(), "5f0c9a1be2d34e67");
        }
        assert_eq!(token_id_digits("5f0c9a1b").unwrap(), "5f0c9a1b");
    }

    #[test]
    fn error_about_a_malformed_token_id_never_repeats_the_text() {
        let secret = "ab".repeat(32);
        for text in [&secret, &format!("imt1_{secret}"), &format!("imt1__{secret}"), "5f0c9a1"] {
            let error = token_id_digits(text).unwrap_err().to_string();
            assert!(!error.contains("abab") && error.contains("between `imt1_`"), "{error}");
        }
    }
}
