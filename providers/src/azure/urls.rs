//! The hosts of Azure, and which of them may get a token.

use std::net::IpAddr;

use reqwest::Url;

use super::error::AzureError;
use super::options::{AzureCloud, AzureOptions};

/// The metadata service, which answers only to the machine itself.
const METADATA: &str = "http://169.254.169.254";

/// The URLs of Azure's services.
#[derive(Debug, Clone)]
pub(super) struct AzureUrls {
    pub(super) resource_manager: Url,
    pub(super) login: Url,
    pub(super) metadata: Url,
}

impl AzureUrls {
    pub(super) fn new(options: &AzureOptions) -> Result<Self, AzureError> {
        let (resource_manager, login) = match &options.cloud {
            AzureCloud::Public => {
                ("https://management.azure.com", "https://login.microsoftonline.com")
            }
            AzureCloud::UsGovernment => {
                ("https://management.usgovcloudapi.net", "https://login.microsoftonline.us")
            }
            AzureCloud::China => {
                ("https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn")
            }
            AzureCloud::Custom { resource_manager, login } => (&**resource_manager, &**login),
        };
        let metadata = options.metadata.as_deref().unwrap_or(METADATA);
        let metadata = url("metadata", metadata, |url| url.scheme() == "https" || is_near(url))?;
        Ok(Self {
            resource_manager: url("resource_manager", resource_manager, is_private)?,
            login: url("login", login, is_private)?,
            metadata,
        })
    }

    /// Returns the audience of tokens, which the Resource Manager checks.
    pub(super) fn audience(&self) -> String {
        self.resource_manager.as_str().trim_end_matches('/').to_owned()
    }

    /// Returns the URL of the next page, if the token may go there: to the same host name, on any
    /// port.
    pub(super) fn next(&self, link: &str) -> Option<Url> {
        let next = Url::parse(link).ok()?;
        let is_same = next.scheme() == self.resource_manager.scheme()
            && next.host() == self.resource_manager.host()
            && next.username().is_empty()
            && next.password().is_none();
        is_same.then_some(next)
    }
}

fn url(
    key: &'static str,
    text: &str,
    may_be: impl FnOnce(&Url) -> bool,
) -> Result<Url, AzureError> {
    let is_good = |url: &Url| {
        url.has_host()
            && matches!(url.path(), "" | "/")
            && url.query().is_none()
            && url.username().is_empty()
            && may_be(url)
    };
    let url = Url::parse(text).ok().filter(is_good);
    url.ok_or_else(|| AzureError::Url { key, url: text.to_owned() })
}

/// Whether no one on the network can read the request.
fn is_private(url: &Url) -> bool {
    url.scheme() == "https" || is_on_this_machine(url)
}

/// Whether it is plain HTTP that never leaves the machine.
fn is_on_this_machine(url: &Url) -> bool {
    url.scheme() == "http" && host(url).is_some_and(|host| host.is_loopback())
}

/// Whether it is plain HTTP that goes no further than the host of the machine.
fn is_near(url: &Url) -> bool {
    let is_link_local = |host| matches!(host, IpAddr::V4(host) if host.is_link_local());
    is_on_this_machine(url) || (url.scheme() == "http" && host(url).is_some_and(is_link_local))
}

fn host(url: &Url) -> Option<IpAddr> {
    let host = url.host_str()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn custom(resource_manager: &str) -> Result<AzureUrls, AzureError> {
        let login = "https://login.example.com".to_owned();
        let resource_manager = resource_manager.to_owned();
        let cloud = AzureCloud::Custom { resource_manager, login };
        AzureUrls::new(&AzureOptions { cloud, ..AzureOptions::default() })
    }

    #[test]
    fn token_is_sent_only_to_the_configured_host() {
        let urls = AzureUrls::new(&AzureOptions::default()).unwrap();
        assert_eq!(urls.audience(), "https://management.azure.com");
        for good in [
            "https://management.azure.com/subscriptions/s?$skiptoken=2",
            "https://management.azure.com:443/subscriptions/s",
            "https://MANAGEMENT.azure.com:8443/subscriptions/s",
        ] {
            assert!(urls.next(good).is_some(), "{good}");
        }
        for bad in [
            "aaaaaaaaaaaaaa",
            "/subscriptions/s?page=2",
            "http://management.azure.com/subscriptions/s",
            "https://management.azure.com.example.com/subscriptions/s",
            "https://management.azure.com@example.com/",
            "https://you@management.azure.com/",
            "https://eastus.management.azure.com/",
            "https://management.azure.com./",
        ] {
            assert!(urls.next(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn plain_http_is_allowed_only_for_local_addresses() {
        for good in ["https://arm.example.com", "http://127.0.0.1:8080", "http://[::1]:80/"] {
            custom(good).unwrap();
        }
        for bad in
            ["http://10.0.0.1", "http://localhost", "https://example.com/path", "example.com"]
        {
            custom(bad).unwrap_err();
        }
        let metadata = |url: &str| {
            AzureUrls::new(&AzureOptions {
                metadata: Some(url.to_owned()),
                ..AzureOptions::default()
            })
        };
        for good in ["http://127.0.0.1:40342", "http://169.254.1.1", "https://arc.example.com"] {
            metadata(good).unwrap();
        }
        metadata("http://192.0.2.1").unwrap_err();
    }

    #[test]
    fn each_cloud_has_its_own_hosts_and_token_audience() {
        let of =
            |cloud| AzureUrls::new(&AzureOptions { cloud, ..AzureOptions::default() }).unwrap();
        // As in Microsoft's own clients.
        let all = [
            (AzureCloud::Public, "management.azure.com", "login.microsoftonline.com"),
            (AzureCloud::UsGovernment, "management.usgovcloudapi.net", "login.microsoftonline.us"),
            (AzureCloud::China, "management.chinacloudapi.cn", "login.chinacloudapi.cn"),
        ];
        for (cloud, manager, login) in &all {
            let urls = of(cloud.clone());
            assert_eq!(urls.resource_manager.as_str(), format!("https://{manager}/"));
            assert_eq!(urls.login.as_str(), format!("https://{login}/"));
            assert_eq!(urls.audience(), format!("https://{manager}"));
            assert_eq!(urls.metadata.as_str(), "http://169.254.169.254/", "the same in each");
            for (_, other, _) in &all {
                let next = urls.next(&format!("https://{other}/subscriptions/s?page=2"));
                assert_eq!(next.is_some(), manager == other, "{manager} {other}");
            }
        }
        let urls = custom("https://arm.example.com/").unwrap();
        assert_eq!(urls.audience(), "https://arm.example.com");
    }
}
