//! Inclusion between allowed traffic: access that still follows from a wider rule is not lost.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::AllowedTraffic;

/// Whether `wide` allows all that `narrow` allows. It compares expressions only for equality.
pub(super) fn includes(wide: &AllowedTraffic, narrow: &AllowedTraffic) -> bool {
    match (wide, narrow) {
        (
            AllowedTraffic::EveryRequest,
            AllowedTraffic::EveryRequest | AllowedTraffic::Requests { .. },
        )
        | (AllowedTraffic::Connections, AllowedTraffic::Connections) => true,
        (
            AllowedTraffic::Requests { methods, path, headers },
            AllowedTraffic::Requests { methods: others, path: other_path, headers: other_headers },
        ) => {
            (methods.is_empty()
                || (!others.is_empty() && others.iter().all(|one| methods.contains(one))))
                && (path.is_none() || path == other_path)
                && headers.iter().all(|(name, one)| other_headers.get(name) == Some(one))
        }
        _ => false,
    }
}

/// All traffic that [includes] `narrow`, with itself, if there are at most `most`: each has a subset of its
/// conditions. `narrow` must have at most one method.
pub(super) fn wider(narrow: &AllowedTraffic, most: usize) -> Option<Vec<AllowedTraffic>> {
    let AllowedTraffic::Requests { methods, path, headers } = narrow else {
        return Some(vec![narrow.clone()]);
    };
    // Each condition is present or absent.
    let conditions = [!methods.is_empty(), path.is_some()].into_iter().filter(|is| *is).count();
    let conditions = u32::try_from(conditions + headers.len()).ok()?;
    1_usize.checked_shl(conditions).filter(|all| *all <= most)?;
    let mut all = vec![BTreeMap::new()];
    for (name, expression) in headers {
        let mut with = all.clone();
        for headers in &mut with {
            headers.insert(Arc::clone(name), Arc::clone(expression));
        }
        all.append(&mut with);
    }
    let (mut wider, any) = (Vec::new(), AllowedTraffic::EveryRequest);
    for headers in all {
        for methods in [Vec::new(), methods.clone()].into_iter().skip(methods.is_empty().into()) {
            for path in [None, path.clone()].into_iter().skip(path.is_none().into()) {
                let headers = headers.clone();
                let is_any = methods.is_empty() && path.is_none() && headers.is_empty();
                let methods = methods.clone();
                let some = || AllowedTraffic::Requests { methods, path, headers };
                wider.push(if is_any { any.clone() } else { some() });
            }
        }
    }
    Some(wider)
}

/// The same traffic in parts with at most one method each.
pub(super) fn by_method(traffic: AllowedTraffic) -> Vec<AllowedTraffic> {
    match traffic {
        AllowedTraffic::Requests { methods, path, headers } if methods.len() > 1 => methods
            .into_iter()
            .map(|method| AllowedTraffic::Requests {
                methods: vec![method],
                path: path.clone(),
                headers: headers.clone(),
            })
            .collect(),
        one => vec![one],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requests(methods: &[&str], path: Option<&str>, tier: Option<&str>) -> AllowedTraffic {
        AllowedTraffic::Requests {
            methods: methods.iter().map(|one| (*one).into()).collect(),
            path: path.map(Into::into),
            headers: tier.map(|tier| ("x-tier".into(), tier.into())).into_iter().collect(),
        }
    }

    #[test]
    fn allowed_traffic_includes_stricter_conditions() {
        let narrow = requests(&["GET"], Some("/a"), Some("gold"));
        for wide in [
            AllowedTraffic::EveryRequest,
            requests(&["GET"], Some("/a"), Some("gold")),
            requests(&[], Some("/a"), Some("gold")),
            requests(&["GET", "PUT"], Some("/a"), Some("gold")),
            requests(&["GET"], None, Some("gold")),
            requests(&["GET"], Some("/a"), None),
        ] {
            assert!(includes(&wide, &narrow), "{wide}");
            assert_eq!(includes(&narrow, &wide), wide == narrow, "{wide}");
        }
        for other in [
            AllowedTraffic::Connections,
            requests(&["PUT"], Some("/a"), Some("gold")),
            requests(&["GET"], Some("/b"), Some("gold")),
            requests(&["GET"], Some("/a"), Some("lead")),
        ] {
            assert!(!includes(&other, &narrow), "{other}");
        }
        assert!(!includes(&requests(&["GET"], None, None), &requests(&[], None, None)));
    }

    #[test]
    fn wider_allowed_traffic_is_exactly_the_including_set() {
        let mut all = vec![AllowedTraffic::EveryRequest, AllowedTraffic::Connections];
        for methods in [&[][..], &["GET"], &["PUT"]] {
            for path in [None, Some("/a"), Some("/b")] {
                for tier in [None, Some("gold"), Some("lead")] {
                    if !methods.is_empty() || path.is_some() || tier.is_some() {
                        all.push(requests(methods, path, tier));
                    }
                }
            }
        }
        for narrow in &all {
            let wider = wider(narrow, 8).unwrap();
            for wide in &all {
                assert_eq!(wider.contains(wide), includes(wide, narrow), "{wide} of {narrow}");
            }
        }
        let narrowest = requests(&["GET"], Some("/a"), Some("gold"));
        assert_eq!(
            wider(&narrowest, 8).unwrap().len(),
            8,
            "few to look for, however many there are"
        );
        assert_eq!(wider(&narrowest, 7), None);
    }
}
