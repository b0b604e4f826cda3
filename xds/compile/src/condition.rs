//! Conditions of splits as matches of Envoy's routes. They read a match as
//! [RBAC](crate::rbac) does: a request satisfies a match in a split exactly if
//! the same match in a traffic target allows it.

use ironmesh_catalog::{HttpMatch, Method, PathRegex};
use ironmesh_xds_wire::pb::envoy::config::route::v3::{
    HeaderMatcher, RouteMatch, header_matcher::HeaderMatchSpecifier, route_match::PathSpecifier,
};
use ironmesh_xds_wire::pb::envoy::r#type::matcher::v3::{RegexMatcher, StringMatcher};

use crate::shape::{exact, regex};

/// The route match for requests that satisfy all of `conditions`.
///
/// A route compares one expression with the path. Further ones compare the header `:path`, where
/// they must exclude the query. (The loader rejects combinations of two for which that is
/// impossible.)
pub(crate) fn route_match(conditions: &[&HttpMatch]) -> RouteMatch {
    let mut headers: Vec<HeaderMatcher> = Vec::new();
    let mut paths: Vec<&PathRegex> = Vec::new();
    for one in conditions {
        headers.extend(method(&one.methods));
        for (name, expression) in &one.headers {
            headers.push(match &**name {
                "host" => header(":authority", regex(HttpMatch::whole_authority(expression))),
                name => header(name, regex(expression.to_string())),
            });
        }
        if let Some(path) = one.path.as_ref().filter(|path| !paths.contains(path)) {
            paths.push(path);
        }
    }
    // The one that cannot use the header comes first.
    paths.sort_by_key(|path| path.before_query.is_some());
    let mut paths = paths.into_iter();
    let path_specifier = match paths.next() {
        None => PathSpecifier::Prefix("/".to_owned()),
        Some(path) => {
            headers.push(HeaderMatcher {
                invert_match: true,
                ..header(":path", regex(PathRegex::DISGUISED_BEFORE_QUERY.to_owned()))
            });
            PathSpecifier::SafeRegex(RegexMatcher {
                regex: path.whole_path(),
                ..RegexMatcher::default()
            })
        }
    };
    for path in paths {
        // An impossible condition must not match: no path starts like this.
        let expression = path.whole_path_and_query().unwrap_or_else(|| r"\n".to_owned());
        headers.push(header(":path", regex(expression)));
    }
    RouteMatch { path_specifier: Some(path_specifier), headers, ..RouteMatch::default() }
}

fn method(methods: &[Method]) -> Option<HeaderMatcher> {
    let value = match methods {
        [] => return None,
        [only] => exact(&*only.0),
        several => {
            let escaped: Vec<_> = several.iter().map(|method| escaped(&method.0)).collect();
            regex(escaped.join("|"))
        }
    };
    Some(header(":method", value))
}

/// Escapes a method for a regular expression: tokens may contain special characters.
fn escaped(method: &str) -> String {
    let mut expression = String::new();
    for letter in method.chars() {
        if !letter.is_ascii_alphanumeric() {
            expression.push('\\');
        }
        expression.push(letter);
    }
    expression
}

fn header(name: &str, value: StringMatcher) -> HeaderMatcher {
    HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(value)),
        ..HeaderMatcher::default()
    }
}

#[cfg(test)]
mod tests;
