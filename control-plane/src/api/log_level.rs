//! The admin API's view of the level of the log.

use std::time::Duration;

use ironmesh_admin::{ApiError, LogLevelAccess, Permission, Principal};
use ironmesh_api::{DEFAULT_LOG_LEVEL_TIME, LogLevelRequest, LogLevelView, MAX_LOG_LEVEL_TIME};

use ironmesh_catalog::LogDirectives;

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
        check_content(principal, &request.level)?;
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

/// Rejects a level whose lines may have secrets, for a principal who may not know them: libraries write what they send and
/// receive, such as requests with tokens.
fn check_content(principal: &Principal, level: &LogDirectives) -> Result<(), ApiError> {
    if !level.traces_libraries() || principal.may(Permission::Administer) {
        return Ok(());
    }
    Err(ApiError::Forbidden(format!(
        "`{level}` includes `trace` of libraries, which may write tokens and keys to the log, and needs the role admin: use \
         `debug`, or `trace` of targets of Ironmesh, as `info,ironmesh_xds_server=trace`"
    )))
}

#[cfg(test)]
mod tests {
    use ironmesh_admin::Identity;
    use ironmesh_catalog::OperatorRole;

    use super::*;

    #[test]
    fn trace_of_libraries_needs_the_role_admin() {
        let principal = |role| {
            let identity =
                Identity::Operator { name: "ann".parse().unwrap(), credential: "1".to_owned() };
            Principal { identity, role, session: None, read_only: false, address: None }
        };
        let check = |role, level: &str| check_content(&principal(role), &level.parse().unwrap());
        for level in ["trace", "info,h2=trace"] {
            let error = check(OperatorRole::Operator, level).unwrap_err();
            assert!(matches!(error, ApiError::Forbidden(_)), "{error}");
            assert!(error.to_string().contains(level), "{error}");
            check(OperatorRole::Admin, level).unwrap();
        }
        check(OperatorRole::Operator, "debug,ironmesh_xds_server=trace").unwrap();
        check_content(&Principal::owner(Some(0)), &"trace".parse().unwrap()).unwrap();
    }
}
