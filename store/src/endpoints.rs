//! The last-known-good endpoints of providers, for a start while the providers do not answer.

use ironmesh_catalog::{KeptEndpoints, Provider, ServiceName, StoreError};

use crate::database::{ENDPOINTS, Failure, Store};

impl Store {
    /// Stores these endpoints, each in place of those of the same provider and service, and removes those: in
    /// one transaction.
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

    /// All stored endpoints, and the names (`consul/shop/store`) of those that this version cannot read. A
    /// newer version may have written them; they must not prevent a start, since providers report them again.
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
