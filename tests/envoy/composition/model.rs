//! The reference's rules for settings of HTTP routes and their combinations, as a model.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::StatusCode;

/// A setting of an HTTP route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Setting {
    Timeout,
    Retries,
    Delay,
    Abort,
    RequestHeaders,
    ResponseHeaders,
    Rewrite,
    Redirect,
    Mirror,
    Overrides,
    NoOverrides,
}

use Setting::{
    Abort, Delay, Mirror, NoOverrides, Overrides, Redirect, RequestHeaders, ResponseHeaders,
    Retries, Rewrite, Timeout,
};

pub(super) const ALL: [Setting; 11] = [
    Timeout,
    Retries,
    Delay,
    Abort,
    RequestHeaders,
    ResponseHeaders,
    Rewrite,
    Redirect,
    Mirror,
    Overrides,
    NoOverrides,
];

/// The level that sets a setting, farthest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Mesh,
    Namespace,
    Service,
    /// An object of the kind `retry`, which sets only retries.
    Retry,
    Route,
}

/// The levels that set more than retries.
pub(super) const LEVELS: [Level; 4] = [Level::Mesh, Level::Namespace, Level::Service, Level::Route];

impl Level {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// A number that identifies this level.
    fn number(self) -> u8 {
        match self {
            Self::Mesh => 2,
            Self::Namespace => 3,
            Self::Service => 4,
            Self::Retry => 5,
            Self::Route => 6,
        }
    }

    /// The number of retries that this level sets.
    pub(super) fn retries(self) -> u64 {
        self.number().into()
    }

    /// The status with which this level aborts.
    fn abort_status(self) -> StatusCode {
        match self {
            Self::Mesh => StatusCode::IM_A_TEAPOT,
            Self::Namespace => StatusCode::CONFLICT,
            Self::Service => StatusCode::GONE,
            Self::Retry | Self::Route => StatusCode::LENGTH_REQUIRED,
        }
    }

    /// The service that receives this level's copies.
    pub(super) fn shadow(self) -> String {
        format!("shadow-{}", self.name())
    }
}

/// The number of retries that the caller requests.
pub(super) const CALLER_RETRIES: u64 = 1;

impl Setting {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    pub(super) fn path(self) -> String {
        format!("/{}", self.name())
    }

    /// The setting as TOML; faults without their table.
    fn key(self, level: Level) -> String {
        let level_name = level.name();
        match self {
            // Longer than any test waits, and longer than callers may request.
            Timeout => format!("timeout = \"{}s\"", 60 + level.number()),
            Retries => format!(
                "retries = {{ retry_on = [\"503\"], num_retries = {}, backoff_base_interval = \"1ms\" }}",
                level.retries()
            ),
            Delay => {
                format!("delay = {{ duration = \"{}ms\", percent = 100 }}", level.number())
            }
            Abort => {
                format!("abort = {{ status = {}, percent = 100 }}", level.abort_status().as_u16())
            }
            RequestHeaders => {
                format!("request_headers = {{ set = {{ x-sent-level = \"{level_name}\" }} }}")
            }
            ResponseHeaders => {
                format!("response_headers = {{ set = {{ x-returned-level = \"{level_name}\" }} }}")
            }
            Rewrite => {
                format!("rewrite = {{ path_prefix = {{ from = \"/\", to = \"/{level_name}\" }} }}")
            }
            Redirect => format!("redirect = {{ status = 307, host = \"{level_name}.example\" }}"),
            Mirror => {
                format!("mirror = {{ service = \"{}\", namespace = \"default\" }}", level.shadow())
            }
            Overrides => "allow_override_headers = true".to_owned(),
            NoOverrides => "allow_override_headers = false".to_owned(),
        }
    }

    fn is_fault(self) -> bool {
        matches!(self, Delay | Abort)
    }

    fn is_override(self) -> bool {
        matches!(self, Overrides | NoOverrides)
    }

    /// Whether two settings share one key, so that only the nearer applies.
    fn overrides(self, other: Self) -> bool {
        self == other
            || self.is_fault() && other.is_fault()
            || self.is_override() && other.is_override()
    }
}

/// An HTTP route with these settings for its level. `about` is its target.
pub(super) fn rule(
    namespace: &str,
    name: &str,
    about: &str,
    level: Level,
    settings: &[Setting],
) -> String {
    let mut rule =
        format!("[[http_route]]\nnamespace = \"{namespace}\"\nname = \"{name}\"\n{about}\n");
    let (faults, others): (Vec<Setting>, Vec<Setting>) =
        settings.iter().partition(|one| one.is_fault());
    for one in others {
        writeln!(rule, "{}", one.key(level)).unwrap();
    }
    if !faults.is_empty() {
        let faults: Vec<_> = faults.into_iter().map(|one| one.key(level)).collect();
        writeln!(rule, "fault = {{ {} }}", faults.join(", ")).unwrap();
    }
    rule
}

