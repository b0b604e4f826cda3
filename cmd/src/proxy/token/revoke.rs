//! `ironmesh proxy token revoke`.

use ironmesh_admin::{Client, RevokeTokenRequest, TokenView};
use ironmesh_catalog::TokenId;
use ironmesh_enrollment::TOKEN_PREFIX;

use crate::cli::{Output, TokenRevokeArguments};
use crate::exit::UsageError;
use crate::resolved_settings::ResolvedSettings;
use crate::stdout::outln;

/// The least digits that name a token. A typing error must not name a different one.
const LEAST_DIGITS: usize = 8;

/// Revokes the token that the arguments name.
pub(super) async fn revoke(arguments: TokenRevokeArguments, output: Output) -> anyhow::Result<()> {
    let digits = digits(&arguments.id)?;
    let client = ResolvedSettings::load(&arguments.config)?.client();
    let id = match digits.parse() {
        Ok(id) => id,
        Err(_) => find(&client, &digits).await?,
    };
    let request = RevokeTokenRequest { reason: arguments.reason };
    let token = client.revoke_token(&id, &request).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&token)?)?,
        Output::Text => {
            let TokenView { id, revoked, used, .. } = token;
            let revocation = revoked.map_or_else(|| "revoked".to_owned(), |one| one.to_string());
            outln!("token {id} was {revocation}")?;
            if let Some(used) = used {
                let name =
                    used.name.map_or_else(|| used.proxy.to_string(), |name| name.to_string());
                outln!(
                    "note: it enrolled proxy {name}, which keeps its certificate; to withdraw that, run `ironmesh proxy revoke {name}`"
                )?;
            }
        }
    }
    Ok(())
}

/// The digits of an id, or its first ones, also of a whole token. The error never has the text, which may be a secret.
fn digits(text: &str) -> Result<String, UsageError> {
    let text = text.trim().to_ascii_lowercase();
    let id = text.strip_prefix(TOKEN_PREFIX).unwrap_or(&text);
    let id = id.split_once('_').map_or(id, |(id, _)| id);
    let is_id = (LEAST_DIGITS..=TokenId::DIGITS).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned()).ok_or_else(|| {
        UsageError(format!(
            "token id is malformed: give its {} hexadecimal digits, or the first {LEAST_DIGITS} or more; in a token, they are the part between `{TOKEN_PREFIX}` and the next `_`",
            TokenId::DIGITS
        ))
    })
}

/// The id of the only token that begins with these digits.
async fn find(client: &Client, digits: &str) -> anyhow::Result<TokenId> {
    let tokens = client.tokens().await?.tokens.into_iter().map(|token| token.id);
    let ids: Vec<_> = tokens.filter(|id| id.to_string().starts_with(digits)).collect();
    match &ids[..] {
        [id] => Ok(id.clone()),
        [] => anyhow::bail!("no token id begins with `{digits}`: see `ironmesh proxy token list`"),
        several => {
            anyhow::bail!("{} token ids begin with `{digits}`: give more digits", several.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_id_is_read_from_a_prefix_or_a_whole_token() {
        let token = format!("imt1_5f0c9a1be2d34e67_{}", "ab".repeat(32));
        for text in ["5f0c9a1be2d34e67", "imt1_5f0c9a1be2d34e67", " 5F0C9A1BE2D34E67\n", &token] {
            assert_eq!(digits(text).unwrap(), "5f0c9a1be2d34e67");
        }
        assert_eq!(digits("5f0c9a1b").unwrap(), "5f0c9a1b");
    }

    #[test]
    fn error_about_a_malformed_token_id_never_repeats_the_text() {
        let secret = "ab".repeat(32);
        for text in [secret.clone(), format!("imt1_{secret}"), format!("imt1__{secret}")] {
            let error = digits(&text).unwrap_err().to_string();
            assert!(!error.contains("abab") && error.contains("between `imt1_`"), "{error}");
        }
        digits("5f0c9a1").unwrap_err();
    }
}
