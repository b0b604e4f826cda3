//! The public names of join tokens.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The public name of a token: 16 hexadecimal digits. It is no secret.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TokenId(String);

impl TokenId {
    /// The number of its digits.
    pub const DIGITS: usize = 16;
}

impl fmt::Display for TokenId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for TokenId {
    type Err = InvalidTokenId;

    fn from_str(text: &str) -> Result<Self, InvalidTokenId> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == Self::DIGITS && text.bytes().all(is_digit) {
            return Ok(Self(text.to_owned()));
        }
        Err(InvalidTokenId)
    }
}

impl TryFrom<String> for TokenId {
    type Error = InvalidTokenId;

    fn try_from(text: String) -> Result<Self, InvalidTokenId> {
        text.parse()
    }
}

impl From<TokenId> for String {
    fn from(id: TokenId) -> Self {
        id.0
    }
}

/// A text that is no id of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the id is malformed: it has {} hexadecimal digits in lower case", TokenId::DIGITS)]
pub struct InvalidTokenId;
