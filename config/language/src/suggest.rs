//! "Did you mean": the valid word nearest to a wrong one.

/// The candidate nearest to `wanted`, if one is near enough.
pub fn closest<'a>(wanted: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // A third of the characters may differ; in a short word, one.
    let most = (wanted.chars().count() / 3).max(1);
    candidates
        .into_iter()
        // The cheap check is first, since a policy may name thousands of missing objects.
        .filter(|candidate| candidate.len().abs_diff(wanted.len()) <= most)
        .map(|candidate| (strsim::osa_distance(wanted, candidate), candidate))
        .filter(|(distance, _)| *distance <= most)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The suggestion of a finding.
pub(crate) fn did_you_mean(candidate: &str) -> String {
    format!("did you mean `{candidate}`?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suggestion_is_the_nearest_word_if_close_enough() {
        let words = ["protocol", "port", "ports"];
        assert_eq!(closest("protocal", words), Some("protocol"));
        assert_eq!(closest("prot", words), Some("port"));
        assert_eq!(closest("weight", words), None);
    }
}
