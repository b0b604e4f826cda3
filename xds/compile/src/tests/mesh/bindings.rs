//! Identity bindings, derived from the number of accounts.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{BoundIdentity, Domain, IdentityBinding, Name, SpiffeId, TrustDomain};

use super::{ACCOUNTS, NAMESPACES, Shape, account, name, spot};

impl Shape {
    /// Two identity bindings for each account: one names it, the other its SPIFFE ID beside a
    /// foreign one.
    pub(super) fn bindings(&self) -> Vec<((Name, Name), Arc<IdentityBinding>)> {
        let trust_domain = TrustDomain::new(Domain::default());
        let accounts = (0..NAMESPACES).flat_map(|space| (0..ACCOUNTS).map(move |n| (space, n)));
        let both = accounts.flat_map(|(space, n)| {
            let identity = |id| BoundIdentity { id, spot: spot() };
            let bound = account(space, (n + usize::from(self.has_other_bindings)) % ACCOUNTS);
            let known = trust_domain.workload(&bound);
            let strange = SpiffeId::new(&format!("elsewhere.example/ns/n{space}/sa/a{n}")).unwrap();
            let named = IdentityBinding {
                namespace: name("n", space),
                name: name("b", n),
                account: Some(bound),
                identities: Vec::new(),
                endpoint_labels: None,
                trusted_providers: BTreeSet::new(),
                spot: spot(),
            };
            let shown = IdentityBinding {
                name: name("i", n),
                account: None,
                identities: vec![identity(known), identity(strange)],
                ..named.clone()
            };
            [named, shown]
        });
        both.map(|one| ((one.namespace.clone(), one.name.clone()), Arc::new(one))).collect()
    }
}
