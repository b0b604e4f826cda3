//! What the reference says of settings of HTTP routes, and of several of them together.

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

/// Who says a setting, the farthest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Level {
    Mesh,
    Namespace,
    Service,
    /// An object of the kind `retry`, which says nothing but retries.
    Retry,
    Route,
}

/// Those that say more than retries.
pub(super) const LEVELS: [Level; 4] = [Level::Mesh, Level::Namespace, Level::Service, Level::Route];

impl Level {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// A number that this level says, and nobody else.
    fn number(self) -> u8 {
        match self {
            Self::Mesh => 2,
            Self::Namespace => 3,
            Self::Service => 4,
            Self::Retry => 5,
            Self::Route => 6,
        }
    }

    /// How often is tried again that this level says.
    pub(super) fn retries(self) -> u64 {
        self.number().into()
    }

    /// The status with which it aborts.
    fn abort_status(self) -> StatusCode {
        match self {
            Self::Mesh => StatusCode::IM_A_TEAPOT,
            Self::Namespace => StatusCode::CONFLICT,
            Self::Service => StatusCode::GONE,
            Self::Retry | Self::Route => StatusCode::LENGTH_REQUIRED,
        }
    }

    /// The service that gets its copies.
    pub(super) fn shadow(self) -> String {
        format!("shadow-{}", self.name())
    }
}

/// How often who asks would like to be tried again.
pub(super) const CALLER_RETRIES: u64 = 1;

impl Setting {
    pub(super) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    pub(super) fn path(self) -> String {
        format!("/{}", self.name())
    }

    /// What an HTTP route of a level says, but for faults.
    fn key(self, level: Level) -> String {
        let name_of = level.name();
        match self {
            // No test waits for so long: what a caller may say is shorter.
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
            RequestHeaders => format!("request_headers = {{ set = {{ x-said = \"{name_of}\" }} }}"),
            ResponseHeaders => {
                format!("response_headers = {{ set = {{ x-told = \"{name_of}\" }} }}")
            }
            Rewrite => {
                format!("rewrite = {{ path_prefix = {{ from = \"/\", to = \"/{name_of}\" }} }}")
            }
            Redirect => format!("redirect = {{ status = 307, host = \"{name_of}.example\" }}"),
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

    /// Whether nearer and farther ones of these are the same setting, so that the nearer alone is taken.
    fn overrides(self, other: Self) -> bool {
        self == other
            || self.is_fault() && other.is_fault()
            || self.is_override() && other.is_override()
    }
}

/// An HTTP route that says these settings for its level. It is about `about`.
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

/// All pairs that one object may say.
pub(super) fn pairs() -> impl Iterator<Item = [Setting; 2]> {
    let all = ALL.into_iter().enumerate();
    let pairs =
        all.flat_map(|(index, one)| ALL.into_iter().skip(index + 1).map(move |other| [one, other]));
    pairs.filter(|pair| !conflicts(*pair))
}

/// Whether two settings are refused in one object (IM0603), or are the same key.
fn conflicts(pair: [Setting; 2]) -> bool {
    let has_effect_beside_redirect =
        |one: &Setting| matches!(one, Redirect | ResponseHeaders | Delay);
    pair.iter().all(|one| one.is_override())
        || pair.contains(&Redirect) && !pair.iter().all(has_effect_beside_redirect)
}

/// What comes of one request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) status: u16,
    /// Who has answered, if an application has, and at which path.
    pub(super) app: Option<String>,
    pub(super) path: Option<String>,
    /// How often the request came to the application.
    pub(super) tries: u64,
    /// What the application was told, and the caller.
    pub(super) request_header: Option<String>,
    pub(super) response_header: Option<String>,
    /// Where the caller was sent.
    pub(super) location: Option<String>,
    /// Which service got how many copies.
    pub(super) copies: BTreeMap<String, u64>,
}

/// What the caller's Envoy has to know of such requests that an outcome does not show: how long they may take, and
/// have to wait.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) timeout: Option<String>,
    pub(super) delay: Option<String>,
}

/// Who decides a setting, if it is said.
fn nearest(settings: &[(Level, Setting)], setting: Setting) -> Option<Level> {
    let same = settings.iter().filter(|(_, one)| one.overrides(setting));
    let level = same.map(|(level, _)| *level).max()?;
    settings.contains(&(level, setting)).then_some(level)
}

/// What a request for a path comes to of which these levels say these settings.
pub(super) fn model(path: &str, settings: &[(Level, Setting)]) -> Outcome {
    let nearest = |setting| nearest(settings, setting);
    let name_of = |setting| nearest(setting).map(Level::name);
    // The caller's own wish comes before policy where he may have one.
    let retries = match nearest(Retries) {
        _ if nearest(Overrides).is_some() => CALLER_RETRIES,
        Some(level) => level.retries(),
        None => 0,
    };
    let outcome = Outcome {
        status: 503,
        app: Some("store".to_owned()),
        path: Some(
            name_of(Rewrite).map_or_else(|| path.to_owned(), |name_of| format!("/{name_of}{path}")),
        ),
        tries: 1 + retries,
        request_header: name_of(RequestHeaders),
        response_header: name_of(ResponseHeaders),
        location: None,
        copies: nearest(Mirror).into_iter().map(|level| (level.shadow(), 1)).collect(),
    };
    // Nothing of what is answered by the caller's own sidecar comes to anybody else.
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
        // Those of a redirect are of the redirect alone.
        let response_header =
            outcome.response_header.clone().filter(|_| name_of(Redirect).is_none());
        Outcome { response_header, ..own(level.abort_status().as_u16(), None) }
    } else if let Some(name_of) = name_of(Redirect) {
        own(307, Some(format!("http://{name_of}.example{path}")))
    } else {
        outcome
    }
}

/// The times of requests of which these levels say these settings.
pub(super) fn times(settings: &[(Level, Setting)]) -> Times {
    // One that is redirected goes nowhere where it could take long.
    let timeout = nearest(settings, Timeout).filter(|_| nearest(settings, Redirect).is_none());
    Times {
        timeout: timeout.map(|level| format!("{}s", 60 + level.number())),
        delay: nearest(settings, Delay).map(|level| format!("0.00{}s", level.number())),
    }
}

/// What load is answered with of which a level says one setting alone.
pub(super) fn load_status(level: Level, setting: Setting) -> StatusCode {
    match setting {
        Abort => level.abort_status(),
        Redirect => StatusCode::TEMPORARY_REDIRECT,
        _ => StatusCode::OK,
    }
}
