//! The names of the secrets by which a proxy refers to its service certificates (docs/reference/names.md).

use std::fmt;
use std::str::FromStr;

use crate::name::ServiceAccount;

/// The name of a secret with a service certificate, as resources refer to it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServiceSecret {
    /// `service-cert`: the certificate as which the proxy calls.
    Own,
    /// `service-cert:<namespace>/<account>`: the certificate of an account of its services.
    OfAccount(ServiceAccount),
}

impl ServiceSecret {
    /// The name of [`Self::Own`]. It is the same for all proxies, so that callers of all accounts share the clusters, which
    /// name it.
    pub const OWN_NAME: &str = "service-cert";
}

/// A text is not the name of a secret with a service certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is not the name of a service certificate: use `service-cert` or `service-cert:NAMESPACE/ACCOUNT`",
    crate::text::escape_line(text)
)]
pub struct InvalidServiceSecret {
    /// The text, or its beginning: it comes from a peer.
    text: String,
}

/// The most characters of a rejected name that an error quotes.
const MAX_QUOTED: usize = 80;

impl fmt::Display for ServiceSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own => f.write_str(Self::OWN_NAME),
            Self::OfAccount(account) => write!(f, "{}:{account}", Self::OWN_NAME),
        }
    }
}

impl FromStr for ServiceSecret {
    type Err = InvalidServiceSecret;

    /// Accepts only the canonical form: Envoy compares names of secrets as texts.
    fn from_str(text: &str) -> Result<Self, InvalidServiceSecret> {
        let secret = match text.strip_prefix(Self::OWN_NAME).map(|rest| rest.strip_prefix(':')) {
            Some(None) => Some(Self::Own),
            Some(Some(account)) => account.parse().ok().map(Self::OfAccount),
            None => None,
        };
        let canonical = secret.filter(|secret| secret.to_string() == text);
        canonical
            .ok_or_else(|| InvalidServiceSecret { text: text.chars().take(MAX_QUOTED).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_service_secrets_parse_only_in_canonical_form() {
        for text in ["service-cert", "service-cert:shop/bookstore"] {
            assert_eq!(text.parse::<ServiceSecret>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "roots",
            "service-cert:",
            "service-cert:bookstore",
            "service-cert:Shop/bookstore",
            "service-cert:shop/bookstore/more",
            "service-cert:shop/",
            "service-certificate",
            " service-cert",
            &format!("service-cert:shop/{}", "x".repeat(64)),
        ] {
            assert!(bad.parse::<ServiceSecret>().is_err(), "{bad}");
        }
        let long = "x".repeat(10_000).parse::<ServiceSecret>().unwrap_err();
        assert!(long.to_string().len() < 300, "{long}");
    }
}
