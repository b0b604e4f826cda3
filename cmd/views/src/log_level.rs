//! The level of the log, as text.

use ironmesh_api::LogLevelView;
use ironmesh_terminal::table::relative;
use jiff::Timestamp;

/// The level in use, and what it is afterwards.
pub fn text(view: &LogLevelView, now: Timestamp) -> String {
    let LogLevelView { level, configured, source, until, by } = view;
    let origin = match &**source {
        "RUST_LOG" => "from RUST_LOG, which replaces `log.level` of the settings",
        _ => "from the settings",
    };
    match until {
        None => format!("log level {level}, {origin}\n"),
        Some(until) => {
            let by = by.as_deref().unwrap_or("unknown");
            let end = relative(*until, now);
            format!("log level {level} by {by}, ends {end}; then {configured}, {origin}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_end_of_a_change_and_what_follows() {
        let now = Timestamp::UNIX_EPOCH;
        let mut view = LogLevelView {
            level: "info".to_owned(),
            configured: "info".to_owned(),
            source: "settings".to_owned(),
            until: None,
            by: None,
        };
        assert_eq!(text(&view, now), "log level info, from the settings\n");
        view.level = "debug".to_owned();
        view.until = Some(Timestamp::from_second(600).unwrap());
        view.by = Some("ann".to_owned());
        view.source = "RUST_LOG".to_owned();
        let expected = "log level debug by ann, ends in 10m; then info, from RUST_LOG, which \
                        replaces `log.level` of the settings\n";
        assert_eq!(text(&view, now), expected);
    }
}
