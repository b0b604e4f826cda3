//! The removals of endpoints that operators have accepted, a record for each service, for all control planes.

use std::collections::BTreeMap;

use ironmesh_catalog::{EndpointAcceptance, ServiceName, StoreError};

use crate::database::Failure;
use crate::mesh_state::{MeshState, json, put, remove};
use crate::record_store::{TableName, commit_parts};

/// The accepted removals, by service.
pub type AcceptedRemovals = BTreeMap<ServiceName, EndpointAcceptance>;

pub(crate) const ACCEPTED_REMOVALS: TableName = TableName("accepted_removals");

impl MeshState {
    /// Stores the removal that an operator has accepted for a service, in place of an earlier one, and removes old ones.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be written. Then other control planes hold the removal back.
    pub fn put_accepted_removal(
        &self,
        service: &ServiceName,
        accepted: &EndpointAcceptance,
    ) -> Result<(), StoreError> {
        let write = || -> Result<(), Failure> {
            let mut changes =
                vec![put(ACCEPTED_REMOVALS, service.to_string(), json(&(service, accepted))?)];
            let (all, _) = self.read_accepted_removals()?;
            let others = all.iter().filter(|(of, _)| *of != service);
            let old = others.filter(|(_, one)| one.is_outdated(accepted.at));
            changes.extend(old.map(|(of, _)| remove(ACCEPTED_REMOVALS, of.to_string())));
            for part in commit_parts(&changes) {
                self.records.commit(part)?;
            }
            Ok(())
        };
        write().map_err(|e| StoreError::new("store the acceptance of an endpoint removal", e))
    }

    /// The removals that operators have accepted, and the keys of those that this version cannot read. What is not
    /// authentic is omitted.
    ///
    /// # Errors
    ///
    /// Fails if the store cannot be read.
    pub fn accepted_removals(&self) -> Result<(AcceptedRemovals, Vec<String>), StoreError> {
        let all = self.read_accepted_removals();
        all.map_err(|e| StoreError::new("read the accepted endpoint removals", e))
    }

    fn read_accepted_removals(&self) -> Result<(AcceptedRemovals, Vec<String>), Failure> {
        let (mut accepted, mut unreadable) = (AcceptedRemovals::new(), Vec::new());
        for (key, record) in self.records.list(ACCEPTED_REMOVALS)? {
            match serde_json::from_slice::<(ServiceName, EndpointAcceptance)>(&record.value) {
                Ok((service, one)) => {
                    accepted.insert(service, one);
                }
                // A newer version may have stored something else: the others hold.
                Err(_) => unreadable.push(key),
            }
        }
        Ok((accepted, unreadable))
    }
}
