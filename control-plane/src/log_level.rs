//! The level of this control plane's log: the configured one, or a temporary one.
//!
//! It decides which level is in use. It never filters lines: the log does, of which the process has one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_api::LogLevelView;
use ironmesh_catalog::LogDirectives;
use ironmesh_config_settings::ReloadableSettings;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

/// The log of the process.
pub trait LogControl: fmt::Debug + Send + Sync {
    /// The filter of the environment variable `RUST_LOG`, which replaces the level of the settings; none if that is not set.
    fn environment(&self) -> Option<&str>;

    /// Replaces the filter of the log. None is that of the environment.
    fn set(&self, directives: Option<&LogDirectives>);
}

/// The level of the log.
#[derive(Debug)]
pub(crate) struct LogLevel {
    control: Arc<dyn LogControl>,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Debug)]
struct State {
    /// The level of the settings.
    settings: LogDirectives,
    temporary: Option<TemporaryLevel>,
}

/// A level that an operator has set for a while.
#[derive(Debug)]
struct TemporaryLevel {
    level: LogDirectives,
    until: Timestamp,
    /// The end by a clock that never jumps.
    deadline: Instant,
    by: String,
}

impl LogLevel {
    /// The level of the settings, or of the environment, is in use from now on.
    pub(crate) fn new(control: Arc<dyn LogControl>, settings: LogDirectives) -> Self {
        let state = Mutex::new(State { settings, temporary: None });
        let level = Self { control, state, changed: Notify::new() };
        level.apply(&level.state.lock());
        level
    }

    /// Sets a level for a while, instead of an earlier one. The configured level ends that.
    pub(crate) fn change(&self, level: LogDirectives, length: Duration, by: String) {
        let mut state = self.state.lock();
        let is_configured = self.configured(&state) == level.as_str();
        let until = Timestamp::now().checked_add(length).unwrap_or(Timestamp::MAX);
        // Before the change, which may hide the line.
        if is_configured {
            tracing::info!(%level, by, reason = "an operator ended the change", "log level restored");
        } else {
            tracing::info!(%level, by, until = %format_args!("{until:.0}"), "log level changed");
        }
        let deadline = Instant::now() + length;
        state.temporary = (!is_configured).then_some(TemporaryLevel { level, until, deadline, by });
        self.apply(&state);
        drop(state);
        self.changed.notify_one();
    }

    /// The level in use, and the configured one.
    pub(crate) fn view(&self) -> LogLevelView {
        let state = self.state.lock();
        let configured = self.configured(&state).to_owned();
        let source = if self.control.environment().is_some() { "RUST_LOG" } else { "settings" };
        let temporary = state.temporary.as_ref();
        LogLevelView {
            level: temporary.map_or_else(|| configured.clone(), |one| one.level.to_string()),
            configured,
            source: source.to_owned(),
            until: temporary.map(|one| one.until),
            by: temporary.map(|one| one.by.clone()),
        }
    }

