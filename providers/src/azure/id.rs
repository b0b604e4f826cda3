//! Ids of resources. Azure compares them without case, and writes them now like this and now like that.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The id of a resource in a resource group.
#[derive(Clone)]
pub(super) struct ResourceId {
    /// As Azure has told it.
    told: Arc<str>,
    /// In lower case: by this it is compared.
    key: Arc<str>,
}

impl ResourceId {
    /// Reads `/subscriptions/S/resourceGroups/G/providers/NAMESPACE/TYPE/NAME` and what may follow.
    pub(super) fn parse(told: &str) -> Option<Self> {
        let key = told.to_lowercase();
        let parts: Vec<_> = key.split('/').collect();
        let ["", "subscriptions", subscription, "resourcegroups", group, "providers", _, rest @ ..] =
            parts.as_slice()
        else {
            return None;
        };
        let is_whole = !rest.is_empty() && rest.len() % 2 == 0;
        let is_good =
            is_whole && rest.iter().chain([subscription, group]).all(|part| !part.is_empty());
        is_good.then(|| Self { told: told.into(), key: key.as_str().into() })
    }

    /// As Azure has told it.
    pub(super) fn told(&self) -> &str {
        &self.told
    }

    /// The subscription, in lower case.
    pub(super) fn subscription(&self) -> &str {
        self.part(2)
    }

    /// The resource group, in lower case.
    pub(super) fn group(&self) -> &str {
        self.part(4)
    }

    /// The name of the resource itself, in lower case.
    pub(super) fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// What it is called among all of a subscription, in lower case: its group, and the names of what it is
    /// and is in. Of machines, `GROUP/SCALE-SET/NUMBER` or `GROUP/NAME`.
    pub(super) fn short(&self) -> String {
        let names = self.key.split('/').skip(8).step_by(2);
        names.fold(self.group().to_owned(), |short, name| short + "/" + name)
    }

    /// What it is called among the resources of several subscriptions: the same, below its subscription.
    pub(super) fn long(&self) -> String {
        format!("{}/{}", self.subscription(), self.short())
    }

    /// The namespace of who provides it, in lower case: `microsoft.network`.
    pub(super) fn provider(&self) -> &str {
        self.part(6)
    }

    fn part(&self, n: usize) -> &str {
        self.key.split('/').nth(n).unwrap_or_default()
    }
}

impl PartialEq for ResourceId {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key
    }
}

impl Eq for ResourceId {}

impl PartialOrd for ResourceId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ResourceId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key.cmp(&other.key)
    }
}

impl fmt::Debug for ResourceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resource_ids_are_compared_case_insensitively() {
        let id = |text| ResourceId::parse(text).unwrap();
        let one = id(
            "/subscriptions/S1/resourceGroups/RG/providers/Microsoft.Compute/virtualMachineScaleSets/Web/virtualMachines/7",
        );
        let other = id(
            "/SUBSCRIPTIONS/s1/resourcegroups/rg/providers/MICROSOFT.compute/VirtualMachineScaleSets/WEB/virtualmachines/7",
        );
        assert_eq!(one, other);
        assert_ne!(one.told(), other.told());
        assert_eq!((one.subscription(), one.group(), one.name()), ("s1", "rg", "7"));
        assert_eq!((&*one.short(), &*one.long()), ("rg/web/7", "s1/rg/web/7"));
        assert_eq!(one.provider(), "microsoft.compute");
        let machine =
            id("/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm1");
        assert_eq!(machine.short(), "g/vm1");
        for bad in [
            "",
            "vm1",
            "/subscriptions/s/resourceGroups/g",
            "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines",
            "/subscriptions//resourceGroups/g/providers/Microsoft.Compute/virtualMachines/v",
        ] {
            assert!(ResourceId::parse(bad).is_none(), "{bad}");
        }
    }
}
