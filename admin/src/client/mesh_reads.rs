//! The client's reads of services, access and configuration.

use http::Method;
use ironmesh_api::{
    AccessPage, AccessQuery, DocumentsQuery, MAX_ACCESS_PAGE, MAX_SERVICE_PAGE, PolicyDocuments,
    ProviderList, ServiceDetail, ServicePage, ServiceQuery, SettingsView,
};
use ironmesh_catalog::{Name, ServiceName};

use super::{Client, ClientError, broken};

impl Client {
    /// All services of policy, or of one namespace, from as many pages as that needs.
    pub async fn services(&self, namespace: Option<&Name>) -> Result<ServicePage, ClientError> {
        let namespace = namespace.cloned();
        let mut query = ServiceQuery { namespace, limit: Some(MAX_SERVICE_PAGE), after: None };
        let mut all = ServicePage::default();
        loop {
            let text = serde_urlencoded::to_string(&query).map_err(broken)?;
            let path = format!("/v1/services?{text}");
            let page: ServicePage = self.call::<(), _>(Method::GET, &path, None).await?;
            all.services.extend(page.services);
            all.matching = page.matching;
            query.after = page.next;
            if query.after.is_none() {
                return Ok(all);
            }
        }
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
        let namespace = namespace.cloned();
        let mut query = AccessQuery { namespace, limit: Some(MAX_ACCESS_PAGE), after: None };
        let mut all = AccessPage::default();
        loop {
            let text = serde_urlencoded::to_string(&query).map_err(broken)?;
            let path = format!("/v1/access?{text}");
            let page: AccessPage = self.call::<(), _>(Method::GET, &path, None).await?;
            all.ports.extend(page.ports);
            all.matching = page.matching;
            query.after = page.next;
            if query.after.is_none() {
                return Ok(all);
            }
        }
    }
}