    /// Follows the settings, and ends changes in time, until `shutdown`.
    pub(crate) async fn run(
        self: Arc<Self>,
        mut settings: watch::Receiver<ReloadableSettings>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        loop {
            let deadline = self.state.lock().temporary.as_ref().map(|one| one.deadline);
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                // Without a sender, the settings stay.
                Ok(()) = settings.changed() => {
                    let level = settings.borrow_and_update().log_level.clone();
                    self.configure(level);
                }
                () = self.changed.notified() => {}
                () = sleep_until(deadline.unwrap_or_else(Instant::now)), if deadline.is_some() => {
                    self.end_change(Instant::now());
                }
            }
        }
    }

    /// Notes a new level of the settings.
    fn configure(&self, level: LogDirectives) {
        let mut state = self.state.lock();
        if state.settings != level {
            state.settings = level;
            self.apply(&state);
        }
    }

    /// Ends a change whose time is over.
    fn end_change(&self, now: Instant) {
        let mut state = self.state.lock();
        if state.temporary.as_ref().is_none_or(|one| now < one.deadline) {
            return;
        }
        state.temporary = None;
        self.apply(&state);
        let level = self.configured(&state);
        tracing::info!(level, reason = "the time of the change is over", "log level restored");
    }

    fn configured<'a>(&'a self, state: &'a State) -> &'a str {
        self.control.environment().unwrap_or_else(|| state.settings.as_str())
    }

    fn apply(&self, state: &State) {
        let is_by_environment = self.control.environment().is_some();
        match &state.temporary {
            Some(temporary) => self.control.set(Some(&temporary.level)),
            None if is_by_environment => self.control.set(None),
            None => self.control.set(Some(&state.settings)),
        }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_config_settings::Settings;

    use super::*;

    #[derive(Debug, Default)]
    struct FakeLog {
        environment: Option<String>,
        active: Mutex<Option<String>>,
    }

    impl LogControl for FakeLog {
        fn environment(&self) -> Option<&str> {
            self.environment.as_deref()
        }

        fn set(&self, directives: Option<&LogDirectives>) {
            *self.active.lock() = directives.map(ToString::to_string);
        }
    }

    fn level(text: &str) -> LogDirectives {
        text.parse().unwrap()
    }

    fn running(
        environment: Option<&str>,
    ) -> (Arc<FakeLog>, Arc<LogLevel>, watch::Sender<ReloadableSettings>) {
        let environment = environment.map(str::to_owned);
        let log = Arc::new(FakeLog { environment, ..FakeLog::default() });
        let control: Arc<dyn LogControl> = Arc::<FakeLog>::clone(&log);
        let settings = watch::Sender::new(Settings::default().reloadable());
        let of_log = Arc::new(LogLevel::new(control, settings.borrow().log_level.clone()));
        let task = Arc::clone(&of_log).run(settings.subscribe(), CancellationToken::new());
        tokio::spawn(task);
        (log, of_log, settings)
    }

    fn active(log: &FakeLog) -> Option<String> {
        log.active.lock().clone()
    }

    /// Virtual time stands still while a task can run: all that is due is done.
    async fn advance(seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn changed_level_returns_to_the_configured_one_in_time() {
        let (log, of_log, _settings) = running(None);
        assert_eq!(active(&log).as_deref(), Some("info"));
        of_log.change(level("debug"), Duration::from_secs(600), "ann".to_owned());
        assert_eq!(active(&log).as_deref(), Some("debug"));
        let view = of_log.view();
        assert_eq!((&*view.level, &*view.configured, &*view.source), ("debug", "info", "settings"));
        assert_eq!(view.by.as_deref(), Some("ann"));
        advance(500).await;
        // A second change replaces the first, with its end.
        of_log.change(level("trace"), Duration::from_secs(600), "ben".to_owned());
        advance(599).await;
        assert_eq!(active(&log).as_deref(), Some("trace"));
        advance(2).await;
        assert_eq!(active(&log).as_deref(), Some("info"));
        assert_eq!((of_log.view().until, of_log.view().by), (None, None));
    }

    #[tokio::test(start_paused = true)]
    async fn configured_level_ends_a_change_at_once() {
        let (log, of_log, _settings) = running(None);
        of_log.change(level("debug"), Duration::from_secs(600), "ann".to_owned());
        of_log.change(level("info"), Duration::from_secs(600), "ann".to_owned());
        assert_eq!((active(&log).as_deref(), of_log.view().until), (Some("info"), None));
    }

    #[tokio::test(start_paused = true)]
    async fn reload_during_a_change_counts_after_its_end() {
        let (log, of_log, settings) = running(None);
        settings.send_modify(|settings| settings.log_level = level("warn"));
        advance(1).await;
        assert_eq!(active(&log).as_deref(), Some("warn"));
        of_log.change(level("debug"), Duration::from_secs(60), "ann".to_owned());
        settings.send_modify(|settings| settings.log_level = level("error"));
        advance(1).await;
        assert_eq!(active(&log).as_deref(), Some("debug"));
        assert_eq!(of_log.view().configured, "error");
        advance(60).await;
        assert_eq!(active(&log).as_deref(), Some("error"));
    }

    #[tokio::test(start_paused = true)]
    async fn environment_has_priority_over_the_settings() {
        let (log, of_log, settings) = running(Some("x[span]=debug"));
        assert_eq!(active(&log), None, "the environment's filter");
        settings.send_modify(|settings| settings.log_level = level("warn"));
        advance(1).await;
        assert_eq!(active(&log), None);
        let view = of_log.view();
        assert_eq!((&*view.level, &*view.source), ("x[span]=debug", "RUST_LOG"));
        of_log.change(level("debug"), Duration::from_secs(60), "ann".to_owned());
        assert_eq!(active(&log).as_deref(), Some("debug"));
        advance(61).await;
        assert_eq!(active(&log), None);
    }
}