/// All pairs that one object may set.
pub(super) fn pairs() -> impl Iterator<Item = [Setting; 2]> {
    let all = ALL.into_iter().enumerate();
    let pairs =
        all.flat_map(|(index, one)| ALL.into_iter().skip(index + 1).map(move |other| [one, other]));
    pairs.filter(|pair| !conflicts(*pair))
}

/// Whether one object may not have both settings (IM0603, or the same key).
fn conflicts(pair: [Setting; 2]) -> bool {
    let has_effect_beside_redirect =
        |one: &Setting| matches!(one, Redirect | ResponseHeaders | Delay);
    pair.iter().all(|one| one.is_override())
        || pair.contains(&Redirect) && !pair.iter().all(has_effect_beside_redirect)
}

/// The outcome of one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) status: u16,
    /// The application that answered, if any, and the path that it received.
    pub(super) app: Option<String>,
    pub(super) path: Option<String>,
    /// The number of times the application received the request.
    pub(super) tries: u64,
    /// The header that the application received, and the one that the caller received.
    pub(super) request_header: Option<String>,
    pub(super) response_header: Option<String>,
    /// The location of a redirect.
    pub(super) location: Option<String>,
    /// The number of copies by mirror target.
    pub(super) copies: BTreeMap<String, u64>,
}

/// The times in the caller's Envoy that an outcome does not show: timeout and delay.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) timeout: Option<String>,
    pub(super) delay: Option<String>,
}

/// The level that decides a setting, if any.
fn nearest(settings: &[(Level, Setting)], setting: Setting) -> Option<Level> {
    let same = settings.iter().filter(|(_, one)| one.overrides(setting));
    let level = same.map(|(level, _)| *level).max()?;
    settings.contains(&(level, setting)).then_some(level)
}

/// The predicted outcome of a request with these settings.
pub(super) fn model(path: &str, settings: &[(Level, Setting)]) -> Outcome {
    let nearest = |setting| nearest(settings, setting);
    let name_of = |setting| nearest(setting).map(Level::name);
    // The caller's own retries precede policy where the caller may set them.
    let retries = match nearest(Retries) {
        _ if nearest(Overrides).is_some() => CALLER_RETRIES,
        Some(level) => level.retries(),
        None => 0,
    };
    let outcome = Outcome {
        status: 503,
        app: Some("store".to_owned()),
        path: Some(
            name_of(Rewrite).map_or_else(|| path.to_owned(), |level| format!("/{level}{path}")),
        ),
        tries: 1 + retries,
        request_header: name_of(RequestHeaders),
        response_header: name_of(ResponseHeaders),
        location: None,
        copies: nearest(Mirror).into_iter().map(|level| (level.shadow(), 1)).collect(),
    };
    // An answer of the caller's own sidecar reaches no application.
    let own = |status, location| Outcome {
        status,
        location,
        app: None,
        path: None,
        tries: 0,
        request_header: None,
        copies: BTreeMap::new(),
        response_header: outcome.response_header.clone(),
    };
    if let Some(level) = nearest(Abort) {
        // Response headers of a redirect apply to the redirect only.
        let response_header =
            outcome.response_header.clone().filter(|_| name_of(Redirect).is_none());
        Outcome { response_header, ..own(level.abort_status().as_u16(), None) }
    } else if let Some(level) = name_of(Redirect) {
        own(307, Some(format!("http://{level}.example{path}")))
    } else {
        outcome
    }
}

/// The predicted times of requests with these settings.
pub(super) fn times(settings: &[(Level, Setting)]) -> Times {
    // A redirected request has no timeout.
    let timeout = nearest(settings, Timeout).filter(|_| nearest(settings, Redirect).is_none());
    Times {
        timeout: timeout.map(|level| format!("{}s", 60 + level.number())),
        delay: nearest(settings, Delay).map(|level| format!("0.00{}s", level.number())),
    }
}

/// The predicted status of load when one level sets one setting.
pub(super) fn load_status(level: Level, setting: Setting) -> StatusCode {
    match setting {
        Abort => level.abort_status(),
        Redirect => StatusCode::TEMPORARY_REDIRECT,
        _ => StatusCode::OK,
    }
}
