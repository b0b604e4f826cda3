//! Node matchers of a status request. They narrow the answer, and never widen it.

use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::string_matcher::MatchPattern;
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{NodeMatcher, StringMatcher};
use tonic::Status;

/// The maximum number of matchers: a client has only one id.
const MAX_MATCHERS: usize = 16;

/// Whether one of the matchers matches a node id; without matchers, everything matches.
pub(super) fn matches(matchers: &[NodeMatcher], id: &str) -> Result<bool, Status> {
    if matchers.len() > MAX_MATCHERS {
        let message =
            format!("{} node matchers exceed the limit of {MAX_MATCHERS}", matchers.len());
        return Err(Status::invalid_argument(message));
    }
    // All matchers are evaluated, so that an unsupported one is always reported.
    let all: Vec<bool> =
        matchers.iter().map(|matcher| matches_one(matcher, id)).collect::<Result<_, _>>()?;
    Ok(all.is_empty() || all.contains(&true))
}

fn matches_one(matcher: &NodeMatcher, id: &str) -> Result<bool, Status> {
    if !matcher.node_metadatas.is_empty() {
        return Err(Status::invalid_argument(
            "`node_metadatas` in a node matcher is not supported: match by `node_id`, or leave it out",
        ));
    }
    matcher.node_id.as_ref().map_or(Ok(true), |matcher| matches_text(matcher, id))
}

fn matches_text(matcher: &StringMatcher, text: &str) -> Result<bool, Status> {
    let folded = |text: &str| {
        if matcher.ignore_case { text.to_ascii_lowercase() } else { text.to_owned() }
    };
    let text = folded(text);
    match &matcher.match_pattern {
        Some(MatchPattern::Exact(exact)) => Ok(text == folded(exact)),
        Some(MatchPattern::Prefix(prefix)) => Ok(text.starts_with(&folded(prefix))),
        Some(MatchPattern::Suffix(suffix)) => Ok(text.ends_with(&folded(suffix))),
        Some(MatchPattern::Contains(part)) => Ok(text.contains(&folded(part))),
        Some(MatchPattern::SafeRegex(_) | MatchPattern::Custom(_)) | None => {
            Err(Status::invalid_argument(
                "`node_id` in a node matcher supports only `exact`, `prefix`, `suffix` or `contains`",
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{RegexMatcher, StructMatcher};
    use tonic::Code;

    use super::*;

    fn by_id(pattern: MatchPattern) -> NodeMatcher {
        let node_id = StringMatcher { match_pattern: Some(pattern), ignore_case: false };
        NodeMatcher { node_id: Some(node_id), ..NodeMatcher::default() }
    }

    #[test]
    fn any_matching_matcher_suffices_and_no_matcher_matches_all() {
        use MatchPattern::{Contains, Exact, Prefix, Suffix};
        for (patterns, is_match) in [
            (vec![], true),
            (vec![Exact("abc".into())], true),
            (vec![Exact("ab".into())], false),
            (vec![Prefix("ab".into())], true),
            (vec![Suffix("bc".into())], true),
            (vec![Contains("b".into())], true),
            (vec![Prefix("b".into()), Suffix("b".into()), Contains("x".into())], false),
            (vec![Exact("x".into()), Exact("abc".into())], true),
        ] {
            let message = format!("{patterns:?}");
            let matchers: Vec<_> = patterns.into_iter().map(by_id).collect();
            assert_eq!(matches(&matchers, "abc").unwrap(), is_match, "{message}");
        }
        let mut shouted = by_id(Exact("ABC".into()));
        assert!(!matches(std::slice::from_ref(&shouted), "abc").unwrap());
        shouted.node_id.as_mut().unwrap().ignore_case = true;
        assert!(matches(&[shouted,], "abc").unwrap());
        assert!(matches(&[NodeMatcher::default()], "abc").unwrap());
    }

    #[test]
    fn unsupported_matcher_is_rejected_not_ignored() {
        let good = by_id(MatchPattern::Exact("abc".into()));
        let metadata = vec![StructMatcher::default()];
        for bad in [
            by_id(MatchPattern::SafeRegex(RegexMatcher::default())),
            NodeMatcher { node_metadatas: metadata, ..good.clone() },
            NodeMatcher { node_id: Some(StringMatcher::default()), ..NodeMatcher::default() },
        ] {
            let error = matches(&[good.clone(), bad], "abc").unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{error}");
        }
        let many = vec![good; MAX_MATCHERS + 1];
        assert_eq!(matches(&many, "abc").unwrap_err().code(), Code::InvalidArgument);
    }
}
