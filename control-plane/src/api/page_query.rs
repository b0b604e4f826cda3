//! What the queries of lists by services have in common: a namespace, and the place and the length of a page.

use std::str::FromStr;

use ironmesh_admin::ApiError;
use ironmesh_catalog::{InvalidName, Name, Service};

/// Where a page begins, and how long it is.
pub(super) struct PageBounds<K> {
    /// The last key of the page before; none for the first page.
    pub(super) after: Option<K>,
    pub(super) limit: usize,
}

impl<K: FromStr<Err = InvalidName>> PageBounds<K> {
    /// The bounds of a query, in a list whose pages have up to `most` entries.
    pub(super) fn read(
        after: Option<&str>,
        limit: Option<usize>,
        most: usize,
    ) -> Result<Self, ApiError> {
        let invalid = |error: InvalidName| ApiError::BadRequest(format!("`after`: {error}"));
        let after = after.map(|text| text.parse().map_err(invalid)).transpose()?;
        Ok(Self { after, limit: limit.unwrap_or(most).clamp(1, most) })
    }
}

/// Whether a service is in the namespace of a query; without one, all are.
pub(super) fn is_in(service: &Service, namespace: Option<&Name>) -> bool {
    namespace.is_none_or(|namespace| service.name.namespace == *namespace)
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::ServiceName;

    use super::*;

    #[test]
    fn page_is_bounded_and_begins_after_a_key() {
        let read = |after, limit| PageBounds::<ServiceName>::read(after, limit, 10);
        let first = read(None, None).unwrap();
        assert_eq!((first.after, first.limit), (None, 10));
        for (limit, expected) in [(0, 1), (3, 3), (11, 10)] {
            assert_eq!(read(None, Some(limit)).unwrap().limit, expected);
        }
        let next = read(Some("shop/till"), None).unwrap();
        assert_eq!(next.after, Some("shop/till".parse().unwrap()));
        let error = read(Some("a b"), None).err().unwrap();
        assert!(error.to_string().starts_with("`after`: "), "{error}");
    }
}
