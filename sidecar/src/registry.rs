//! The registry of drivers: each half of the seam has one.

use std::fmt;

use ironmesh_catalog::DriverName;

/// A table of drivers by their names, which are unique: a table with a duplicate does not compile.
#[derive(Debug)]
pub struct Registry<D: ?Sized + 'static>(&'static [(&'static str, &'static D)]);

impl<D: ?Sized> Registry<D> {
    /// The registry of these drivers.
    ///
    /// # Panics
    ///
    /// Panics if two drivers have one name. For a constant or a static, that is an error of the compiler.
    pub const fn new(rows: &'static [(&'static str, &'static D)]) -> Self {
        assert!(are_unique(rows), "two sidecar drivers have the same name");
        Self(rows)
    }

    /// The driver with this name.
    pub fn find(&self, name: &DriverName) -> Result<&'static D, UnknownDriver> {
        let found = self.0.iter().find(|(known, _)| *known == name.as_str());
        found
            .map(|(_, driver)| *driver)
            .ok_or_else(|| UnknownDriver { name: name.clone(), known: self.names().collect() })
    }

    /// The names of all drivers.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<D> {
        self.0.iter().map(|(name, _)| *name)
    }

    /// All drivers with their names.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &'static D)> + use<D> {
        self.0.iter().copied()
    }
}

/// Whether no two rows have the same name. (Constant functions have no iterators.)
#[expect(clippy::indexing_slicing, reason = "the loops end at the lengths")]
const fn are_unique<D: ?Sized>(rows: &[(&'static str, &'static D)]) -> bool {
    let mut row = 0;
    while row < rows.len() {
        let mut earlier = 0;
        while earlier < row {
            if are_equal(rows[earlier].0.as_bytes(), rows[row].0.as_bytes()) {
                return false;
            }
            earlier += 1;
        }
        row += 1;
    }
    true
}

#[expect(clippy::indexing_slicing, reason = "the loop ends at the length")]
const fn are_equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    let mut at = 0;
    while at < one.len() {
        if one[at] != other[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// No driver has the name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownDriver {
    name: DriverName,
    known: Vec<&'static str>,
}

impl std::error::Error for UnknownDriver {}

impl fmt::Display for UnknownDriver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no sidecar driver `{}` in this version of ironmesh; ", self.name)?;
        let distance = |known: &&str| strsim::osa_distance(known, self.name.as_str());
        match self.known.iter().copied().min_by_key(distance).filter(|near| distance(near) <= 2) {
            Some(near) => write!(f, "did you mean `{near}`?"),
            None => write!(f, "it has: {}", self.known.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unknown(name: &str) -> String {
        let registry = Registry::new(&[("envoy", "a driver"), ("grpc", "another driver")]);
        registry.find(&name.parse().unwrap()).unwrap_err().to_string()
    }

    #[test]
    fn unknown_driver_error_names_the_nearest_or_all() {
        let near = "no sidecar driver `envoi` in this version of ironmesh; did you mean `envoy`?";
        assert_eq!(unknown("envoi"), near);
        let far = "no sidecar driver `haproxy` in this version of ironmesh; it has: envoy, grpc";
        assert_eq!(unknown("haproxy"), far);
    }

    #[test]
    #[should_panic(expected = "two sidecar drivers have the same name")]
    fn duplicate_driver_is_rejected() {
        Registry::new(&[("envoy", "one"), ("grpc", "another"), ("envoy", "a duplicate")]);
    }
}
