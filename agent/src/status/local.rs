//! Questions to the processes of this machine, with a time limit.

use std::time::Duration;

use http::Method;
use ironmesh_agent_envoy::local_http::{LocalAddress, LocalConnection, LocalHttpError, exchange};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// The time limit of a question. All of these processes answer at once, or hang.
const LIMIT: Duration = Duration::from_secs(3);

/// Why a process does not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalRequestError {
    #[error("`{address}` does not answer")]
    Failed { address: String, source: LocalHttpError },
    #[error("`{address}` has not answered within {} s", LIMIT.as_secs())]
    Slow { address: String },
    #[error("`{address}` sent an unknown answer: {problem}")]
    Invalid { address: String, problem: String },
}

impl LocalRequestError {
    /// Whether nothing listens there, or this user may not connect.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self, Self::Failed { source: LocalHttpError::Connect(_), .. })
    }

    pub(crate) fn invalid(address: &LocalAddress, error: &serde_json::Error) -> Self {
        Self::Invalid { address: address.to_string(), problem: error.to_string() }
    }
}

/// The body of `GET path`.
pub(crate) async fn get(
    address: &LocalAddress,
    path: &str,
) -> Result<impl AsRef<[u8]> + use<>, LocalRequestError> {
    limited(address, exchange(address, Method::GET, path)).await
}

/// The bodies of `GET` of two paths, of at most `limit` bytes each, by the same process.
pub(crate) async fn get_both(
    address: &LocalAddress,
    [first, second]: [&str; 2],
    limit: usize,
) -> Result<[impl AsRef<[u8]> + use<>; 2], LocalRequestError> {
    let both = async {
        let mut connection = LocalConnection::open(address).await?;
        Ok([connection.get(first, limit).await?, connection.get(second, limit).await?])
    };
    limited(address, both).await
}

async fn limited<T>(
    address: &LocalAddress,
    answer: impl Future<Output = Result<T, LocalHttpError>>,
) -> Result<T, LocalRequestError> {
    match timeout(LIMIT, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(source)) => Err(LocalRequestError::Failed { address: address.to_string(), source }),
        Err(_) => Err(LocalRequestError::Slow { address: address.to_string() }),
    }
}

/// The body of `GET path`, which is JSON.
pub(crate) async fn get_json<T: DeserializeOwned>(
    address: &LocalAddress,
    path: &str,
) -> Result<T, LocalRequestError> {
    let body = get(address, path).await?;
    serde_json::from_slice(body.as_ref())
        .map_err(|error| LocalRequestError::invalid(address, &error))
}
