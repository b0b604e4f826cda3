//! A value for each resource type.

use crate::resource::ResourceType;

/// One value for each resource type, found without a search.
#[derive(Debug, Clone, Default)]
pub struct ByType<T> {
    runtime: T,
    extension_config: T,
    secret: T,
    cluster: T,
    endpoint: T,
    listener: T,
    route: T,
}

impl<T> ByType<T> {
    /// Calls `value` for each type, in the order of [`ResourceType::ALL`].
    pub fn new(mut value: impl FnMut(ResourceType) -> T) -> Self {
        Self {
            runtime: value(ResourceType::Runtime),
            extension_config: value(ResourceType::ExtensionConfig),
            secret: value(ResourceType::Secret),
            cluster: value(ResourceType::Cluster),
            endpoint: value(ResourceType::Endpoint),
            listener: value(ResourceType::Listener),
            route: value(ResourceType::Route),
        }
    }

    /// The value of a type.
    pub fn of(&self, resource_type: ResourceType) -> &T {
        match resource_type {
            ResourceType::Runtime => &self.runtime,
            ResourceType::ExtensionConfig => &self.extension_config,
            ResourceType::Secret => &self.secret,
            ResourceType::Cluster => &self.cluster,
            ResourceType::Endpoint => &self.endpoint,
            ResourceType::Listener => &self.listener,
            ResourceType::Route => &self.route,
        }
    }

    /// The value of a type, to be changed.
    pub fn of_mut(&mut self, resource_type: ResourceType) -> &mut T {
        match resource_type {
            ResourceType::Runtime => &mut self.runtime,
            ResourceType::ExtensionConfig => &mut self.extension_config,
            ResourceType::Secret => &mut self.secret,
            ResourceType::Cluster => &mut self.cluster,
            ResourceType::Endpoint => &mut self.endpoint,
            ResourceType::Listener => &mut self.listener,
            ResourceType::Route => &mut self.route,
        }
    }

    /// All values, in the order of [`ResourceType::ALL`].
    pub fn values(&self) -> impl Iterator<Item = &T> {
        ResourceType::ALL.into_iter().map(|resource_type| self.of(resource_type))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_own_value() {
        let mut types = ByType::new(|resource_type| resource_type);
        assert!(types.values().copied().eq(ResourceType::ALL));
        for resource_type in ResourceType::ALL {
            assert_eq!(*types.of(resource_type), resource_type);
            assert_eq!(*types.of_mut(resource_type), resource_type);
        }
    }
}
