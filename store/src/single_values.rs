//! Single values that are not sealed: TCP accesses, certificate revocation lists, the mesh.

use ironmesh_catalog::{
    Domain, RevocationLists, ServicePort, StoreError, TcpAccess, TcpAccesses, TrustDomain,
};

use crate::database::{Failure, META, POLICY, Store};

const MESH: &str = "mesh";
const TCP_ACCESSES: &str = "tcp_accesses";
const REVOCATION_LISTS: &str = "revocation_lists";

impl Store {
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

    /// Stores the certificate revocation lists, before peers get them.
    pub fn put_revocation_lists(&self, lists: &RevocationLists) -> Result<(), StoreError> {
        self.put_json(POLICY, REVOCATION_LISTS, lists)
            .map_err(|e| StoreError::new("store the certificate revocation lists", e))
    }

    /// The certificate revocation lists that were signed last.
    pub fn revocation_lists(&self) -> Result<Option<RevocationLists>, StoreError> {
        self.get_json(POLICY, REVOCATION_LISTS)
            .map_err(|e| StoreError::new("read the certificate revocation lists", e))
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
