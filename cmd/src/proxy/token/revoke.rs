//! `ironmesh proxy token revoke`.

use ironmesh_admin::Client;
use ironmesh_api::{RevokeTokenRequest, TokenView};
use ironmesh_catalog::TokenId;
use ironmesh_cert::token_id_digits;
use ironmesh_command_line::{Output, TokenRevokeArguments};

use crate::exit::UsageError;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::outln;

/// Revokes the token that the arguments name.
pub(super) async fn revoke(arguments: TokenRevokeArguments, output: Output) -> anyhow::Result<()> {
    let digits = token_id_digits(&arguments.id).map_err(|error| UsageError(error.to_string()))?;
    let client = ResolvedSettings::connect(&arguments.config)?.client();
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

/// The id of the only token that begins with these digits.
async fn find(client: &Client, digits: &str) -> anyhow::Result<TokenId> {
    let tokens = client.tokens().await?.tokens.into_iter().map(|token| token.id);
    let ids: Vec<_> = tokens.filter(|id| id.to_string().starts_with(digits)).collect();
    let [id] = &ids[..] else {
        let count = ids.len();
        anyhow::bail!("{count} token ids begin with `{digits}`: see `ironmesh proxy token list`")
    };
    Ok(id.clone())
}
