//! Values without keys, which are not sealed: join records, TCP accesses, the mesh.

use std::collections::BTreeSet;

use ironmesh_catalog::{
    Domain, JoinRecord, ProxyId, ServicePort, StoreError, TcpAccess, TcpAccesses, TrustDomain,
};

use redb::TableHandle as _;

use crate::database::{Failure, JOIN_RECORDS, META, POLICY, Store};

const MESH: &str = "mesh";
const TCP_ACCESSES: &str = "tcp_accesses";

impl Store {
    /// Stores a join record, in place of the proxy's last one.
    pub fn put_join_record(&self, record: &JoinRecord) -> Result<(), StoreError> {
        self.put_join_records(std::slice::from_ref(record))
    }

    /// Stores join records, each in place of its proxy's last one, in one transaction, which waits for the
    /// disk once.
    pub fn put_join_records(&self, records: &[JoinRecord]) -> Result<(), StoreError> {
        let keep = || -> Result<(), Failure> {
            let json = |record: &JoinRecord| -> Result<_, Failure> {
                Ok((record.id.to_string(), serde_json::to_vec(record)?))
            };
            let values = records.iter().map(json).collect::<Result<Vec<_>, _>>()?;
            self.put_all(JOIN_RECORDS, &values)
        };
        let operation = || match records {
            [record] => format!("keep the join record of proxy `{}`", record.id),
            records => format!("keep the join records of {} proxies", records.len()),
        };
        keep().map_err(|e| StoreError::new(operation(), e))
    }

    /// Removes the join records of these proxies in one transaction.
    pub fn remove_join_records(&self, proxies: &[ProxyId]) -> Result<(), StoreError> {
        let keys: Vec<_> = proxies.iter().map(ToString::to_string).collect();
        let count = proxies.len();
        self.remove_all(JOIN_RECORDS, &keys)
            .map_err(|e| StoreError::new(format!("remove the join records of {count} proxies"), e))
    }

    /// All valid join records, by the proxies' ids. The others are quarantined.
    pub fn join_records(&self) -> Result<Vec<JoinRecord>, StoreError> {
        let read = || -> Result<_, Failure> {
            let mut records = Vec::new();
            // The keys are UUIDs in one text form, whose order is that of the ids.
            for (key, json) in self.all(JOIN_RECORDS)? {
                match serde_json::from_slice(&json) {
                    Ok(record) => records.push(record),
                    Err(_) => self.quarantine.lock().add(JOIN_RECORDS.name(), &key),
                }
            }
            Ok(records)
        };
        read().map_err(|e| StoreError::new("read the join records", e))
    }

    /// The proxies whose join records are quarantined.
    pub fn quarantined_proxies(&self) -> BTreeSet<ProxyId> {
        let quarantined = self.quarantine.lock().records().into_iter();
        let of_proxies = quarantined.filter(|record| record.table == JOIN_RECORDS.name());
        of_proxies.filter_map(|record| record.key.parse().ok()).collect()
    }

    /// Stores the accesses to TCP service ports, with which the next policy is compared.
    pub fn put_tcp_accesses(&self, accesses: &TcpAccesses) -> Result<(), StoreError> {
        let ports: Vec<_> = accesses.ports.iter().collect();
        self.put_json(POLICY, TCP_ACCESSES, &(accesses.withdrawals, ports))
            .map_err(|e| StoreError::new("store TCP callers", e))
    }

    /// The accesses to TCP service ports by the policy that was compiled last.
    pub fn tcp_accesses(&self) -> Result<TcpAccesses, StoreError> {
        let kept: Option<(u64, Vec<(ServicePort, TcpAccess)>)> = self
            .get_json(POLICY, TCP_ACCESSES)
            .map_err(|e| StoreError::new("read TCP callers", e))?;
        let (withdrawals, ports) = kept.unwrap_or_default();
        Ok(TcpAccesses { ports: ports.into_iter().collect(), withdrawals })
    }

    /// The domain and the trust domain of the mesh, since its first start. The caller compares them with the
    /// settings.
    pub fn mesh(&self) -> Result<Option<(Domain, TrustDomain)>, StoreError> {
        let read = || {
            match self.get_json(META, MESH)? {
            // The domains have no default: they are in all certificates, and in all bootstraps.
            None if self.get_raw(META, MESH)?.is_some() => {
                Err("the stored names were changed outside of `ironmesh serve`: restore the state folder from your backup".into())
            }
            mesh => Ok(mesh),
        }
        };
        read().map_err(|e: Failure| StoreError::new("read the mesh identity", e))
    }

    /// Stores the domain and the trust domain of the mesh. They can never change, since every certificate and
    /// every proxy's bootstrap contains them.
    pub fn put_mesh(&self, domain: &Domain, trust_domain: &TrustDomain) -> Result<(), StoreError> {
        const OPERATION: &str = "store the mesh identity";
        match self.mesh()? {
            None => self
                .put_json(META, MESH, &(domain, trust_domain))
                .map_err(|e| StoreError::new(OPERATION, e)),
            Some((d, t)) if (&d, &t) == (domain, trust_domain) => Ok(()),
            Some((d, t)) => Err(StoreError::new(
                OPERATION,
                format!("it is fixed since the first start: domain `{d}`, trust domain `{t}`"),
            )),
        }
    }
}
