//! Resource ids. Azure compares them case-insensitively, and does not write them consistently.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

/// The id of a resource in a resource group.
#[derive(Clone)]
pub(super) struct ResourceId {
    /// The id as Azure wrote it.
    text: Arc<str>,
    /// The id in lower case, for comparisons.
    key: Arc<str>,
}

impl ResourceId {
    /// Parses `/subscriptions/S/resourceGroups/G/providers/NAMESPACE/TYPE/NAME` and further
    /// segments.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let key = text.to_lowercase();
        let parts: Vec<_> = key.split('/').collect();
        let ["", "subscriptions", subscription, "resourcegroups", group, "providers", _, rest @ ..] =
            parts.as_slice()
        else {
            return None;
        };
        let is_whole = !rest.is_empty() && rest.len() % 2 == 0;
        let is_good =
            is_whole && rest.iter().chain([subscription, group]).all(|part| !part.is_empty());
        is_good.then(|| Self { text: text.into(), key: key.as_str().into() })
    }

    /// Returns the id as Azure wrote it.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// Returns the subscription, in lower case.
    pub(super) fn subscription(&self) -> &str {
        self.part(2)
    }

    /// Returns the resource group, in lower case.
    pub(super) fn group(&self) -> &str {
        self.part(4)
    }

    /// Returns the name of the resource itself, in lower case.
    pub(super) fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// Returns a name that is unique in its subscription, in lower case: the group and the names.
    /// Machines are `GROUP/SCALE-SET/NUMBER` or `GROUP/NAME`.
    pub(super) fn short(&self) -> String {
        let names = self.key.split('/').skip(8).step_by(2);
        names.fold(self.group().to_owned(), |short, name| short + "/" + name)
    }

    /// Returns a name that is unique across subscriptions: the subscription and the short name.
    pub(super) fn long(&self) -> String {
        format!("{}/{}", self.subscription(), self.short())
    }

    /// Returns the namespace of the resource provider, in lower case: `microsoft.network`.
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
        assert_ne!(one.text(), other.text());
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
