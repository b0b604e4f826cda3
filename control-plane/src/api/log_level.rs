//! The admin API's view of the level of the log.

use std::time::Duration;

use ironmesh_admin::{ApiError, LogLevelAccess, Principal};
use ironmesh_api::{DEFAULT_LOG_LEVEL_TIME, LogLevelRequest, LogLevelView, MAX_LOG_LEVEL_TIME};

use super::RunningControlPlane;
use crate::journal;

impl LogLevelAccess for RunningControlPlane {
    fn log_level(&self) -> LogLevelView {
        self.log_level.view()
    }

    fn set_log_level(
        &self,
        principal: &Principal,
        request: &LogLevelRequest,
    ) -> Result<LogLevelView, ApiError> {
        let result = self.checked_log_level(principal, request);
        self.journal.record_and_wait(journal::log_level_change(
            principal,
            &request.level,
            result.as_ref(),
        ));
        result
    }
}

impl RunningControlPlane {
    fn checked_log_level(
        &self,
        principal: &Principal,
        request: &LogLevelRequest,
    ) -> Result<LogLevelView, ApiError> {
        let seconds = request.seconds.unwrap_or(DEFAULT_LOG_LEVEL_TIME);
        if !(1..=MAX_LOG_LEVEL_TIME).contains(&seconds) {
            let hours = MAX_LOG_LEVEL_TIME / 3_600;
            return Err(ApiError::BadRequest(format!(
                "a changed log level lasts from 1 second to {hours} hours; for longer, set `log.level` in the settings"
            )));
        }
        let by = journal::principal_name(principal).unwrap_or_else(|| "unknown".to_owned());
        self.log_level.change(request.level.clone(), Duration::from_secs(seconds), by);
        Ok(self.log_level.view())
    }
}
