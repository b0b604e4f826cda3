//! What was last believed of endpoints providers: the last good state, for when nobody can be asked.

use ironmesh_catalog::{KeptEndpoints, Provider, ServiceName, StoreError};

use crate::database::{ENDPOINTS, Failure, Store};

impl Store {
    /// Keeps these, each in place of what was kept of the same provider and service, and drops those: all
    /// of it, or nothing.
    pub fn keep_endpoints(
        &self,
        kept: &[KeptEndpoints],
        gone: &[(Provider, ServiceName)],
    ) -> Result<(), StoreError> {
        let count = kept.len() + gone.len();
        let keep = || -> Result<(), Failure> {
            let json = |one: &KeptEndpoints| -> Result<_, Failure> {
                Ok((key(one.provider, &one.service), serde_json::to_vec(one)?))
            };
            let values = kept.iter().map(json).collect::<Result<Vec<_>, _>>()?;
            self.change(ENDPOINTS, |table| {
                for (key, value) in &values {
                    table.insert(key.as_str(), value.as_slice())?;
                }
                for (provider, service) in gone {
                    table.remove(key(*provider, service).as_str())?;
                }
                Ok(count)
            })?;
            Ok(())
        };
        keep().map_err(|e| StoreError::new(format!("keep the endpoints of {count} services"), e))
    }

    /// All endpoints that are kept.
    pub fn kept_endpoints(&self) -> Result<Vec<KeptEndpoints>, StoreError> {
        let read = || -> Result<_, Failure> {
            let all = self.all(ENDPOINTS)?;
            all.iter().map(|(_, json)| Ok(serde_json::from_slice(json)?)).collect()
        };
        read().map_err(|e| StoreError::new("read the endpoints that are kept", e))
    }
}

fn key(provider: Provider, service: &ServiceName) -> String {
    format!("{provider}/{service}")
}
