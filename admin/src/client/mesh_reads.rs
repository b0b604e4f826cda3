//! The client's reads of services, access and configuration.

use http::Method;
use ironmesh_api::{
    AccessPage, AccessQuery, DocumentsQuery, MAX_ACCESS_PAGE, MAX_SERVICE_PAGE, PolicyDocuments,
    ProviderList, ServiceDetail, ServicePage, ServiceQuery, SettingsView,
};
use ironmesh_catalog::{Name, ServiceName};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Client, ClientError, broken};

impl Client {
    /// All services of policy, or of one namespace, from as many pages as that needs.
    pub async fn services(&self, namespace: Option<&Name>) -> Result<ServicePage, ClientError> {
        let limit = Some(MAX_SERVICE_PAGE);
        let query = |after| ServiceQuery { namespace: namespace.cloned(), limit, after };
        let mut all = ServicePage::default();
        let add = |page: ServicePage| {
            all.services.extend(page.services);
            all.matching = page.matching;
            page.next
        };
        self.read_pages("/v1/services", query, add).await?;
        Ok(all)
    }

    /// The documents of a stored revision of policy, or of the active one.
    pub async fn policy_documents(
        &self,
        query: &DocumentsQuery,
    ) -> Result<PolicyDocuments, ClientError> {
        let text = serde_urlencoded::to_string(query).map_err(broken)?;
        self.call::<(), _>(Method::GET, &format!("/v1/policy/documents?{text}"), None).await
    }

    /// The endpoints providers.
    pub async fn providers(&self) -> Result<ProviderList, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/providers", None).await
    }

    /// The effective settings of the control plane.
    pub async fn settings(&self) -> Result<SettingsView, ClientError> {
        self.call::<(), _>(Method::GET, "/v1/settings", None).await
    }

    /// A service in detail.
    pub async fn service(&self, name: &ServiceName) -> Result<ServiceDetail, ClientError> {
        self.call::<(), _>(Method::GET, &format!("/v1/services/{name}"), None).await
    }

    /// All service ports with their callers, or those of one namespace, from as many pages as that needs.
    pub async fn access(&self, namespace: Option<&Name>) -> Result<AccessPage, ClientError> {
        let limit = Some(MAX_ACCESS_PAGE);
        let query = |after| AccessQuery { namespace: namespace.cloned(), limit, after };
        let mut all = AccessPage::default();
        let add = |page: AccessPage| {
            all.ports.extend(page.ports);
            all.matching = page.matching;
            page.next
        };
        self.read_pages("/v1/access", query, add).await?;
        Ok(all)
    }

    /// Reads the pages of a list, from the first one. `query` makes the query of the page after a key, and `add` keeps a
    /// page and returns its last key, if more follow.
    async fn read_pages<Q: Serialize, P: DeserializeOwned>(
        &self,
        path: &str,
        query: impl Fn(Option<String>) -> Q,
        mut add: impl FnMut(P) -> Option<String>,
    ) -> Result<(), ClientError> {
        let mut after = None;
        loop {
            let text = serde_urlencoded::to_string(query(after)).map_err(broken)?;
            let path = format!("{path}?{text}");
            after = add(self.call::<(), P>(Method::GET, &path, None).await?);
            if after.is_none() {
                return Ok(());
            }
        }
    }
}
