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
                    table.insert(key, value)?;
                }
                for (provider, service) in gone {
                    table.remove(&key(*provider, service))?;
                }
                Ok(count)
            })?;
            Ok(())
        };
        keep().map_err(|e| StoreError::new(format!("keep the endpoints of {count} services"), e))
    }

    /// All endpoints that are kept; and of which provider and service (`consul/shop/store`) there is
    /// something that this version cannot read: a newer one may have kept it, and nobody is to be kept from
    /// starting for what can be asked for anew.
    pub fn kept_endpoints(&self) -> Result<(Vec<KeptEndpoints>, Vec<String>), StoreError> {
        let all = self.all(ENDPOINTS);
        let all = all.map_err(|e| StoreError::new("read the endpoints that are kept", e))?;
        let (mut kept, mut unreadable) = (Vec::new(), Vec::new());
        for (key, json) in all {
            match serde_json::from_slice(&json) {
                Ok(one) => kept.push(one),
                Err(_) => unreadable.push(key),
            }
        }
        Ok((kept, unreadable))
    }
}

fn key(provider: Provider, service: &ServiceName) -> String {
    format!("{provider}/{service}")
}
